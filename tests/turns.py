"""Which tests run at the same time, where several workers of pytest-xdist share the machine.

Each test takes its turn: most run beside others, and one that is marked ``alone`` while no other does. The locks belong
to the process (fcntl's, not flock's), so a child that outlives its test holds none of them.
"""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

_SECONDS = {"slow": 20.0, "engine": 1.5, "agents": 1.5, "oci": 0.5}
"""About how long a test with a marker runs: only good enough to put files in order."""
_SECONDS_WITHOUT_A_SANDBOX = 0.03


class Turns:
    """The turns of one worker. ``place`` is a directory that all workers of this run share."""

    def __init__(self, place: Path) -> None:
        self._gate, self._room = (place / "gate.lock").open("a+"), (place / "room.lock").open("a+")
        self._is_kept = False

    @contextmanager
    def turn(self, *, alone: bool, next_alone: bool) -> Iterator[None]:
        """Wait until a test may run, and let no test start that would disturb it.

        The gate is held while waiting, so that a test that wants to be alone is not overtaken for ever. Whoever waits
        for it waits for the longest of the other tests, so a test that is ``alone`` leaves its turn to the next such
        test of the same worker.
        """
        if not self._is_kept:
            fcntl.lockf(self._gate, fcntl.LOCK_EX)
            fcntl.lockf(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            fcntl.lockf(self._gate, fcntl.LOCK_UN)
        self._is_kept = alone and next_alone
        try:
            yield
        finally:
            if not self._is_kept:
                fcntl.lockf(self._room, fcntl.LOCK_UN)


def longest_files_first(items: list[pytest.Item]) -> None:
    """Sort tests by file, so that no worker starts a long file when the others have nothing left to do."""
    seconds: dict[Path, float] = {}
    for item in items:
        seconds[item.path] = seconds.get(item.path, 0) + _expected_seconds(item)
    items.sort(key=lambda item: -seconds[item.path])


def _expected_seconds(item: pytest.Item) -> float:
    names = {marker.name for marker in item.iter_markers()}
    return max((_SECONDS[name] for name in names & _SECONDS.keys()), default=_SECONDS_WITHOUT_A_SANDBOX)
