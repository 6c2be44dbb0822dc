"""Runs that a power failure interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from power_loss.scenarios import TRAJECTORY
from run_fakes import FakeProducer
from securebench.results.records.chain import line_hash
from securebench.results.run_directory.files import JOURNAL, SUPERSEDED
from tester_run.running import comparables, make_parts, pin_framework, run, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from power_loss.conftest import Survive
    from power_loss.disk import State

TASKS = 4


def _records(root: Path) -> set[str]:
    """Return the hashes of all lines in the journal and in ``superseded.jsonl``."""
    paths = [root / "results" / name for name in (JOURNAL, SUPERSEDED)]
    return {line_hash(line) for path in paths if path.exists() for line in path.read_bytes().splitlines()}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_run_can_be_resumed(root: Path, survive: Survive, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power failure, each stored record is there, and the resumed run has the records of a clean run."""
    pin_framework(monkeypatch.setattr)
    clean = root.with_name("clean")
    clean.mkdir()
    for directory in (root, clean):
        write_run(directory, TASKS)
    parts = make_parts(FakeProducer(trajectory=TRAJECTORY))
    assert run(clean, parts=parts).passed == TASKS
    expected = comparables(clean)

    def check(state: State) -> None:
        stored = {name.removeprefix("record/") for name in state.promises if name.startswith("record/")}
        assert stored <= _records(root)
        assert run(root, parts=parts, resume=True).passed == TASKS
        assert comparables(root) == expected

    survive("new_run", "resumed_run", check=check, at_least=1000)
