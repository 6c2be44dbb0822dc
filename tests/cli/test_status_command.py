"""``securebench status``: the progress of a run, read from its files."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from click.testing import CliRunner
from rich.console import Console

import synthetic_run as synthetic
from bounds import processor_seconds
from cli.test_show_command import HOSTILE, RAW
from securebench import read_run
from securebench.cli import status_command
from securebench.cli.status_command import command
from securebench.errors import ConfigError
from securebench.progress import RunStart, TaskDone, TaskStart, VerifierStart
from securebench.results.records.record import VerificationStatus
from securebench.results.run_directory.lock import RunLock
from securebench.results.run_directory.running import RUNNING, RunningTasks, read_running
from securebench.results.snapshot import run_snapshot, watch_run
from tester_run.running import write_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

    from securebench.results.run_directory.journal import Journal

STATUS = VerificationStatus
TESTS = Path(__file__).parents[1]
START = RunStart(
    run_id="r", benchmark_id="b", agent="a", tasks=3, trials=1, pack_tasks=3, to_do=3, workers=2, output_dir="results"
)


def invoke(*arguments: object) -> Result:
    """Run the command. Its exceptions are not caught."""
    return CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)


def begun(task_id: str, trial: int = 1) -> TaskStart:
    """Return the event for the start of a task."""
    return TaskStart(task_id=task_id, trial=trial, family="f", attempt=1)


def done(task_id: str) -> TaskDone:
    """Return the event for the end of a task."""
    how: dict[str, Any] = dict.fromkeys(("reason", "assurance"))
    return TaskDone(task_id=task_id, trial=1, family="f", status="passed", message="", agent_stderr="", **how)


class TestRunningTasks:
    """``running.json``, the file that lists the tasks in progress."""

    def test_starts_and_ends(self, tmp_path: Path) -> None:
        """A task is listed with its phase until it ends. The file is removed when the run ends."""
        with RunningTasks(tmp_path) as running:
            for event in (START, begun("a"), begun("a", 2), begun("b")):
                running(event)
            running(VerifierStart(task_id="a", trial=1, verifier="v", version="1"))
            running(done("b"))
            session = read_running(tmp_path)
            assert session is not None
            assert [(task.task_id, task.trial, task.phase) for task in session.tasks] == [
                ("a", 1, "verifier"),
                ("a", 2, "agent"),
            ]
            assert abs((datetime.now(UTC) - session.since).total_seconds()) < 10
        assert list(tmp_path.iterdir()) == []

    def test_many_changes_are_written_together(self, tmp_path: Path) -> None:
        """Changes in quick succession share a write of the file, which soon contains all of them."""
        with RunningTasks(tmp_path, 0.05) as running, mock.patch.object(Path, "replace", autospec=True) as replaced:
            replaced.side_effect = os.replace
            for number in range(100):
                running(begun(str(number)))
            deadline = time.monotonic() + 10
            while len(getattr(read_running(tmp_path), "tasks", ())) < 100 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert replaced.call_count < 50
            assert len(getattr(read_running(tmp_path), "tasks", ())) == 100
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "[]",
            '{"since": "2026-01-01T00:00:00Z", "tasks": 7}',
            '{"since": "2026-01-01T00:00:00Z", "tasks": [{"task_id": 7, "trial": 1, "phase": "agent", "since": "x"}]}',
            '{"since": 7, "tasks": []}',
            "[" * 9000,
            '{"since": "' + "x" * 5_000_000,
        ],
    )
    def test_what_is_unfit_is_ignored(self, tmp_path: Path, content: str) -> None:
        """A ``running.json`` with malformed or unexpected content is ignored."""
        (tmp_path / RUNNING).write_text(content)
        assert read_running(tmp_path) is None

    def test_a_link_is_not_followed(self, tmp_path: Path) -> None:
        """A ``running.json`` that is a symbolic link is not read."""
        (tmp_path / "other").write_text('{"since": "2026-01-01T00:00:00Z", "tasks": []}')
        (tmp_path / RUNNING).symlink_to("other")
        assert read_running(tmp_path) is None


class TestSnapshots:
    """The state and progress of a run, read from its files."""

    @pytest.fixture
    def active(self, tmp_path: Path) -> Iterator[tuple[Path, Journal, RunningTasks]]:
        """Yield a run of six tasks that this process executes, with two old records. One of them is an error."""
        old = [synthetic.record(0), synthetic.record(1, STATUS.ERROR)]
        synthetic.write_run(tmp_path, old, synthetic.header(6, pack_tasks=10))
        with RunLock(tmp_path), synthetic.SyntheticJournal(tmp_path) as journal, RunningTasks(tmp_path) as running:
            running(START)
            yield tmp_path, journal, running

    def test_rate_and_time_left(self, active: tuple[Path, Journal, RunningTasks]) -> None:
        """The rate includes only trials that ended after this process began to execute the run."""
        directory, journal, running = active
        now = datetime.now(UTC)
        snapshot = run_snapshot(read_run(directory), now)
        assert (snapshot.state.value, snapshot.done, snapshot.rate, snapshot.seconds_left) == ("running", 2, None, None)
        for number in (2, 3):
            started = f"{now:%Y-%m-%dT%H:%M:%SZ}"
            journal.append(synthetic.record(number, provenance={"started_at": started, "durations": {"total": 2}}))
        running(begun("made-up/task-00004"))
        snapshot = run_snapshot(read_run(directory), now + timedelta(seconds=60))
        assert (snapshot.done, snapshot.counts.passed, snapshot.counts.errors, snapshot.counts.not_run) == (4, 3, 1, 2)
        assert snapshot.rate == pytest.approx(2, rel=0.05)
        assert snapshot.seconds_left == pytest.approx(60, rel=0.05)
        assert [task.task_id for task in snapshot.running] == ["made-up/task-00004"]

    def test_what_is_shown(self, active: tuple[Path, Journal, RunningTasks]) -> None:
        """Counts, running tasks, selection and usage are shown. Control characters in ids are escaped."""
        directory, _, running = active
        running(begun(f"made-up/{HOSTILE}"))
        shown = invoke(directory).stdout
        assert shown.startswith("made-up, run synthetic: running\nAgent: command\nSelection: 6 of 10 tasks")
        assert "\nDone: 2 of 6 (33%): 1 passed, 0 failed, 1 error\nRunning: 1\n  agent       0:0" in shown
        assert "\nLeft: 4\n" in shown
        assert "tokens in" in shown
        assert not RAW.search(shown)
        found = json.loads(invoke(directory, "--json").stdout)
        assert (found["state"], found["done"], found["left"], len(found["running"])) == ("running", 2, 4, 1)

    def test_a_run_that_was_killed(self, tmp_path: Path) -> None:
        """An unfinished run that no process executes is interrupted. Tasks in ``running.json`` are then not shown."""
        synthetic.write_run(tmp_path, 3, synthetic.header(6))
        RunningTasks(tmp_path)(begun("made-up/task-00004"))
        shown = invoke(tmp_path)
        assert shown.exit_code == 0
        assert "synthetic: interrupted\n" in shown.stdout
        assert "Running" not in shown.stdout
        assert "Without a verdict: 3. To run them, repeat the 'securebench run' command with --resume" in shown.stdout

    def test_a_finished_run(self, tmp_path: Path) -> None:
        """A run in which every task has a verdict is shown as finished, without tasks left."""
        synthetic.write_run(tmp_path, [synthetic.record(0), synthetic.record(1)])
        shown = invoke(tmp_path).stdout
        assert "synthetic: finished\n" in shown
        assert "Done: 2 of 2 (100%): 2 passed, 0 failed, 0 errors\n" in shown
        assert "Started 2026-11-22 00:00:00 UTC, finished 2026-11-22 00:00:04 UTC" in shown
        assert "left" not in shown

    def test_a_run_of_no_tasks(self, tmp_path: Path) -> None:
        """For a run without tasks, the counts are shown without a percentage."""
        assert "Done: 0 of 0: " in invoke(synthetic.write_run(tmp_path, 0)).stdout

    def test_no_run(self, tmp_path: Path) -> None:
        """A directory without a run is an error."""
        with pytest.raises(ConfigError, match="not a run directory"):
            invoke(tmp_path)


class TestWatching:
    """``securebench status --watch``."""

    @pytest.fixture(autouse=True)
    def _fast(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("securebench.results.snapshot.INTERVAL", 0.01)

    def test_until_the_end(self, tmp_path: Path) -> None:
        """``watch_run`` yields snapshots until the run has ended."""
        synthetic.write_run(tmp_path, [synthetic.record(0)], synthetic.header(2))
        seen = []
        with ExitStack() as lock, synthetic.SyntheticJournal(tmp_path) as journal:
            lock.enter_context(RunLock(tmp_path))
            for snapshot in watch_run(tmp_path):
                seen.append((snapshot.state.value, snapshot.done))
                if len(seen) == 1:
                    journal.append(synthetic.record(1))
                if len(seen) == 2:
                    synthetic.close_run(tmp_path)
                    lock.close()
        assert seen == [("running", 1), ("running", 2), ("finished", 2)]

    @pytest.mark.parametrize(("planned", "code"), [(2, 0), (3, 3)])
    def test_exit_codes_and_lines(self, tmp_path: Path, planned: int, code: int) -> None:
        """In a pipe, each change is one line. The exit code is 0 if every task has a verdict, and 3 otherwise."""
        synthetic.write_run(tmp_path, [synthetic.record(0), synthetic.record(1)], synthetic.header(planned))
        ended = invoke(tmp_path, "--watch")
        assert ended.exit_code == code
        assert ended.stdout.count("\n") == 1
        assert ended.stdout.startswith(f"2 of {planned} (")
        lines = invoke(tmp_path, "--watch", "--json").stdout.splitlines()
        assert [json.loads(line)["done"] for line in lines] == [2]

    def test_a_terminal(self, tmp_path: Path) -> None:
        """On a terminal, the last snapshot is printed after the live display has been erased."""
        synthetic.write_run(tmp_path, 2)
        console = Console(file=io.StringIO(), force_terminal=True, width=100)
        status_command._watch(console, watch_run(tmp_path), as_json=False)
        assert isinstance(console.file, io.StringIO)
        live, erased, rest = console.file.getvalue().rpartition("\x1b[2K")  # erases a line
        assert erased
        assert "2 of 2 (100%)" in live
        assert "2 of 2 (100%)" in rest


def test_a_run_in_another_process(tmp_path: Path) -> None:
    """A run in another process is shown as running, with its third task in progress.

    After the process was killed, the run is shown as interrupted.
    """
    write_run(tmp_path)
    argv = [sys.executable, str(TESTS / "tester_run" / "interrupted_run.py"), str(tmp_path), "hangs"]
    with subprocess.Popen(
        argv, env={"PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}", "PATH": "/usr/bin:/bin"}, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"running\n"
        try:
            deadline = time.monotonic() + 20
            while True:
                found = json.loads(invoke(tmp_path / "results", "--json").stdout)
                if found["done"] == 2 and [task["task_id"] for task in found["running"]] == ["pack/task-2"]:
                    break  # tasks in progress are written with a short delay
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            process.kill()
    assert (found["state"], found["planned"], found["left"]) == ("running", 6, 4)
    (task,) = found["running"]
    assert (task["task_id"], task["trial"], task["phase"]) == ("pack/task-2", 1, "agent")
    assert found["per_minute"] > 0
    assert found["seconds_left"] > 0
    assert (tmp_path / "results" / RUNNING).exists()  # the killed process could not remove it
    found = json.loads(invoke(tmp_path / "results", "--json").stdout)
    assert (found["state"], found["running"], found["per_minute"]) == ("interrupted", [], None)


@pytest.mark.long
def test_ten_thousand_records(tmp_path: Path) -> None:
    """The status of a run with 10,000 records takes little processor time."""
    synthetic.write_run(tmp_path, 10_000, synthetic.header(20_000))
    with processor_seconds(3):
        assert "Done: 10,000 of 20,000" in invoke(tmp_path).stdout
