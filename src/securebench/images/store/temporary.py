"""Work directories of a store, and the deletion of directories that are moved into them.

A killed process must not leave anything that looks finished. So unfinished work has its own directory, locked while
its owner lives. An unlocked directory was left by a killed process: the next import or prune deletes it. If the killed
process was an import, the images that it had added are removed, too, except those for which it had called
``Incoming.name`` or ``Incoming.keep``.
"""

from __future__ import annotations

import os
import secrets
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from securebench.fs.durable import sync_directory
from securebench.fs.locks import locked, take, take_now
from securebench.fs.rmtree import remove_entry
from securebench.fs.safe_open import OPEN_DIRECTORY, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from securebench.images.store.places import StorePaths


@contextmanager
def temporary_directory(places: StorePaths) -> Iterator[Path]:
    """Yield an empty directory, and delete it afterwards, however the block ends."""
    with locked(places.store_lock):
        directory, held = _new_directory(places)
    try:
        yield directory
    finally:
        with opened(places.work, OPEN_DIRECTORY) as work:
            remove_entry(work, directory.name)
        os.close(held)


@contextmanager
def changing(places: StorePaths) -> Iterator[Trash]:
    """Hold the store's lock in this block. What the block moves to the trash is deleted after the lock is released.

    Deleting a large tree takes seconds, and each import and the unpacking of any image need the lock.
    """
    trash = Trash(places)
    try:
        with locked(places.store_lock):
            yield trash
    finally:
        trash.empty()


class Trash:
    """Directories to delete, each in ``work`` and locked by this process until it is deleted.

    If this process is killed, its locks end with it, and the directories count as abandoned.
    """

    def __init__(self, places: StorePaths) -> None:
        self._places = places
        self._names: list[str] = []
        self._locks = ExitStack()

    def put(self, path: Path) -> None:
        """Move the directory ``path`` to a work directory, if it exists. The caller holds the store's lock."""
        if path.exists():
            directory, held = _new_directory(self._places)
            self._locks.callback(os.close, held)
            self._names.append(directory.name)
            path.rename(directory / path.name)
            # Flush the move before anything is deleted: after a crash, a partial tree must not be at this path.
            sync_directory(path.parent)

    def put_abandoned(self, on_found: Callable[[frozenset[str]], None] = lambda _names: None) -> None:
        """Take over the directories that were left when processes were killed. The caller holds the store's lock.

        ``on_found`` receives their names first. If it raises, the directories stay for the next process.
        """
        with ExitStack() as locks:
            names = [path.name for path in self._places.work.iterdir() if _lock_abandoned(path, locks)]
            on_found(frozenset(names))
            self._locks.push(locks.pop_all())
        self._names += names

    def empty(self) -> None:
        """Delete the directories. Directories that remain after an error count as abandoned.

        Raises the errors of :func:`remove_entry`.
        """
        with self._locks, opened(self._places.work, OPEN_DIRECTORY) as work:
            for name in self._names:
                remove_entry(work, name)


def _new_directory(places: StorePaths) -> tuple[Path, int]:
    """Create a work directory and return it with the descriptor that locks it. The caller holds the store's lock.

    The search for abandoned directories also needs the store's lock. So it cannot find the new directory before this
    function has locked it.
    """
    directory = places.work / secrets.token_hex(8)
    directory.mkdir(mode=0o700)
    return directory, take(directory)


def _lock_abandoned(path: Path, locks: ExitStack) -> bool:
    """Lock a work directory until ``locks`` closes, or return ``False`` if another process holds the lock."""
    descriptor = take_now(path)
    if descriptor is None:
        return False
    locks.callback(os.close, descriptor)
    return True
