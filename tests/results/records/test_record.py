"""The record of a task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from results.samples import STATUS, record
from securebench.candidates.artifact import CandidateArtifact
from securebench.errors import INFRASTRUCTURE_REASONS, FailureReason
from securebench.results.records.record import Output, VerificationStatus, assurance_of, candidate_fields, comparable
from securebench.results.records.strict_record import read_entry, read_record
from securebench.tasks import CandidateKind
from securebench.trials import TrialId

ALWAYS = [
    "record_version",
    "sequence",
    "previous",
    "run_id",
    "task_id",
    "trial",
    "benchmark_id",
    "task_type",
    "tags",
    "verification_status",
    "candidate_text",
    "candidate_patch",
    "candidate_workspace",
    "candidate_digest",
    "candidate_redacted",
    "producer_stdout",
    "producer_stderr",
    "producer_metadata",
    "resource_summary",
    "hidden_values",
    "provenance",
]
SCORED = ["passed", "score"]
VERIFIED = ["assurance", "verifier_stdout", "verifier_stderr", "verifier_metadata"]
FAILED = ["failure_reason", "failure_phase", "failure_message"]


@pytest.mark.parametrize(
    ("status", "verifier", "extra"),
    [
        (STATUS.PASSED, Output(), [*SCORED, *VERIFIED]),
        (STATUS.FAILED, Output(), [*SCORED, *VERIFIED, *FAILED]),
        (STATUS.FAILED, None, [*SCORED, *FAILED]),
        (STATUS.PENDING, None, []),
        (STATUS.ERROR, None, FAILED),
    ],
)
def test_fields(status: VerificationStatus, verifier: Output | None, extra: list[str]) -> None:
    """A record has exactly the fields that belong to its status. It has fields of a verifier only if one ran."""
    fields = record(status=status, verifier=verifier).to_json(7)
    assert sorted(fields) == sorted([*ALWAYS, *extra])
    assert fields["hidden_values"] == "<redacted>"
    assert fields["sequence"] == 7


@pytest.mark.parametrize(("status", "passed", "score"), [(STATUS.PASSED, True, 1.0), (STATUS.FAILED, False, 0.0)])
def test_score(status: VerificationStatus, passed: bool, score: float) -> None:
    """A passed task has the score 1.0, and a failed task 0.0."""
    fields = record(status=status).to_json(0)
    assert (fields["passed"], fields["score"]) == (passed, score)


@pytest.mark.parametrize(
    ("metadata", "assurance"),
    [
        ({}, "full"),
        ({"evidence": {"kind": "test_by_test", "ran": 3}}, "test_by_test"),
        ({"evidence": {"kind": "exit_code"}}, "exit_code"),
        ({"isolation": "shared"}, "shared"),
        ({"isolation": "split"}, "full"),
    ],
)
def test_what_a_verdict_rests_on(metadata: dict[str, Any], assurance: str) -> None:
    """The assurance, computed from the verifier's metadata, is a field of the record and is read back from its line."""
    task_record = record(assurance=assurance_of(metadata))
    assert task_record.to_json(0)["assurance"] == assurance
    assert read_entry(task_record.line(0)).assurance == assurance


def test_evidence_of_an_unknown_kind_is_refused() -> None:
    """Evidence of an unknown kind is refused, and does not count as full assurance."""
    with pytest.raises(ValueError, match="hearsay"):
        assurance_of({"evidence": {"kind": "hearsay"}})


@pytest.mark.parametrize("value", [None, "", "perfect", 1])
def test_a_pass_says_what_it_rests_on(value: object) -> None:
    """A recorded pass with a missing or unknown assurance is refused, so that it cannot count as better than it is."""
    line = record().line(0).replace(b'"assurance": "full"', b'"assurance": ' + json.dumps(value).encode())
    with pytest.raises((TypeError, ValueError)):
        read_entry(line)
    with pytest.raises((TypeError, ValueError)):
        read_entry(line.replace(b'"assurance": ', b'"other": '))


def test_key_order_is_stable() -> None:
    """The keys of two records of the same kind have the same order, and the first seven are those of ``ALWAYS``."""
    first, second = (list(record(name).to_json(0)) for name in ("a", "b"))
    assert first == second
    assert first[:7] == ALWAYS[:7]


def test_control_characters_are_kept_as_data() -> None:
    """Control characters that an agent printed are kept, but only in escaped form in the line of the record (M13)."""
    nasty = "\x1b[2J\x07\u202e\x00\udcff\x9b\n"
    line = record(producer=Output(stdout=nasty)).line(0)
    assert all(byte >= 0x20 for byte in line[:-1])
    assert line.isascii()
    assert json.loads(line)["producer_stdout"] == nasty


def test_a_record_is_one_line() -> None:
    """The line of a record contains a single newline, even if the agent's output has several line breaks."""
    assert record(producer=Output(stdout="a\nb\u2028c\x85d\x1ce\n")).line(0).count(b"\n") == 1


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (CandidateKind.TEXT, "candidate_text", "42"),
        (CandidateKind.CODE, "candidate_text", "42"),
        (CandidateKind.PATCH, "candidate_patch", "42"),
        (CandidateKind.WORKSPACE, "candidate_workspace", "sha256:abc"),
    ],
)
def test_candidate(kind: CandidateKind, name: str, value: str) -> None:
    """A candidate is only in the field for its kind. A workspace is named by its digest, never by a host path."""
    fields = candidate_fields(CandidateArtifact(kind, "abc", 2, Path("/host/secret")), "42")
    shown = {key: item for key, item in fields.items() if item is not None}
    assert shown == {name: value, "candidate_digest": "abc", "candidate_redacted": False}


def test_no_candidate() -> None:
    """Without a candidate, the candidate fields are present and ``None``."""
    assert set(candidate_fields(None, None).values()) == {None}


def test_entry_of_a_line() -> None:
    """The summary of a record, which is kept in memory, is read from the record's line."""
    entry = read_entry(record("x", STATUS.FAILED).line(3))
    assert (entry.task_id, entry.status, entry.sequence, entry.attempt) == ("x", STATUS.FAILED, 3, 1)
    assert (entry.reason, entry.message) == ("wrong_answer", "not the answer")


@pytest.mark.parametrize(
    "change",
    [
        {"verification_status": "excellent"},
        {"verification_status": "failed"},  # beside "passed": true
        {"passed": False},  # beside the status "passed"
        {"passed": 1},
        {"task_id": 3},
        {"task_id": None},
        {"sequence": "0"},
        {"sequence": True},
        {"provenance": {}},
        {"provenance": []},
    ],
    ids=str,
)
def test_inconsistent_lines_are_refused(change: dict[str, object]) -> None:
    """A line with contradictory or invalid fields is refused, and above all is not read as a pass."""
    line = json.dumps({**record().to_json(0), **change}).encode()
    with pytest.raises((ValueError, TypeError)):
        read_entry(line)


@pytest.mark.parametrize("line", [b"[]", b"3", b"{", b"", b'{"a": NaN}', b"\xff", b'"passed"'])
def test_other_lines_are_refused(line: bytes) -> None:
    """A line that is not a JSON object is refused."""
    with pytest.raises((ValueError, TypeError)):
        read_entry(line)


def test_comparable_drops_what_differs_between_honest_runs() -> None:
    """Records that differ only in times, attempt, usage and sequence compare equal; another pack is a difference."""
    first = record(provenance={"attempt": 1, "durations": {"a": 1}, "started_at": "x", "usage": {}, "pack": "p"})
    again = record(provenance={"attempt": 2, "durations": {}, "started_at": "y", "pack": "p"})
    other = record(provenance={"attempt": 1, "pack": "q"})
    assert comparable(first.to_json(0)) == comparable(again.to_json(5))
    assert comparable(first.to_json(0)) != comparable(other.to_json(0))


def test_comparable_looks_inside_metadata_and_nowhere_else() -> None:
    """A duration is dropped from metadata at any depth, but ``usage`` in the resource summary stays."""
    summary = [{"name": "usage", "value": {"usage": 1}}]
    fields = record(
        producer=Output(metadata={"runs": [{"duration_seconds": 1, "exit_code": 0}]}), resource_summary=summary
    ).to_json(0)
    kept = comparable(fields)
    assert kept["producer_metadata"] == {"runs": [{"exit_code": 0}]}
    assert kept["resource_summary"] == summary


@pytest.mark.parametrize(
    ("status", "change"),
    [
        (STATUS.PASSED, {"score": 9.5}),
        (STATUS.PASSED, {"score": 0.0}),
        (STATUS.PASSED, {"score": 1}),
        (STATUS.PASSED, {"score": True}),
        (STATUS.FAILED, {"score": 1.0}),
        (STATUS.FAILED, {"score": None}),
        (STATUS.ERROR, {"score": 0.0}),
        (STATUS.ERROR, {"passed": False}),
        (STATUS.PENDING, {"passed": False}),
        (STATUS.PASSED, {"failure_reason": "wrong_answer"}),
        (STATUS.PASSED, {"failure_message": ""}),
        (STATUS.FAILED, {"failure_reason": "bad_luck"}),
        (STATUS.FAILED, {"failure_reason": "engine_unavailable"}),
        (STATUS.ERROR, {"failure_reason": "wrong_answer"}),
        (STATUS.FAILED, {"failure_phase": "lunch"}),
        (STATUS.FAILED, {"failure_message": 3}),
        (STATUS.PASSED, {"record_version": 99}),
        (STATUS.PASSED, {"record_version": "1"}),
        (STATUS.PASSED, {"record_version": True}),
        (STATUS.PASSED, {"sequence": -1}),
        (STATUS.PASSED, {"trial": 0}),
        (STATUS.PASSED, {"trial": True}),
        (STATUS.PASSED, {"trial": "2"}),
        (STATUS.PASSED, {"tags": "easy"}),
        (STATUS.PASSED, {"tags": [1]}),
        (STATUS.PASSED, {"record_version": 2}),
        (STATUS.PASSED, {"candidate_digest": "short"}),
        (STATUS.PASSED, {"candidate_digest": 3}),
        (STATUS.PASSED, {"provenance": {"attempt": 0}}),
        (STATUS.PASSED, {"provenance": {"attempt": True}}),
    ],
    ids=str,
)
def test_a_record_that_contradicts_itself_is_none(status: VerificationStatus, change: dict[str, object]) -> None:
    """A record with an invalid field, or whose score or failure contradicts its status, is refused (M07)."""
    whole = record(status=status).to_json(0)
    assert read_record(json.dumps(whole).encode()) == whole
    with pytest.raises((TypeError, ValueError)):
        read_record(json.dumps({**whole, **change}).encode())


def test_a_record_of_the_version_before_is_trial_one_without_tags() -> None:
    """A record of version 2, which has no fields ``trial`` and ``tags``, is read as trial 1 without tags."""
    older = {**record().to_json(0), "record_version": 2}
    del older["trial"], older["tags"], older["previous"]
    assert read_record(json.dumps(older).encode()) == {**older, "trial": 1, "tags": []}
    assert read_entry(json.dumps(older).encode()).id == TrialId("pack/one", 1)


_REQUIRED = ["score", "passed", "failure_reason", "failure_phase", "record_version", "previous", "trial", "tags"]


@pytest.mark.parametrize("missing", _REQUIRED)
def test_a_record_that_lacks_something_is_none(missing: str) -> None:
    """A failed record that lacks a required field, such as its score or reason, is refused."""
    whole = record(status=STATUS.FAILED).to_json(0)
    del whole[missing]
    with pytest.raises((TypeError, ValueError)):
        read_record(json.dumps(whole).encode())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"score": 0.0', b'"score": 0.0, "score": 1.0'),
        (b'"passed": false', b'"passed": false, "passed": true'),
        (b'"attempt": 1', b'"attempt": 1, "attempt": 2'),
    ],
)
def test_a_key_that_stands_twice_is_refused(old: bytes, new: bytes) -> None:
    """A record with a duplicate key is refused, because another JSON reader might use the other value (M07)."""
    line = record(status=STATUS.FAILED).line(0)
    assert old in line
    with pytest.raises(ValueError, match="duplicate key"):
        read_record(line.replace(old, new))


def test_every_reason_is_of_one_status() -> None:
    """The reasons documented below "Infrastructure" are exactly those after which a task has no score."""
    section = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "failures.md").read_text()
    of_errors = section.partition("## Infrastructure")[2]
    assert {reason for reason in FailureReason if f'<a id="{reason.value}"></a>' in of_errors} == INFRASTRUCTURE_REASONS


def test_a_long_message_is_cut_visibly() -> None:
    """A truncated message ends with an ellipsis, so that it does not look complete."""
    line = json.loads(record("x", STATUS.FAILED).line(3))
    messages = {size: "x" * size for size in (300, 301)}
    found = {
        size: read_entry(json.dumps(line | {"failure_message": text}).encode()).message
        for size, text in messages.items()
    }
    assert found == {300: messages[300], 301: "x" * 299 + "…"}
