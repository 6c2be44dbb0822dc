"""Fixtures that record scenarios and check the recovery from power failures, without waiting for the disk."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from power_loss.disk import write_tree
from power_loss.recorder import record
from securebench.images.store import incoming, leases

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from power_loss.disk import State

_PATH = f"{Path(__file__).parents[1]}:{Path(__file__).parents[2] / 'src'}"


class Survive(Protocol):
    """The type of the function that :func:`survive` returns."""

    def __call__(
        self, *scenarios: str, check: Callable[[State], None], ignored: Collection[str] = (), at_least: int
    ) -> None:
        """Run the scenarios and check all states."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the directory in which scenarios run."""
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def survive(root: Path, monkeypatch: pytest.MonkeyPatch) -> Survive:
    """Return a function that runs scenarios, one after the other, and checks every state after a power failure.

    The function writes the files of each state to ``root`` and calls ``check`` with the state. Files with names in
    ``ignored`` are left out. It fails if there are fewer than ``at_least`` states: then the recording or the model of
    the disk misses some.
    """

    def survived(*scenarios: str, check: Callable[[State], None], ignored: Collection[str] = (), at_least: int) -> None:
        commands = [[sys.executable, "-m", "power_loss.scenarios", name, str(root)] for name in scenarios]
        recording = record(root, *commands, environment={"PYTHONPATH": _PATH, "PATH": "/usr/bin:/bin"})
        states = recording.without(ignored).power_failures()
        monkeypatch.setattr(os, "fsync", lambda _: None)
        for module in (incoming, leases):
            monkeypatch.setattr(module, "sync_file_system", lambda _: None)
        for number, state in enumerate(states):
            shutil.rmtree(root)
            root.mkdir()
            write_tree(state.tree, root)
            try:
                check(state)
            except BaseException as error:
                error.add_note(f"state {number} of {len(states)}, with the promises {state.promises}")
                raise
        assert len(states) >= at_least

    return survived
