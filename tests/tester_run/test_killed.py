"""A run that is killed at any point and resumed has the records of a run that was not killed (L01)."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from audit.run.made_runs import failed, verify
from run_fakes import FakeProducer
from securebench.results.run_directory.files import JOURNAL
from tester_run import killed_run
from tester_run.running import comparables, make_parts, pin_framework, records, run, write_run

if TYPE_CHECKING:
    from pathlib import Path

TASKS = 4

# Each point at which a run is killed, and the least number of times that a run of four tasks reaches it.
POINTS = {
    "run.prepared": 1,
    "run.header-written": 1,
    "run.task-started": TASKS,
    "run.agent-done": 2,
    "run.verdict-done": 2,
    "run.record-ready": TASKS,
    "run.record-written": TASKS,
    "run.done": 1,
    "write": TASKS,
    "half-write": TASKS,
    "fsync": 15,
    "replace": 5,
}
DEATHS = [(point, number) for point, times in POINTS.items() for number in range(1, times + 1)]


@pytest.fixture(autouse=True)
def _one_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    pin_framework(monkeypatch.setattr)


_PROCESSES = multiprocessing.get_context("forkserver")  # imports the framework once, for all processes
_PROCESSES.set_forkserver_preload(["tester_run.killed_run"])


def killed(root: Path, point: str, number: int, **options: Any) -> None:
    """Run in a process that is killed when it reaches ``point`` for the ``number``-th time."""
    process = _PROCESSES.Process(target=killed_run.main, args=(root, point, number), kwargs=options)
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):  # otherwise, Python 3.11 preloads nothing
        process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL, f"{point} {number} was never reached"


@pytest.fixture(scope="module")
def _clean_runs() -> list[list[dict[str, object]]]:
    """Return an empty list. The fixture ``clean`` makes a clean run for the first test, and adds its records."""
    return []


@pytest.fixture
def clean(
    _clean_runs: list[list[dict[str, object]]], _one_framework: None, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, object]]:
    """Return the comparable records of a run that was not killed."""
    if not _clean_runs:
        root = tmp_path_factory.mktemp("clean")
        write_run(root, TASKS)
        run(root)
        _clean_runs.append(comparables(root))
    return _clean_runs[0]


def journal_lines(root: Path) -> list[str]:
    """Return the complete lines of the journal, without an incomplete last line."""
    path = root / "results" / JOURNAL
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [line.decode() for line in lines if line.endswith(b"\n")]


@pytest.mark.parametrize(("point", "number"), DEATHS, ids=str)
def test_killed_and_resumed(tmp_path: Path, clean: list[dict[str, object]], point: str, number: int) -> None:
    """A killed run keeps the records of passed tasks, and once resumed it has the records of a clean run (L01, L02)."""
    root = tmp_path / "killed"
    root.mkdir()
    write_run(root, TASKS)
    killed(root, point, number)
    before = [json.loads(line) for line in journal_lines(root)]
    summary = run(root, resume=True, parts=make_parts(FakeProducer(trajectory="{}")))
    assert summary.passed == TASKS
    kept = [record for record in before if record["verification_status"] == "passed"]
    assert [record for record in records(root) if record in kept] == kept
    assert comparables(root) == clean
    assert not list((root / "results").glob(".*"))
    paths = {record["provenance"]["trajectory"]["path"] for record in records(root)}
    assert paths == {f"trajectories/{path.name}" for path in (root / "results" / "trajectories").iterdir()}
    assert len(paths) == TASKS
    assert failed(verify(root / "results", with_pack=True)) == {}


@pytest.mark.parametrize(
    ("point", "number"),
    [("run.task-started", 6), ("run.agent-done", 3), ("half-write", 5), ("run.record-written", 4), ("fsync", 9)],
)
def test_killed_with_several_trials(tmp_path: Path, point: str, number: int) -> None:
    """A run of several trials that is killed and resumed has the records of a run that was not killed."""
    roots = [tmp_path / "killed", tmp_path / "clean"]
    for root in roots:
        root.mkdir()
        write_run(root, TASKS)
    killed(roots[0], point, number, trials=2)
    for root in roots:
        assert run(root, resume=True, trials=2, parts=make_parts(FakeProducer(trajectory="{}"))).passed == 2 * TASKS
    assert comparables(roots[0]) == comparables(roots[1])
    assert len({record["provenance"]["trajectory"]["path"] for record in records(roots[0])}) == 2 * TASKS


@pytest.mark.parametrize(
    ("point", "number"),
    [
        *(("fsync", number) for number in range(1, 12, 2)),
        *(pytest.param("fsync", number, marks=pytest.mark.long) for number in range(2, 12, 2)),
        *(("replace", number) for number in range(1, 4)),
    ],
)
def test_killed_while_resuming(tmp_path: Path, clean: list[dict[str, object]], point: str, number: int) -> None:
    """If a resumption is killed while it supersedes errors, no record is lost or duplicated (L01, L06)."""
    root = tmp_path / "killed"
    root.mkdir()
    write_run(root, TASKS)
    killed(root, "run.done", 1)
    assert [record["verification_status"] for record in records(root)].count("error") == 2
    killed(root, point, number, resume=True)
    assert run(root, resume=True).passed == TASKS
    assert comparables(root) == clean
    aside = (root / "results" / "superseded.jsonl").read_bytes().splitlines()
    assert sorted(json.loads(line)["task_id"] for line in aside) == ["pack/task-1", "pack/task-2"]
    assert [r["provenance"]["attempt"] for r in sorted(records(root), key=lambda r: r["task_id"])] == [1, 2, 2, 1]
    assert failed(verify(root / "results", with_pack=True)) == {}
