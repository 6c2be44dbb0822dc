"""Reading a run directory, even if it is damaged or comes from a stranger."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import securebench
import synthetic_run as synthetic
from securebench.candidates.store import CANDIDATES, CandidateStore
from securebench.errors import ConfigError, FailurePhase, FailureReason
from securebench.patches.model import FileVersion
from securebench.results.recorded_task import MAX_LINE
from securebench.results.records.record import Assurance, VerificationStatus, candidate_fields
from securebench.results.records.trajectory import TRAJECTORIES
from securebench.results.records.usage import Usage
from securebench.results.run_directory.files import JOURNAL, SUPERSEDED
from securebench.results.run_directory.header import HEADER
from securebench.results.run_directory.lock import RunLock
from securebench.results.suite import RecordedSuite, write_suite
from securebench.results.summary import RunEnd
from securebench.tasks import CandidateKind
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.resources import JsonValue
    from securebench.results.records.record import TaskRecord

STATUS = VerificationStatus
MANY = 3_000


def written(directory: Path, *given: TaskRecord) -> securebench.RecordedRun:
    """Write a run with these records and open it."""
    return securebench.read_run(synthetic.write_run(directory, given))


def change_lines(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Replace the lines of a file with what ``change`` returns for them."""
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def with_raw(directory: Path, **changes: Any) -> securebench.RecordedRun:
    """Write a run of one record, replace keys of the record, and return the opened run."""
    run = written(directory, synthetic.record(provenance=changes.pop("provenance", {})))
    synthetic.forge(directory, lambda records: records[0].update(changes))
    return run


def test_a_finished_run_is_read_back(tmp_path: Path) -> None:
    """The records of a finished run are read in order, with typed values."""
    given = [synthetic.record(0), synthetic.record(1, STATUS.FAILED), synthetic.record(2, STATUS.ERROR)]
    run = written(tmp_path, *given)
    assert (run.run_id, run.benchmark_id, run.label, run.planned, run.models) == (
        "synthetic",
        "made-up",
        "command",
        3,
        (),
    )
    assert run.selection is None
    assert not run.is_active
    one, two, three = run.records()
    assert (one.id, one.family, one.passed, one.assurance) == (
        ("made-up/task-00000", 1),
        "short_answer",
        True,
        Assurance.FULL,
    )
    assert one.started_at == datetime(2026, 11, 22, tzinfo=UTC)
    assert one.duration_seconds == 2.5
    assert one.spent == one.usage == Usage(input_tokens=1000, output_tokens=100, turns=3, cost_usd=0.01)
    assert one.candidate_text == "Answer: 42\n"
    assert one.producer.stdout.startswith("thinking")
    assert (two.passed, two.reason, two.phase) == (False, FailureReason.WRONG_ANSWER, FailurePhase.VERIFY)
    assert (three.passed, three.status, three.assurance, three.verifier) == (None, STATUS.ERROR, None, None)
    assert three.raw["hidden_values"] == "<redacted>"


def test_the_directory_may_be_a_link_of_the_user(tmp_path: Path) -> None:
    """A symbolic link to a run directory is followed if it is the path that the user gives."""
    synthetic.write_run(tmp_path / "run", 1)
    (tmp_path / "latest").symlink_to("run")
    run = securebench.read_run(str(tmp_path / "latest"))
    assert len(list(run.records())) == 1
    assert run.directory == tmp_path / "latest"


def test_a_part_of_a_pack_is_described(tmp_path: Path) -> None:
    """A run may have only some of its pack's tasks. Its selection then says how many."""
    synthetic.write_run(tmp_path, 3, synthetic.header(3, pack_tasks=164))
    selection = securebench.read_run(tmp_path).selection
    assert selection is not None
    assert selection.describe() == "3 of 164 tasks, not the whole benchmark"


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    """A directory without a run and a missing directory are refused."""
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigError, match="not a run directory") as caught:
            securebench.read_run(path)
        assert caught.value.code == "run-missing"


def test_a_suite_is_not_a_run(tmp_path: Path) -> None:
    """The directory of a suite is refused, with the hint to give the directory of one of its runs."""
    write_suite(tmp_path, RecordedSuite("s", {}))
    with pytest.raises(ConfigError, match="is a suite") as caught:
        securebench.read_run(tmp_path)
    (problem,) = caught.value.problems
    assert (problem.code, problem.hint) == ("run-missing", "give the directory of one of its runs")


def test_a_run_before_its_first_record(tmp_path: Path) -> None:
    """A run with a header and no journal has no records."""
    run = written(tmp_path)
    (tmp_path / JOURNAL).unlink()
    assert list(run.records()) == list(run.superseded()) == []


def test_a_run_in_progress(tmp_path: Path) -> None:
    """The records written so far are read, without a line that is still being written."""
    synthetic.write_run(tmp_path, 0, synthetic.header(5))
    run = securebench.read_run(tmp_path)
    with RunLock(tmp_path), synthetic.SyntheticJournal(tmp_path) as journal:
        assert run.is_active
        journal.append(synthetic.record(0))
        records = run.records()
        assert next(records).sequence == 0
        journal.append(synthetic.record(1))
        assert list(records) == []  # the file as it was when reading began
        assert [record.sequence for record in run.records()] == [0, 1]
        line = synthetic.record(2).line(2)
        for end in (1, len(line) // 2, len(line) - 2):
            with (tmp_path / JOURNAL).open("ab") as file:
                file.write(line[:end])
            assert [record.sequence for record in run.records()] == [0, 1]
            os.truncate(tmp_path / JOURNAL, (tmp_path / JOURNAL).stat().st_size - end)
    assert not run.is_active


def test_a_run_in_another_process_is_active(tmp_path: Path) -> None:
    """A run is active while another process holds its lock, and no longer once that process is killed."""
    synthetic.write_run(tmp_path, 1)
    run = securebench.read_run(tmp_path)
    code = (
        "import sys; from pathlib import Path; from securebench.results.run_directory.lock import RunLock\n"
        "with RunLock(Path(sys.argv[1])): print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert run.is_active
        process.kill()
    assert not run.is_active


def test_a_killed_run_is_read(tmp_path: Path) -> None:
    """A complete last record without its newline is read, as it is when the run is resumed."""
    run = written(tmp_path, synthetic.record(0), synthetic.record(1))
    os.truncate(tmp_path / JOURNAL, (tmp_path / JOURNAL).stat().st_size - 1)
    assert [record.sequence for record in run.records()] == [0, 1]


def test_superseded_records(tmp_path: Path) -> None:
    """If a trial with an error ran again, the record of the error is read separately.

    Without that record, the sequence numbers have a gap, and reading fails.
    """
    synthetic.write_run(tmp_path, [synthetic.record(0, STATUS.ERROR), synthetic.record(1)])
    with synthetic.SyntheticJournal(tmp_path) as journal:
        journal.supersede([TrialId("made-up/task-00000")])
        journal.append(synthetic.record(0, provenance={"attempt": 2}))
    run = securebench.read_run(tmp_path)
    assert [(record.sequence, record.attempt) for record in run.records()] == [(1, 1), (2, 2)]
    assert [(record.sequence, record.status) for record in run.superseded()] == [(0, STATUS.ERROR)]
    (tmp_path / SUPERSEDED).unlink()
    with pytest.raises(ConfigError, match="sequence number 0, not"):
        list(run.records())


def test_a_run_killed_while_it_moved_a_record(tmp_path: Path) -> None:
    """A record that is in both the journal and the superseded file is counted once, as a current record."""
    run = written(tmp_path, synthetic.record(0, STATUS.ERROR), synthetic.record(1))
    before = run.summary()
    synthetic.reopen(tmp_path)
    (tmp_path / SUPERSEDED).write_bytes((tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)[0])
    run = securebench.read_run(tmp_path)
    assert [record.sequence for record in run.superseded()] == [0]
    after = run.summary()
    assert after.usage.input_tokens == 2001
    assert (after.usage, after.total) == (before.usage, before.total)


def test_trials_and_tags(tmp_path: Path) -> None:
    """A trial is found by its task and its number. A selection counts tasks, not trials."""
    head = synthetic.header(4, pack_tasks=3, trials=2)
    trials = [synthetic.record(task, trial=trial, tags=("easy",)) for trial in (1, 2) for task in (0, 1)]
    synthetic.write_run(tmp_path, trials, head)
    run = securebench.read_run(tmp_path)
    assert [(record.trial, record.tags) for record in run.records()] == [(n, ("easy",)) for n in (1, 1, 2, 2)]
    assert run.find("made-up/task-00001", trial=2).sequence == 3
    assert run.planned == 4
    assert run.selection is not None
    assert run.selection.describe() == "2 of 3 tasks, not the whole benchmark"


def test_a_run_that_the_version_before_wrote() -> None:
    """A run directory that SecureBench wrote in format 2 is read with its candidates."""
    run = securebench.read_run(Path(__file__).parent / "version_2_run")
    records = {record.task_id: record for record in run.records()}
    assert {name: record.passed for name, record in records.items()} == {
        "older/right": True,
        "older/wrong": False,
        "older/files": True,
    }
    assert all((record.trial, record.tags) == (1, ()) for record in records.values())
    assert run.candidate(records["older/right"]).text == "Answer: B\n"
    assert "out.txt" in {file.path for file in run.candidate(records["older/files"]).files}
    summary = run.summary()
    assert (summary.ending, summary.total.planned, summary.passed, run.trials) == (RunEnd.FINISHED, 3, 2, 1)


def test_a_run_that_version_3_wrote() -> None:
    """A run directory that SecureBench wrote in format 3 is read with its trials and candidates."""
    run = securebench.read_run(Path(__file__).parent / "version_3_run")
    records = {record.id: record for record in run.records()}
    assert {(name, trial): record.passed for (name, trial), record in records.items()} == {
        (name, trial): passed
        for name, passed in (("older/right", True), ("older/wrong", False), ("older/files", True))
        for trial in (1, 2)
    }
    assert records[TrialId("older/right", 2)].tags == ("easy",)
    assert "out.txt" in {file.path for file in run.candidate(records[TrialId("older/files", 2)]).files}
    summary = run.summary()
    assert (summary.ending, summary.total.planned, summary.passed, run.trials) == (RunEnd.FINISHED, 6, 4, 2)


@pytest.mark.parametrize(
    ("surplus", "problem"),
    [
        (synthetic.record(0, trial=3), "trial '3' of task 'made-up/task-00000' was not planned"),
        (synthetic.record(2), "trial '1' of task 'made-up/task-00002' was not planned"),
    ],
)
def test_records_that_were_not_planned_are_refused(tmp_path: Path, surplus: TaskRecord, problem: str) -> None:
    """A record of a trial that was not planned is refused: added passes would raise the pass rate."""
    given = [synthetic.record(0), synthetic.record(1), surplus]
    synthetic.write_run(tmp_path, given, synthetic.header(4, trials=2), closed=False)
    with pytest.raises(ConfigError, match=problem):
        list(securebench.read_run(tmp_path).records())


def test_sizes_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    """A header with contradictory sizes is refused: it could hide trials that have not run."""
    head = synthetic.header(4, trials=2)
    synthetic.write_run(tmp_path, 1, head)
    replace(head, information={**head.information, "planned": 1}).write(tmp_path)
    with pytest.raises(ConfigError, match="is not 'trials' times 'planned_tasks'"):
        securebench.read_run(tmp_path).summary()


def test_a_run_of_the_version_before(tmp_path: Path) -> None:
    """Records of format 2 are read as first trials without tags.

    If the header does not list the planned families, trials that have not run are counted in the family ``unknown``.
    """
    synthetic.write_run(tmp_path, 2, synthetic.header(2, pack_tasks=3))
    lines = [json.loads(line) for line in (tmp_path / JOURNAL).read_bytes().splitlines()]
    newer = {"previous", "trial", "tags"}
    older = [{**{k: v for k, v in line.items() if k not in newer}, "record_version": 2} for line in lines]
    (tmp_path / JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in older))
    head = json.loads((tmp_path / HEADER).read_text())
    del head["decisive"]["trials"], head["information"]["planned_tasks"], head["closing"]
    (tmp_path / HEADER).write_text(json.dumps({**head, "header_version": 2}))
    run = securebench.read_run(tmp_path)
    assert [(record.trial, record.tags) for record in run.records()] == [(1, ()), (1, ())]
    assert run.selection is not None
    assert (run.selection.planned, run.selection.tasks) == (2, 3)
    del head["information"]["planned_families"]
    (tmp_path / HEADER).write_text(json.dumps({**head, "header_version": 2} | {"information": {"planned": 3}}))
    families = securebench.read_run(tmp_path).summary().families
    assert families["unknown"].not_run == 1


def test_find_and_its_suggestions(tmp_path: Path) -> None:
    """A task is found by its id. The error for a wrong id suggests similar ids, with control characters escaped."""
    hostile = synthetic.record(3, task_id="made-up/\x1b[31mred\u202e")
    run = written(tmp_path, *(synthetic.record(number) for number in range(3)), hostile)
    assert run.find("made-up/task-00001").sequence == 1
    for wanted, hint in (
        ("TASK-00002", "did you mean 'made-up/task-00002'?"),
        ("made-up/taks-00002", "'made-up/task-00002' or "),
        ("red", r"did you mean 'made-up/\\x1b[31mred\\u202e'?"),
        ("quite different", "securebench show DIR"),
    ):
        with pytest.raises(ConfigError) as caught:
            run.find(wanted)
        assert caught.value.code == "task-unknown"
        assert hint in caught.value.hint
    with pytest.raises(ConfigError, match="trial 2") as caught:
        run.find("made-up/task-00001", trial=2)
    assert caught.value.hint == "its recorded trials: 1"


@pytest.mark.parametrize(
    ("damage", "message", "line"),
    [
        (lambda lines: [lines[0], b"\n", *lines[1:]], "invalid record", 2),
        (lambda lines: [lines[0], lines[1][:-20] + b"\n", lines[2]], "invalid record", 2),
        (lambda lines: [lines[0], lines[0], *lines[1:]], "order of their sequence", 2),
        (lambda lines: [lines[1], lines[0], lines[2]], "sequence number 0, not", 1),
        (lambda lines: [lines[0], lines[2]], "sequence number 1, not", 2),
        (lambda lines: [lines[0].replace(b'"short_answer"', b"[" * 70 + b"]" * 70), *lines[1:]], "64 levels", 1),
        (lambda lines: [lines[0].replace(b'"short_answer"', b"[" * 5000 + b"]" * 5000), *lines[1:]], "invalid", 1),
        (lambda lines: [lines[0].replace(b"{", b'{"stranger": 1, ', 1), *lines[1:]], "unknown key 'stranger'", 1),
        (lambda lines: [lines[0].replace(b'"passed": true', b'"passed": 1'), *lines[1:]], "contradicts", 1),
        (lambda lines: [lines[0].replace(b'"thinking', b'[], "x": "thinking'), *lines[1:]], "invalid record", 1),
    ],
)
def test_damage_is_located(
    tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]], message: str, line: int
) -> None:
    """The error for a damaged journal names the file and the line."""
    run = written(tmp_path, *(synthetic.record(number) for number in range(3)))
    change_lines(tmp_path / JOURNAL, damage)
    with pytest.raises(ConfigError, match=message) as caught:
        list(run.records())
    assert caught.value.code == ("chain-broken" if "sequence" in message else "journal-damaged")
    (problem,) = caught.value.problems
    assert problem.location is not None
    assert (problem.location.file, problem.location.line) == (str(tmp_path / JOURNAL), line)


def test_records_of_another_run_are_refused(tmp_path: Path) -> None:
    """A record with the id of another run is refused."""
    run = written(tmp_path / "one", synthetic.record(0))
    synthetic.write_run(tmp_path / "two", [synthetic.record(0, run_id="other")])
    shutil.copy(tmp_path / "two" / JOURNAL, tmp_path / "one" / JOURNAL)
    with pytest.raises(ConfigError, match="another run: expected run_id 'synthetic', got 'other'") as caught:
        list(run.records())
    assert caught.value.code == "record-foreign"


@pytest.mark.parametrize("name", [HEADER, JOURNAL, SUPERSEDED])
@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, name: str, kind: str) -> None:
    """Only regular files are read: a link could lead out of the directory, and a FIFO could block the reader."""
    synthetic.write_run(tmp_path / "run", 1)
    (tmp_path / "secret").write_text("root:x:0:0\n")
    path = tmp_path / "run" / name
    path.unlink(missing_ok=True)
    match kind:
        case "link":
            path.symlink_to(tmp_path / "secret")
        case "fifo":
            os.mkfifo(path)
        case _:
            path.mkdir()
    with pytest.raises(ConfigError) as caught:
        list(securebench.read_run(tmp_path / "run").records())
    assert caught.value.code == "file-not-regular"
    assert "root:x" not in str(caught.value)


def test_huge_lines_are_refused_before_they_are_read(tmp_path: Path) -> None:
    """A line longer than any record, here in a sparse file of a terabyte, is refused before all of it is read."""
    run = written(tmp_path, synthetic.record(0))
    os.truncate(tmp_path / JOURNAL, 2**40)
    with pytest.raises(ConfigError, match=f"longer than {MAX_LINE} bytes"):
        list(run.records())


def test_many_small_values_are_refused_before_they_are_made(tmp_path: Path) -> None:
    """A line with too many values is refused before they are created: they could take 30 times its size in memory."""
    run = written(tmp_path, synthetic.record(0))
    many = b"[" + b"[]," * 2_000_000 + b"[]]"
    change_lines(tmp_path / JOURNAL, lambda lines: [lines[0].replace(b'"thinking...', many + b', "x": "')])
    tracemalloc.start()
    with pytest.raises(ConfigError, match="more than 500000 values"):
        list(run.records())
    assert tracemalloc.get_traced_memory()[1] < 50 * 2**20
    tracemalloc.stop()


def test_long_texts_are_read(tmp_path: Path) -> None:
    """A long text with many brackets and quotes counts as one value and is read."""
    text = 'say "[{,\\' * 200_000
    run = written(tmp_path, synthetic.record(0, candidate=synthetic.sealed_text(tmp_path, text)))
    assert next(run.records()).candidate_text == text


def test_false_reports_are_left_out(tmp_path: Path) -> None:
    """Impossible times and usage in a record are read as missing."""
    false = {
        "durations": {"total": 10**400},
        "started_at": "yesterday",
        "usage": {"input_tokens": -5, "relay": {"models": {"one": 1, "two": 2}}},
        "spent": {"cost_usd": "free"},
    }
    (record,) = with_raw(tmp_path, provenance=false).records()
    assert (record.duration_seconds, record.started_at, record.usage, record.spent) == (None, None, None, None)
    assert record.models == ("one", "two")


class TestCandidates:
    """Reading sealed candidates."""

    def test_text(self, tmp_path: Path) -> None:
        """The sealed text is complete even if the text in the record is redacted."""
        fields = synthetic.sealed_text(tmp_path, "the whole answer", "the <redacted> answer")
        run = written(tmp_path, synthetic.record(0, candidate=fields))
        (record,) = run.records()
        assert (record.candidate_text, record.candidate_redacted) == ("the <redacted> answer", True)
        sealed = run.candidate(record)
        assert (sealed.kind, sealed.text, sealed.size) == (CandidateKind.TEXT, "the whole answer", 16)

    def test_workspace(self, tmp_path: Path) -> None:
        """The files of a sealed workspace are listed with their paths, sizes, executable bits and link targets."""
        tree = tmp_path / "tree"
        (tree / "bin").mkdir(parents=True)
        (tree / "bin" / "tool").write_text("#!/bin/sh\n")
        (tree / "bin" / "tool").chmod(0o755)
        (tree / "evil\x1b[2J").write_text("x")
        (tree / "passwd").symlink_to("/etc/passwd")
        run = written(tmp_path / "run", synthetic.record(0, candidate=synthetic.sealed_tree(tmp_path / "run", tree)))
        (record,) = run.records()
        files = {file.path: file for file in run.candidate(record).files}
        assert files["bin"].is_directory
        assert (files["bin/tool"].executable, files["bin/tool"].size) == (True, 10)
        assert files["passwd"].link == "/etc/passwd"
        assert "evil\x1b[2J" in files

    def test_patch(self, tmp_path: Path) -> None:
        """The files of a patch are listed, including removed files."""
        delta = {b"a/new.py": FileVersion(b"x = 1\n"), b"a/old.py": None}
        artifact = CandidateStore(tmp_path / CANDIDATES).seal_patch(delta, "diff --git ...")
        run = written(tmp_path, synthetic.record(0, candidate=candidate_fields(artifact, artifact.text)))
        (record,) = run.records()
        assert record.candidate_text == "diff --git ..."
        files = {file.path: file.removed for file in run.candidate(record).files}
        assert files == {"a/old.py": True, "a/new.py": False}

    @pytest.mark.parametrize("how", ["altered", "gone", "link", "folder", "fifo", "endless"])
    def test_what_was_touched_is_refused(self, tmp_path: Path, how: str) -> None:
        """A sealed candidate that was altered, removed or replaced is refused, and links are not followed."""
        directory, outside = tmp_path / "run", tmp_path / "outside"
        fields = synthetic.sealed_text(directory, "answer")
        run = written(directory, synthetic.record(0, candidate=fields))
        (record,) = run.records()
        store = directory / CANDIDATES
        sealed = store / str(fields["candidate_digest"])
        outside.mkdir()
        shutil.copy(sealed, outside)
        match how:
            case "folder":
                shutil.rmtree(store)
                store.symlink_to(outside)
            case "altered":
                sealed.chmod(0o644)
                sealed.write_text("another")
            case _:
                sealed.unlink()
        match how:
            case "link":
                sealed.symlink_to(outside / sealed.name)
            case "fifo":
                os.mkfifo(sealed)
            case "endless":
                sealed.touch()
                os.truncate(sealed, 2**40)
        with pytest.raises(ConfigError) as caught:
            run.candidate(record)
        code = {"altered": "candidate-altered", "endless": "candidate-altered", "gone": "candidate-not-stored"}
        assert caught.value.code == code.get(how, "file-not-regular")

    def test_no_candidate(self, tmp_path: Path) -> None:
        """Reading the candidate of a record without one is an error."""
        run = written(tmp_path, synthetic.record(0, candidate=candidate_fields(None, None)))
        with pytest.raises(ConfigError, match="no sealed candidate"):
            run.candidate(next(run.records()))


class TestTrajectories:
    """Reading trajectories: what agents report about their steps."""

    def test_steps(self, tmp_path: Path) -> None:
        """Steps are read in order. A record without a trajectory has none."""
        given: list[JsonValue] = [
            {"step": 1, "kind": "message", "text": "hello"},
            {"step": 2, "kind": "command", "command": "ls"},
        ]
        described = synthetic.trajectory(tmp_path, "made-up/task-00000", *given)
        run = written(tmp_path, synthetic.record(0, provenance=described), synthetic.record(1))
        one, two = run.records()
        assert list(run.trajectory(one)) == given
        assert list(run.trajectory(two)) == []

    @pytest.mark.parametrize(
        "path",
        [
            "/etc/passwd",
            "../../secret.jsonl",
            "trajectories/../../secret.jsonl",
            "trajectories/..",
            "trajectories",
            "",
            "other/a.jsonl",
            "trajectories/a\0b",
            7,
        ],
    )
    def test_a_path_does_not_leave_the_directory(self, tmp_path: Path, path: Any) -> None:
        """Whatever path a record names, only files in ``trajectories/`` are read."""
        (tmp_path / "secret.jsonl").write_text('"secret"\n')
        described = {"trajectory": {"path": path, "sha256": "0" * 64}}
        run = written(tmp_path / "run", synthetic.record(0, provenance=described))
        (tmp_path / "run" / TRAJECTORIES).mkdir()
        with pytest.raises(ConfigError) as caught:
            list(run.trajectory(next(run.records())))
        assert caught.value.code in {"trajectory-altered", "file-not-regular"}

    @pytest.mark.parametrize("how", ["altered", "link", "folder", "fifo", "huge", "gone"])
    def test_what_was_touched_is_refused(self, tmp_path: Path, how: str) -> None:
        """A trajectory file that was altered, removed or replaced is refused, and links are not followed."""
        described: Any = synthetic.trajectory(tmp_path, "made-up/task-00000", {"kind": "message"})
        run = written(tmp_path, synthetic.record(0, provenance=described))
        file = tmp_path / described["trajectory"]["path"]
        match how:
            case "altered":
                file.write_text('{"kind": "other"}\n')
            case "huge":
                os.truncate(file, 2**40)
            case "link":
                shutil.copy(file, tmp_path / "copy")
                file.unlink()
                file.symlink_to(tmp_path / "copy")
            case "folder":
                file.parent.rename(tmp_path / "elsewhere")
                file.parent.symlink_to(tmp_path / "elsewhere")
            case "fifo":
                file.unlink()
                os.mkfifo(file)
            case _:
                file.unlink()
        with pytest.raises(ConfigError) as caught:
            list(run.trajectory(next(run.records())))
        codes = {"altered": "trajectory-altered", "huge": "trajectory-altered", "gone": "file-missing"}
        assert caught.value.code == codes.get(how, "file-not-regular")

    @pytest.mark.parametrize("line", [b"not json", b"[" * 100 + b"]" * 100, b"[" * 9000 + b"]" * 9000])
    def test_unfit_steps_are_refused(self, tmp_path: Path, line: bytes) -> None:
        """Steps that are invalid JSON or nested too deeply are refused, although the file has the recorded digest."""
        (tmp_path / TRAJECTORIES).mkdir()
        (tmp_path / TRAJECTORIES / "a.jsonl").write_bytes(b"{}\n" + line + b"\n")
        digest = hashlib.sha256(b"{}\n" + line + b"\n").hexdigest()
        described = {"trajectory": {"path": "trajectories/a.jsonl", "sha256": digest}}
        run = written(tmp_path, synthetic.record(0, provenance=described))
        with pytest.raises(ConfigError, match=r"not valid JSON|nested|levels") as caught:
            list(run.trajectory(next(run.records())))
        assert str(caught.value).startswith(f"{tmp_path}/trajectories/a.jsonl:2: ")


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": 1},
        {"benchmark": "x"},
        {"harness": {}},
        {"pack": {"tasks": -1}},
        {"pack": {"tasks": True}},
    ],
)
def test_a_false_header_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """A header is refused if a value that readers need is invalid."""
    synthetic.header(1, **change).write(tmp_path)
    with pytest.raises(ConfigError) as caught:
        securebench.read_run(tmp_path)
    assert caught.value.code == "run-header-damaged"


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames(tmp_path: Path, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pandas and with polars, a data frame has all columns, with types that do not depend on the values."""
    module = pytest.importorskip(library)
    monkeypatch.setitem(sys.modules, "pandas" if library == "polars" else "polars", None)
    run = written(tmp_path, synthetic.record(0), synthetic.record(1, STATUS.FAILED), synthetic.record(2, STATUS.ERROR))
    frame = run.to_dataframe()
    assert isinstance(frame, module.DataFrame)
    assert frame.shape == (3, 22)
    assert list(frame["task_id"]) == [f"made-up/task-{number:05}" for number in range(3)]
    assert float(frame["passed"].mean()) == 0.5
    assert int(frame["input_tokens"].sum()) == 3003
    synthetic.forge(tmp_path, list.clear)
    empty = securebench.read_run(tmp_path).to_dataframe()
    assert empty.shape == (0, 22)
    assert list(map(str, frame.dtypes)) == list(map(str, empty.dtypes))


def test_data_frames_need_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pandas and polars, the error has the command that installs pandas."""
    for library in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError, match="pip install pandas") as caught:
        written(tmp_path, synthetic.record(0)).to_dataframe()
    assert caught.value.code == "dataframe-library-missing"


def test_memory_is_flat(tmp_path: Path) -> None:
    """Records are not kept in memory while a run is read."""
    run = securebench.read_run(synthetic.write_run(tmp_path, MANY))
    tracemalloc.start()
    try:
        assert sum(1 for _ in run.records()) == MANY
        assert tracemalloc.get_traced_memory()[1] < 3 * 2**20
    finally:
        tracemalloc.stop()
