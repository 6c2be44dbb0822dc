"""Which tests run at the same time, and in which order, when several workers of pytest-xdist share the machine.

Most tests run at the same time as others. A test that is marked ``sandboxes_alone`` runs while no other test uses
sandboxes, and a test that is marked ``alone`` runs while no other test runs. Locks ensure this. They belong to the
process (locks of fcntl, not of flock), so a child process that outlives its test does not hold them.

One worker runs all files with tests that are marked ``sandboxes_alone`` or ``alone``, and starts with them. Meanwhile,
the other workers run tests without sandboxes.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import contextmanager
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

_SECONDS = {"slow": 20.0, "engine": 1.5, "agents": 1.5, "oci": 0.5}
"""Roughly how many seconds a test with each marker takes. Used only to put files in order."""
_SECONDS_WITHOUT_A_SANDBOX = 0.03

_WITH_SANDBOXES: Final = ("engine", "agents", "oci")
_MARK_IN_A_FILE: Final = re.compile(r"mark\.(sandboxes_)?alone\b")


class _Kind(Enum):
    """What may run at the same time as a test."""

    PLAIN = "everything"
    WITH_SANDBOXES = "everything with or without sandboxes"
    SANDBOXES_ALONE = "only tests without sandboxes"
    ALONE = "nothing"


def _kind(item: pytest.Item | None) -> _Kind | None:
    if item is None:
        return None
    names = {marker.name for marker in item.iter_markers()}
    if "alone" in names:
        return _Kind.ALONE
    if "sandboxes_alone" in names:
        return _Kind.SANDBOXES_ALONE
    return _Kind.PLAIN if names.isdisjoint(_WITH_SANDBOXES) else _Kind.WITH_SANDBOXES


class _Room:
    """A lock that one test holds exclusively, or several tests share.

    A test holds the gate while it waits for the lock. Otherwise, a test that needs the lock exclusively could wait for
    ever while other tests take turns to share it.
    """

    def __init__(self, place: Path, name: str) -> None:
        self._gate, self._room = (
            os.open(place / file, os.O_RDWR | os.O_CREAT) for file in (f"{name}-gate.lock", f"{name}.lock")
        )

    def enter(self, *, alone: bool) -> None:
        fcntl.lockf(self._gate, fcntl.LOCK_EX)
        fcntl.lockf(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.lockf(self._gate, fcntl.LOCK_UN)

    def leave(self) -> None:
        fcntl.lockf(self._room, fcntl.LOCK_UN)


class Turns:
    """The locks that the tests of one worker take. ``place`` is a directory that all workers of this run share."""

    def __init__(self, place: Path) -> None:
        self._machine, self._sandboxes = _Room(place, "machine"), _Room(place, "sandboxes")
        self._is_kept = False

    @contextmanager
    def turn(self, item: pytest.Item, next_item: pytest.Item | None) -> Iterator[None]:
        """Wait until ``item`` may run. Until it has ended, no conflicting test of another worker starts.

        A test that must be alone waits until all conflicting tests have ended. To avoid waiting again, the locks are
        kept if the next test of this worker is of the same kind.
        """
        kind = _kind(item)
        if not self._is_kept:
            self._machine.enter(alone=kind is _Kind.ALONE)
            if kind in {_Kind.WITH_SANDBOXES, _Kind.SANDBOXES_ALONE}:
                self._sandboxes.enter(alone=kind is _Kind.SANDBOXES_ALONE)
        self._is_kept = kind in {_Kind.ALONE, _Kind.SANDBOXES_ALONE} and kind is _kind(next_item)
        try:
            yield
        finally:
            if not self._is_kept:
                self._sandboxes.leave()
                self._machine.leave()


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """A scheduler that gives each file to one worker, and all files with tests that must be alone to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "alone" if _has_alone(Path(self.config.rootpath, file)) else file


@cache
def _has_alone(path: Path) -> bool:
    return _MARK_IN_A_FILE.search(path.read_text(encoding="utf-8")) is not None


def put_in_order(items: list[pytest.Item]) -> None:
    """Sort tests by file: first files with tests that must be alone, then files without sandboxes, then the others.

    In each part, the files that take longest come first, so that no worker starts a long file when the others have
    nothing left to do.
    """
    seconds: dict[Path, float] = {}
    kinds: dict[Path, set[_Kind | None]] = {}
    for item in items:
        seconds[item.path] = seconds.get(item.path, 0) + _expected_seconds(item)
        kinds.setdefault(item.path, set()).add(_kind(item))

    def part(path: Path) -> int:
        if _has_alone(path):
            return 0 if _Kind.ALONE in kinds[path] else 1
        return 2 if kinds[path] == {_Kind.PLAIN} else 3

    items.sort(key=lambda item: (part(item.path), -seconds[item.path], str(item.path)))


def _expected_seconds(item: pytest.Item) -> float:
    names = {marker.name for marker in item.iter_markers()}
    return max((_SECONDS[name] for name in names & _SECONDS.keys()), default=_SECONDS_WITHOUT_A_SANDBOX)
