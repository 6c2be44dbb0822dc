"""Recordings of the scenarios, and recoveries that do not wait for the disk."""

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
    """See :func:`survive`."""

    def __call__(
        self, *scenarios: str, check: Callable[[State], None], ignored: Collection[str] = (), at_least: int
    ) -> None:
        """Check all states."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give the directory in which scenarios run."""
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def survive(root: Path, monkeypatch: pytest.MonkeyPatch) -> Survive:
    """Give a function that runs scenarios, one after the other, and checks every state after a power failure.

    ``check`` is called with each state, whose files are in ``root`` then. Files with names in ``ignored`` are left out.
    There must be ``at_least`` so many states: otherwise the recording or the model has lost something.
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
