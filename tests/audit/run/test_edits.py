"""Edits of a finished run by somebody who wants another score, and the problems that ``verify-run`` then reports.

The numbers at the start of names and docstrings refer to a list of edits that an earlier version accepted. Edits are
made in two ways: directly, and by a forger who recomputes the hash chain and the closing with the code of SecureBench.
If such a forger changes everything consistently, the records alone do not reveal it. A comparison with the pack reveals
some of these changes. A signature reveals all of them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from audit.run.made_runs import copy_of, edit_lines, failed, make_run, rebuild, verify
from run_fakes import FakeProducer, FakeVerifier, seal
from securebench.execution.context import RunStoppedError
from securebench.harnesses.base import AgentResult
from securebench.results.run_directory.files import JOURNAL
from securebench.results.run_directory.header import HEADER
from tester_run.running import make_parts, write_run
from tester_run.running import run as run_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from securebench.harnesses.base import ProduceContext
    from securebench.tasks import AgentView

    Records = list[dict[str, Any]]
    Change = Callable[[Records], object]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run, next to its pack."""
    return make_run(tmp_path_factory.mktemp("made") / "run")


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """Return a copy of the run that may be changed, next to its pack."""
    copy_of(original.parent / "pack", tmp_path / "pack")
    return copy_of(original, tmp_path / "results")


def test_the_run_itself_is_right(run: Path) -> None:
    """No check of an unchanged copy of the run fails, with or without the pack."""
    for with_pack in (True, False):
        report = verify(run, with_pack=with_pack)
        assert failed(report) == {}
        assert report.exit_code == 0


def _failure(records: Records) -> dict[str, Any]:
    return next(record for record in records if record["verification_status"] == "failed")


def _pass_it(record: dict[str, Any]) -> None:
    record |= {"verification_status": "passed", "passed": True, "score": 1.0}
    record["verifier_metadata"]["reason"] = None
    for name in ("failure_reason", "failure_phase", "failure_message"):
        record.pop(name)


def _contradict(record: dict[str, Any]) -> None:
    record |= {"verification_status": "passed", "passed": True}


def _into(section: str, **values: Any) -> Change:
    """Return a change of values in the provenance of the first failed record."""
    return lambda records: _failure(records)["provenance"][section].update(values)


def _as(**values: Any) -> Change:
    """Return a change of values in the first failed record."""
    return lambda records: _failure(records).update(values)


def _add_unknown(records: Records) -> None:
    record = json.loads(json.dumps(records[0]))
    record["task_id"] = "pack/unknown"
    records.append(record)


def _to_pending(records: Records) -> None:
    record = _failure(records)
    _pass_it(record)
    for name in ("passed", "score", "assurance", "verifier_stdout", "verifier_stderr", "verifier_metadata"):
        record.pop(name)
    record["verification_status"] = "pending"


def _to_error(records: Records) -> None:
    record = _failure(records)
    for name in ("passed", "score", "assurance", "verifier_stdout", "verifier_stderr", "verifier_metadata"):
        record.pop(name)
    record |= {"verification_status": "error", "failure_reason": "engine_unavailable", "failure_phase": "verify"}


OTHER = "ab" * 32
EDITS: dict[str, tuple[Change, int, str]] = {
    "1 failed to passed": (lambda records: _pass_it(_failure(records)), 11, "'previous' is not the hash of the record"),
    "2 passed, with its failure": (lambda records: _contradict(_failure(records)), 10, "contradicts the status"),
    "3 a score of 9.5": (_as(score=9.5), 10, "'score' is 9.5"),
    "4 version 99": (_as(record_version=99), 10, "'record_version'"),
    "5 sequence doubled": (_as(sequence=0), 11, "are not in the order of their sequence numbers"),
    "5 sequence negative": (_as(sequence=-1), 10, "'sequence' is negative: -1"),
    "6 lines swapped": (list.reverse, 11, "are not in the order of their sequence numbers"),
    "7 another run": (_as(run_id="other"), 11, "'previous' is not the hash of the record"),
    "7 another pack": (_into("pack", public_digest=OTHER), 11, "'previous' is not the hash of the record"),
    "7 another harness": (_into("harness", digest=OTHER), 11, "'previous' is not the hash of the record"),
    "7 another image": (_into("image", id=f"sha256:{OTHER}"), 11, "'previous' is not the hash of the record"),
    "7 another row": (_into("row", public_digest=OTHER), 11, "'previous' is not the hash of the record"),
    "8 an unknown task": (_add_unknown, 10, "trial '1' of task 'pack/unknown' was not planned"),
    "9 another family": (_as(task_type="tool_call"), 11, "'previous' is not the hash of the record"),
    "10 failed to pending": (_to_pending, 11, "'previous' is not the hash of the record"),
    "11 failed to error": (_to_error, 11, "'previous' is not the hash of the record"),
    "11 a line deleted": (
        lambda records: records.remove(_failure(records)),
        11,
        "with the sequence number 1, not",
    ),
    "13 candidate text": (_as(candidate_text="right"), 11, "'previous' is not the hash of the record"),
    "13 candidate digest": (_as(candidate_digest=OTHER), 11, "'previous' is not the hash of the record"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_record_is_caught_and_named(run: Path, name: str) -> None:
    """An edited record gives the exit code for its kind of problem, and a problem with file, line and reason."""
    change, code, reason = EDITS[name]
    edit_lines(run, change)
    report = verify(run)
    problems = [problem for found in failed(report).values() for problem in found]
    assert report.exit_code == code, problems
    assert [problem for problem in problems if reason in problem and ".jsonl:" in problem], problems
    assert f"{JOURNAL}: it was changed after the run was closed" in problems


FORGED: dict[str, tuple[Change, int, str]] = {
    "2": (lambda records: _contradict(_failure(records)), 10, "contradicts the status"),
    "3": (_as(score=9.5), 10, "'score' is 9.5"),
    "4": (_as(record_version=99), 10, "'record_version'"),
    "7 another run": (_as(run_id="other"), 14, "expected run_id 'run', got 'other'"),
    "7 another benchmark": (_as(benchmark_id="other"), 14, "expected benchmark_id 'pack', got 'other'"),
    "7 another pack": (_into("pack", public_digest=OTHER), 14, "'provenance.pack' does not match the run"),
    "7 another harness": (_into("harness", digest=OTHER), 14, "'provenance.harness' does not match the run"),
    "7 another image": (_into("image", id=f"sha256:{OTHER}"), 14, "the record's image is not one of the run's images"),
    "7 other settings": (lambda records: records[0]["provenance"].update(run=OTHER), 14, "'provenance.run'"),
    "7 another framework": (_into("framework", digest=OTHER), 14, "'provenance.framework' does not match the run"),
    "7 another driver": (_into("driver", runtime="runsc"), 14, "'provenance.driver.runtime' does not match the run"),
    "7 another verifier": (_into("verifier", version="0"), 14, "'provenance.verifier' does not match the run"),
    "8 an unknown task": (_add_unknown, 10, "'closing.counts.not_run' is not a number"),
    "9 another family": (_as(task_type="tool_call"), 14, "the run has no verifier for 'tool_call'"),
    "10 failed to pending": (_to_pending, 14, "the status is 'pending', although the run has a verifier"),
    "11 a line deleted": (
        lambda records: records.remove(_failure(records)),
        14,
        "the run finished, but 1 trial did not run",
    ),
    "13 candidate text": (_as(candidate_text="right"), 13, "'candidate_text' is not the sealed candidate"),
    "13 candidate digest": (_as(candidate_digest=OTHER), 13, "'candidate_text' is not the sealed candidate"),
    "13 no candidate": (_as(candidate_text=None), 13, "the candidate is text, but the record does not contain it"),
    "another assurance": (_as(assurance="exit_code"), 14, "the verifier's metadata contradicts it"),
    "another trial": (_as(trial=2), 10, "trial '2' of task"),
    "a second attempt": (lambda records: records[0]["provenance"].update(attempt=2), 11, "this is attempt 1"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_record_is_caught_and_named(run: Path, name: str) -> None:
    """A contradiction in the records is found even if the hash chain and the closing were recomputed."""
    change, code, reason = FORGED[name]
    rebuild(run, change)
    report = verify(run)
    problems = [problem for found in failed(report).values() for problem in found]
    assert report.exit_code == code, problems
    assert [problem for problem in problems if reason in problem], problems


def test_a_forger_who_changes_everything_consistently_needs_the_pack_or_a_signature_to_be_caught(run: Path) -> None:
    """Without a signature, a consistent change of a verdict (edit 1) is not found, even with the pack.

    The report says that no signature was checked. Changed tags are found by a comparison with the pack.
    """
    rebuild(run, lambda records: _pass_it(_failure(records)))
    report = verify(run, with_pack=True)
    assert report.exit_code == 0
    signature = next(check for check in report.checks if check.name == "signature")
    assert signature.state.value == "not checked"
    rebuild(run, lambda records: records[0].update(tags=["easy"]))
    assert "differ from those in the pack" in failed(verify(run, with_pack=True))["pack"][0]


OF_PACK: dict[str, tuple[Change, str]] = {
    "another task": (lambda records: _rename(records[0]), "the pack has no task 'pack/new'"),
    "another family": (lambda records: records[0].update(task_type="browser_task"), "has the family short_answer"),
    "another row": (lambda records: records[0]["provenance"]["row"].update(public_digest=OTHER), "other public"),
    "another answer": (
        lambda records: records[0]["provenance"]["row"].update(commitment=OTHER),
        "other hidden content than the record, or the commitment key is that of another run",
    ),
    "other tags": (lambda records: records[0].update(tags=["easy"]), "differ from those in the pack"),
    "another question": (lambda records: _ask(records[0]["resource_summary"]), "the 'resource_summary' of task"),
    "no resources": (lambda records: records[0].update(resource_summary=[]), "the 'resource_summary' of task"),
}


def _ask(summary: list[dict[str, Any]]) -> None:
    next(resource for resource in summary if resource["visibility"] == "public")["value"] = "What is 1 + 1?"


def _rename(record: dict[str, Any]) -> None:
    record["task_id"] = "pack/new"


@pytest.mark.parametrize("name", OF_PACK)
def test_what_is_not_of_the_pack_is_caught(run: Path, name: str) -> None:
    """8, 9 and 7: ids, families, rows, tags and resources in records are compared with those of a given pack."""
    change, reason = OF_PACK[name]
    rebuild(run, change)
    report = verify(run, with_pack=True)
    assert [problem for problem in failed(report)["pack"] if reason in problem], failed(report)
    assert report.exit_code in {14, 15}


def _edit(run: Path, *path: str, to: object) -> None:
    content = json.loads((run / HEADER).read_bytes())
    section = content
    for name in path[:-1]:
        section = section[name]
    section[path[-1]] = to
    (run / HEADER).write_bytes((json.dumps(content, indent=2) + "\n").encode("ascii"))


@pytest.mark.parametrize(
    "path",
    [
        ("created_at",),
        ("nonce",),
        ("information", "config_digest"),
        ("information", "planned_digest"),
        ("information", "engine", "version"),
        ("decisive", "harness", "digest"),
        ("closing", "closed_at"),
    ],
)
def test_a_changed_header_is_caught(run: Path, path: tuple[str, ...]) -> None:
    """14: the root hash covers every value of run.json, even values that do not affect verdicts."""
    _edit(run, *path, to="2020")
    report = verify(run)
    assert "run.json: 'closing.root' is not the hash of the rest of this file" in failed(report)["root"]
    assert report.exit_code in {11, 12}


def test_a_selection_that_does_not_fit_the_pack_is_one_problem(run: Path) -> None:
    """If the run's selection names a task that the pack does not have, the number of planned tasks is not compared."""
    _edit(run, "decisive", "selection", to={"task": ["pack/unknown"]})
    for name in ("planned", "planned_tasks"):
        _edit(run, "information", name, to=1)
    (problem,) = failed(verify(run, with_pack=True))["pack"]
    assert (
        "the run's selection cannot be applied to this pack: no task of the pack has the id 'pack/unknown'" in problem
    )


def test_a_header_that_is_not_closed_any_more_is_caught(run: Path) -> None:
    """The exit code is 17 if the closing was removed from run.json, and 10 if run.json itself was removed."""
    content = json.loads((run / HEADER).read_bytes())
    del content["closing"]
    (run / HEADER).write_bytes((json.dumps(content, indent=2) + "\n").encode("ascii"))
    assert verify(run).exit_code == 17
    (run / HEADER).unlink()
    assert verify(run).exit_code == 10


def test_duplicate_keys_are_caught(run: Path) -> None:
    """12: a record with a duplicate key is damaged, because two readers could use different values."""
    path = run / JOURNAL
    path.write_bytes(path.read_bytes().replace(b'"passed": false', b'"passed": false, "passed": true', 1))
    report = verify(run)
    assert report.exit_code == 10
    assert (
        "candidates.jsonl:2: the records are damaged: invalid record: duplicate key 'passed'"
        in failed(report)["records"]
    )


def test_changed_candidates_are_caught(run: Path) -> None:
    """13: a changed, missing or added candidate is a problem, and so is a missing directory of candidates."""
    files = sorted((run / "candidates").iterdir())
    files[0].chmod(0o600)
    files[0].write_text("other")
    report = verify(run)
    assert report.exit_code == 13
    assert f"candidates/{files[0].name}: the sealed candidate was altered" in failed(report)["candidates"][0]
    files[0].unlink()
    (run / "candidates" / OTHER).write_text("more")
    assert failed(verify(run))["candidates"] == [
        f"candidates/{files[0].name}: the sealed candidate is missing",
        f"candidates/{OTHER}: no record names this file",
    ]
    for path in (run / "candidates").iterdir():
        path.unlink()
    (run / "candidates").rmdir()
    assert len(failed(verify(run))["candidates"]) == 2


def test_a_changed_trajectory_is_caught_and_a_missing_one_is_reported(run: Path) -> None:
    """A missing trajectory is allowed, because it is only a self-report of the agent. A changed one is a problem."""
    first, *others = sorted((run / "trajectories").iterdir())
    for path in others:
        path.unlink()
    report = verify(run)
    assert report.exit_code == 0
    assert next(c for c in report.checks if c.name == "trajectories").text.endswith("5 missing, which is allowed")
    first.write_text("{}\n")
    assert verify(run).exit_code == 13
    first.unlink()
    first.symlink_to("/etc/hostname")
    text = next(check.text for check in verify(run).checks if check.name == "trajectories")
    assert text.startswith("0 trajectories compared")


@pytest.mark.parametrize("change", ["edited", "removed", "added"])
def test_every_egress_log_is_compared_with_the_closing(run: Path, change: str) -> None:
    """An egress log that was edited, removed or added is found, because the closing has the digest of each log.

    Each worker process has a log ``egress-PID.jsonl``.
    """
    log = run / "egress-41.jsonl"
    log.write_text("{}\n")
    rebuild(run)
    assert failed(verify(run)) == {}
    if change == "edited":
        log.write_text('{"decision": "allowed"}\n')
    elif change == "removed":
        log.unlink()
    else:
        (run / "egress-42.jsonl").write_text("{}\n")
    report = verify(run)
    assert report.exit_code == 12
    name = "egress-42.jsonl" if change == "added" else log.name
    assert [problem.split(":")[0] for problem in failed(report)["files"]] == [name]


def test_a_superseded_record_that_is_removed_or_changed_is_caught(run: Path) -> None:
    """11: a removed or changed superseded record is found, so a second attempt cannot look like a first one."""
    saved = (run / "superseded.jsonl").read_bytes()
    (run / "superseded.jsonl").unlink()
    report = verify(run)
    assert report.exit_code == 11
    assert "the record with the sequence number" in failed(report)["chain"][0]
    (run / "superseded.jsonl").write_bytes(saved.replace(b"attempt", b"attempx", 1))
    assert verify(run).exit_code != 0
    rebuild(run, lambda _: None)
    (run / "superseded.jsonl").unlink()
    rebuild(run)
    assert "this is attempt 1 at task" in failed(verify(run))["chain"][0]


def test_a_candidate_that_was_never_judged_does_not_make_a_run_look_edited(tmp_path: Path) -> None:
    """A candidate that was sealed but not judged, because the run was stopped, is removed when the run is closed."""
    write_run(tmp_path, 3)

    def seal_another(number: int, _view: AgentView, context: ProduceContext) -> AgentResult:
        return AgentResult(candidate=seal(context.store, f"answer {number}"))

    def stop(number: int, *_: object) -> None:
        if number == 2:
            raise RunStoppedError

    verifier = FakeVerifier(hook=stop)
    summary = run_in(tmp_path, parts=make_parts(FakeProducer(hook=seal_another), verifier_for=lambda *_: verifier))
    assert summary.total.not_run
    assert len(list((tmp_path / "results" / "candidates").iterdir())) == summary.total.scored
    assert "candidates" not in failed(verify(tmp_path / "results"))
