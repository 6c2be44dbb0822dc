"""If a file of a run directory was truncated, the run is refused, or ends with the records of a clean run."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from fault_hooks import hooked
from run_fakes import FakeProducer
from securebench.errors import ConfigError, ImageError
from securebench.faults import FaultPoint
from securebench.results.run_directory.files import JOURNAL, SUPERSEDED
from securebench.results.run_directory.header import HEADER
from tester_run.running import comparables, make_parts, pin_framework, run, write_run

if TYPE_CHECKING:
    from pathlib import Path

TASKS = 3


@pytest.fixture(autouse=True)
def _one_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    pin_framework(monkeypatch.setattr)


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """Return the root of a run that was killed before its last trial, and that has a superseded record.

    Its run.json is not closed.
    """
    root = tmp_path / "unfinished"
    root.mkdir()
    write_run(root, TASKS)

    def first_fails(_: int, view: Any, __: object) -> None:
        if view.task_id == "pack/task-0":
            raise ImageError("gone")

    run(root, limit=2, parts=make_parts(FakeProducer(hook=first_fails)))

    def end(point: FaultPoint, _subject: str) -> None:
        if point is FaultPoint.RECORD_WRITTEN:
            raise KeyboardInterrupt

    with hooked(end), pytest.raises(KeyboardInterrupt):
        run(root, resume=True)
    assert (root / "results" / SUPERSEDED).exists()
    return root


@pytest.fixture
def clean(tmp_path: Path) -> list[dict[str, Any]]:
    """Return the comparable records of a clean run."""
    root = tmp_path / "clean"
    root.mkdir()
    write_run(root, TASKS)
    run(root)
    return comparables(root)


def _cuts(size: int, *, every: bool) -> list[int]:
    """Return the lengths to which to cut a file of ``size`` bytes: all, or a sample with the three largest."""
    return list(range(size)) if every else [*range(0, size, 211), *range(max(0, size - 3), size)]


def _try(root: Path, name: str, end: int, clean: list[dict[str, Any]]) -> bool:
    """In a copy of the run, cut the file ``name`` to ``end`` bytes. Return whether the copy could be resumed."""
    copy = root.with_name("cut")
    shutil.copytree(root, copy)
    path = copy / "results" / name
    path.write_bytes(path.read_bytes()[:end])
    before = {path.name: path.read_bytes() for path in (copy / "results").iterdir() if path.is_file()}
    try:
        run(copy, resume=True)
    except ConfigError:
        after = {path.name: path.read_bytes() for path in (copy / "results").iterdir() if path.is_file()}
        assert after == before
        return False
    else:
        assert comparables(copy) == clean
        return True
    finally:
        shutil.rmtree(copy)


@pytest.mark.parametrize("name", [JOURNAL, SUPERSEDED, HEADER])
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_cut_while_unfinished(unfinished: Path, clean: list[dict[str, Any]], name: str, every: bool) -> None:
    """Wherever the journal is cut, the run can be resumed from its whole records. Other truncated files are refused.

    The others are replaced as a whole, so a crash cannot truncate them.
    """
    size = (unfinished / "results" / name).stat().st_size
    resumed = [_try(unfinished, name, end, clean) for end in _cuts(size, every=every)]
    assert set(resumed) == {name == JOURNAL}


@pytest.mark.parametrize("name", [JOURNAL, SUPERSEDED, HEADER])
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_cut_after_the_end(unfinished: Path, clean: list[dict[str, Any]], name: str, every: bool) -> None:
    """After a run has ended, a truncated file is refused, unless only the last newline of the journal is missing."""
    run(unfinished, resume=True)
    size = (unfinished / "results" / name).stat().st_size
    resumed = [end for end in _cuts(size, every=every) if _try(unfinished, name, end, clean)]
    assert resumed == ([size - 1] if name == JOURNAL else [])
