"""A finished run whose files were edited is refused by ``read_run`` and by ``--resume``."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from run_fakes import FakeProducer
from securebench.errors import ConfigError, ImageError
from securebench.execution import retry
from securebench.results.read import read_run
from securebench.results.records.chain import line_hash
from securebench.results.run_directory.files import JOURNAL, SUPERSEDED
from securebench.results.run_directory.header import HEADER
from synthetic_run import reopen
from tester_run.running import make_parts, pin_framework, run, write_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from securebench.results.run_directory.header import RunHeader
    from securebench.tasks import AgentView

    Record = dict[str, Any]
    Lines = list[bytes]

FAILED: Final = 3
"""The index of the edited journal line, the failure of task 4. Two more lines follow it."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a resumed run of six tasks: four passed, two failed, and one had an error at first."""
    root = tmp_path_factory.mktemp("finished")
    write_run(root)
    producer = FakeProducer()
    tries: list[str] = []

    def hook(_number: int, view: AgentView, _context: object) -> None:
        task = view.task_id[-1]
        tries.append(task)
        producer.answer = "wrong" if task in "14" else "right"
        if task == "2" and len(tries) < 6:
            raise ImageError("gone")

    producer.hook = hook
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retry, "BACK_OFF", (0, 0))
        pin_framework(patch.setattr)
        run(root, parts=make_parts(producer))
        summary = run(root, parts=make_parts(producer), resume=True)
    assert (summary.passed, summary.failed, summary.problems) == (4, 2, ())
    assert len((root / "results" / SUPERSEDED).read_bytes().splitlines()) == 1
    return root


@pytest.fixture
def root(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the finished run."""
    pin_framework(monkeypatch.setattr)
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy, symlinks=True)
    return copy


@dataclass(frozen=True)
class Edit:
    """A change of the journal's lines and the expected error: its code, its place and a part of its message.

    ``resumed`` is the error of ``--resume`` if it differs, because ``--resume`` also compares the run with the pack.
    """

    name: str
    change: Callable[[Lines], object]
    code: str
    place: str
    message: str
    resumed: tuple[str, str, str] | None = None


def on_record(change: Callable[[Record], object], lines: Lines) -> None:
    """Apply ``change`` to the record in line ``FAILED``."""
    record = json.loads(lines[FAILED])
    change(record)
    lines[FAILED] = json.dumps(record).encode() + b"\n"


def passed(record: Record) -> None:
    """Turn a failure into a pass."""
    record |= {"verification_status": "passed", "passed": True, "score": 1.0}
    record["verifier_metadata"]["reason"] = None


def without_reason(record: Record) -> None:
    """Turn a failure into a pass that does not contradict itself."""
    passed(record)
    for name in ("failure_reason", "failure_phase", "failure_message"):
        del record[name]


def without_verdict(record: Record) -> None:
    """Remove all fields that contain results of a verifier."""
    for name in ("passed", "score", "assurance", "verifier_stdout", "verifier_stderr", "verifier_metadata"):
        del record[name]


def pending(record: Record) -> None:
    """Turn a failure into a pending task, which is not scored."""
    without_verdict(record)
    for name in ("failure_reason", "failure_phase", "failure_message"):
        del record[name]
    record["verification_status"] = "pending"


def pending_without_verifier(record: Record) -> None:
    """Turn a failure into a pending task of a family without a verifier."""
    pending(record)
    record["provenance"]["verifier"] = None


def error(record: Record) -> None:
    """Turn a failure into an error, whose task ``--resume`` would run again."""
    without_verdict(record)
    record |= {"verification_status": "error", "failure_reason": "engine_unavailable", "failure_phase": "produce"}


def provenance(record: Record, **changes: object) -> None:
    """Replace values in the provenance of a record."""
    record["provenance"] |= changes


def another_task(lines: Lines) -> None:
    """Add a pass of a task that the pack does not have, chained properly."""
    record = json.loads(lines[0])
    record |= {"task_id": "pack/new", "sequence": 7, "previous": line_hash(lines[-1])}
    lines.append(json.dumps(record).encode() + b"\n")


def forged_candidate(record: Record) -> None:
    """Replace the candidate by another one that is marked as redacted."""
    record |= {"candidate_text": "right", "candidate_digest": "5" * 64, "candidate_redacted": True}


def doubled(lines: Lines) -> None:
    """Double the sequence numbers."""
    for index, line in enumerate(lines):
        record = json.loads(line)
        lines[index] = json.dumps({**record, "sequence": 2 * record["sequence"]}).encode() + b"\n"


def swapped(lines: Lines) -> None:
    """Swap two lines."""
    lines[FAILED], lines[FAILED + 1] = lines[FAILED + 1], lines[FAILED]


def twice(old: bytes, new: bytes, lines: Lines) -> None:
    """Insert ``new`` after ``old``, so that a record contains a key twice."""
    assert old in lines[FAILED]
    lines[FAILED] = lines[FAILED].replace(old, old + b", " + new, 1)


def deleted(index: int, lines: Lines) -> None:
    """Delete a line."""
    del lines[index]


def edit(name: str, change: Callable[[Record], object], *expected: str, resumed: str = "") -> Edit:
    """Return an edit of one record. ``resumed`` is a part of the message of ``--resume``, if it differs."""
    code, place, message = expected
    another = ("record-foreign", f"{JOURNAL}:4", resumed) if resumed else None
    return Edit(name, partial(on_record, change), code, place, message, another)


IN_LINE: Final = ("journal-damaged", f"{JOURNAL}:4")
ITSELF: Final = ("record-contradictory", f"{JOURNAL}:4")
AFTER: Final = ("chain-broken", f"{JOURNAL}:5", "'previous' is not the hash of the record with the sequence number 4")
OTHER: Final = {"commitment": "0" * 64, "public_digest": "0" * 64}

EDITS: Final = [
    edit("1 passed", without_reason, *AFTER),
    edit("1 passed in one field", lambda record: record.update(passed=True), *IN_LINE, "'passed' is True"),
    edit("2 passed with a reason", passed, *IN_LINE, "is not allowed with the status 'passed'"),
    edit("3 score", lambda record: record.update(score=9.5), *IN_LINE, "'score' is 9.5"),
    edit("4 version", lambda record: record.update(record_version=99), *IN_LINE, "'record_version' 99 is not"),
    edit("4 older version", lambda record: record.update(record_version=3), *IN_LINE, "unknown key 'previous'"),
    Edit("5 doubled", doubled, "chain-broken", f"{JOURNAL}:2", "sequence number 1, not"),
    edit("5 negative", lambda record: record.update(sequence=-1), *IN_LINE, "'sequence' is negative"),
    Edit("6 swapped", swapped, "chain-broken", f"{JOURNAL}:4", "sequence number 4, not"),
    edit("7 run", lambda record: record.update(run_id="other"), "record-foreign", f"{JOURNAL}:4", "expected run_id"),
    edit("7 pack", partial(provenance, pack=OTHER), *AFTER, resumed="its 'provenance.pack' does not match"),
    edit("7 row", partial(provenance, row=OTHER), *AFTER, resumed="its 'provenance.row' does not match"),
    edit("7 harness", partial(provenance, harness={}), *AFTER, resumed="its 'provenance.harness' does not match"),
    edit("7 image", partial(provenance, image={"reference": "a", "id": "b"}), *AFTER, resumed="has a different id"),
    edit("7 settings", partial(provenance, run="0" * 64), "record-foreign", f"{JOURNAL}:4", "'provenance.run'"),
    Edit("8 task", another_task, "journal-damaged", f"{JOURNAL}:7", "task 'pack/new' was not planned",
         ("record-foreign", f"{JOURNAL}:7", "the pack has no task 'pack/new'")),
    edit("9 family", lambda record: record.update(task_type="multiple_choice"), *ITSELF, "belongs to another family"),
    edit("10 pending", pending, *ITSELF, "contradicts 'provenance.verifier'"),
    edit("10 no verifier", pending_without_verifier, *AFTER, resumed="impossible for family 'short_answer'"),
    edit("11 error", error, *AFTER),
    Edit("11 deleted", partial(deleted, FAILED), "chain-broken", f"{JOURNAL}:4", "sequence number 4, not"),
    Edit("11 deleted at the end", partial(deleted, -1), "closing-mismatch", HEADER, "records: 6, but the run was"),
    Edit("12 twice", partial(twice, b'"passed": false', b'"passed": true'), *IN_LINE, "duplicate key 'passed'"),
    edit("13 text", lambda record: record.update(candidate_text="right"), *ITSELF, "of 'candidate_text'"),
    edit("13 digest", forged_candidate, *AFTER),
]  # fmt: skip


def refused(action: Callable[[], object], code: str, place: str, message: str) -> None:
    """Check that an action raises :class:`ConfigError` with this code, place and message."""
    with pytest.raises(ConfigError) as caught:
        action()
    assert caught.value.code == code, str(caught.value)
    assert f"{place}: " in str(caught.value)
    assert message in str(caught.value)


def files(directory: Path) -> dict[str, bytes]:
    """Return the contents of the journal, the superseded records and the header."""
    return {name: (directory / name).read_bytes() for name in (JOURNAL, SUPERSEDED, HEADER)}


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_an_edited_record_is_refused(root: Path, edit: Edit) -> None:
    """An edited journal is refused when the run is read and when it is resumed, and no file is written."""
    results = root / "results"
    lines = (results / JOURNAL).read_bytes().splitlines(keepends=True)
    edit.change(lines)
    (results / JOURNAL).write_bytes(b"".join(lines))
    before = files(results)
    refused(lambda: read_run(results).summary(), edit.code, edit.place, edit.message)
    refused(lambda: run(root, resume=True), *(edit.resumed or (edit.code, edit.place, edit.message)))
    assert files(results) == before


def test_a_verdict_cannot_be_superseded(root: Path) -> None:
    """A failure among the superseded records is refused: the chain is intact, but only errors may be there."""
    results = root / "results"
    lines = (results / JOURNAL).read_bytes().splitlines(keepends=True)
    with (results / SUPERSEDED).open("ab") as file:
        file.write(lines.pop(FAILED))
    (results / JOURNAL).write_bytes(b"".join(lines))
    for action in (lambda: read_run(results).summary(), lambda: run(root, resume=True)):
        refused(action, "chain-broken", f"{SUPERSEDED}:2", "a superseded record must have the status 'error'")


@pytest.mark.parametrize("how", ["altered", "gone", "all gone"])
def test_an_edited_candidate_is_refused(root: Path, how: str) -> None:
    """A run is refused if the sealed candidate of a record was altered or is missing (13)."""
    results = root / "results"
    *_, record = read_run(results).records()
    sealed = results / "candidates" / str(record.candidate_digest)
    if how == "altered":
        sealed.chmod(0o644)
        sealed.write_bytes(b"wrong")
    elif how == "gone":
        sealed.unlink()
    else:
        shutil.rmtree(sealed.parent)
    code = {"altered": "candidate-altered"}.get(how, "candidate-not-stored")
    before = files(results)
    for action in (lambda: read_run(results).candidate(record), lambda: run(root, resume=True)):
        with pytest.raises(ConfigError) as caught:
            action()
        assert caught.value.problems[0].code == code
    assert files(results) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update(created_at="2020-01-01T00:00:00Z"),
        lambda header: header.update(nonce="0" * 32),
        lambda header: header["information"].update(engine={"version": "better"}),
        lambda header: header["information"].update(config_digest="0" * 64),
        lambda header: header["information"].update(planned_digest="0" * 64),
        lambda header: header["decisive"]["pack"].update(tasks=7),
        lambda header: header["closing"].update(ending="interrupted"),
        lambda header: header["closing"]["counts"].update(passed=6, failed=0),
        lambda header: header.update(problems=["none"], closing=header.pop("closing")),
    ],
)
def test_an_edited_header_is_refused(root: Path, change: Callable[[Record], object]) -> None:
    """A changed header is refused, because the closing contains the digest of the whole header (14)."""
    results = root / "results"
    header = json.loads((results / HEADER).read_text())
    change(header)
    (results / HEADER).write_text(json.dumps(header, indent=2) + "\n")
    for action in (lambda: read_run(results), lambda: run(root, resume=True)):
        refused(action, "closing-mismatch", HEADER, "changed after the run was closed")


def test_a_header_that_is_written_otherwise_is_refused(root: Path) -> None:
    """A header with the same JSON values in other bytes is refused, because a signature covers the bytes."""
    path = root / "results" / HEADER
    path.write_text(path.read_text().rstrip())
    with pytest.raises(ConfigError, match="formatted as SecureBench writes it"):
        read_run(root / "results")


def test_any_flipped_bit_is_noticed(root: Path) -> None:
    """A flipped bit anywhere in the records or the header is refused, even in texts that no other check reads (15)."""
    results = root / "results"
    chance = random.Random(15)
    for name in (JOURNAL, SUPERSEDED, HEADER):
        whole = (results / name).read_bytes()
        for _ in range(100):
            place = chance.randrange(8 * len(whole))
            flipped = bytearray(whole)
            flipped[place // 8] ^= 1 << place % 8
            (results / name).write_bytes(flipped)
            with pytest.raises(ConfigError):
                read_run(results).summary()
        (results / name).write_bytes(whole)
    assert read_run(results).summary().passed == 4


def test_a_run_that_was_not_closed_can_lose_its_end(root: Path) -> None:
    """Known limit: the last record of a run without closing and signature can be deleted, and its task runs again."""
    results = root / "results"
    reopen(results)
    lines = (results / JOURNAL).read_bytes().splitlines(keepends=True)
    (results / JOURNAL).write_bytes(b"".join(lines[:-1]))
    assert run(root, resume=True).tasks == 6
    closing = read_run(results).header.closing
    assert closing is not None
    assert closing.records == 7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"planned_digest": "0" * 64}, "'information.planned_digest' does not match the planned tasks"),
        ({"planned": 5, "planned_tasks": 5, "planned_families": {"short_answer": 5}}, "does not match the planned"),
        ({"planned": 7, "planned_tasks": 7, "planned_families": {"short_answer": 7}}, "the pack has 6"),
        ({"planned_families": {"short_answer": 5}}, "'information.planned_families' does not match the planned"),
    ],
)
def test_a_false_plan_is_refused(root: Path, changes: Record, message: str) -> None:
    """``--resume`` refuses an open run whose header contains a plan that does not match the pack."""
    results = root / "results"
    open_run = reopen(results)
    replace(open_run, information={**open_run.information, **changes}).write(results)
    before = files(results)
    with pytest.raises(ConfigError) as caught:
        run(root, resume=True)
    assert caught.value.code == "run-header-damaged"
    assert message in str(caught.value)
    assert files(results) == before


def test_a_closed_run_goes_on(root: Path) -> None:
    """A resumed run has no closing until it ends. The new closing counts the records of the whole run."""
    results = root / "results"
    before = read_run(results).header
    seen: list[RunHeader] = []
    producer = FakeProducer(hook=lambda *_: seen.append(read_run(results).header))
    run(root, resume=True, trials=2, parts=make_parts(producer))
    assert before.closing is not None
    assert [header.closing for header in seen] == [None] * 6
    after = read_run(results).header
    assert after.closing is not None
    assert (after.closing.counts["not_run"], after.closing.records) == (0, 13)
    assert replace(after, closing=None).run_digest == before.run_digest
