"""Places of work in a store, so that what is killed at any point leaves nothing that is taken for whole.

Each work has a directory, locked while it lives. A directory that nobody holds is what a killed process left: the
next work that begins removes it, and the unnamed images that it had put on the list.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from securebench.descriptors import OPEN_DIRECTORY, opened
from securebench.images.locks import locked
from securebench.removal import remove_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class WorkPlaces(Protocol):
    """A store that has work in it."""

    @property
    def work(self) -> Path:
        """The directory of what is not finished."""

    @property
    def store_lock(self) -> Path:
        """The lock of who makes and clears work."""


@contextmanager
def workplace(places: WorkPlaces) -> Iterator[Path]:
    """Give an empty directory, and remove it afterwards, however the block ends."""
    with locked(places.store_lock):
        directory = places.work / secrets.token_hex(8)
        directory.mkdir(mode=0o700)
        held = os.open(directory, OPEN_DIRECTORY)
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield directory
    finally:
        with opened(places.work, OPEN_DIRECTORY) as work:
            remove_entry(work, directory.name)
        os.close(held)


def clear_abandoned(places: WorkPlaces, on_found: Callable[[frozenset[str]], None]) -> None:
    """Remove what killed work has left. The caller holds the store's lock.

    ``on_found`` is told the names of the abandoned directories before they go: if it fails, they stay to be found.
    """
    abandoned = frozenset(path.name for path in places.work.iterdir() if _is_abandoned(path))
    on_found(abandoned)
    with opened(places.work, OPEN_DIRECTORY) as work:
        for name in abandoned:
            remove_entry(work, name)


def _is_abandoned(path: Path) -> bool:
    with opened(path, OPEN_DIRECTORY) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
