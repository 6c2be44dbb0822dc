"""Remove what finished tasks leave, while the next tasks run."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from securebench.errors import StorageError
from securebench.fs.rmtree import remove_tree

if TYPE_CHECKING:
    from pathlib import Path

_MOST: Final = 32
"""The maximum number of directory trees that wait to be removed.

If there is one more, its task waits until a tree has been removed.
"""


class Removals:
    """Removes directory trees on a separate thread. Thread-safe.

    A tree is first moved to ``trash``, a private directory on the same file system, so that its path is free at once.
    A tree that cannot be removed stays. The run empties ``trash`` when it ends or is resumed. At its end, it also
    removes workspaces that are not to be kept, and reports what still cannot be removed.
    """

    def __init__(self, trash: Path) -> None:
        self._trash = trash
        self._numbers = itertools.count(1)
        self._room = threading.BoundedSemaphore(_MOST)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="securebench-remove")

    def remove(self, path: Path) -> None:
        """Move the directory ``path`` away and remove it in the background. ``path`` may be missing.

        A directory that cannot be moved is removed before this method returns.
        """
        moved = self._trash / f"removed-{next(self._numbers)}"
        try:
            path.rename(moved)
        except FileNotFoundError:
            return
        except OSError:  # for example, this user owns the directory but may not write to it
            _remove(path)
            return
        self._room.acquire()
        self._pool.submit(_remove, moved).add_done_callback(lambda _: self._room.release())

    def close(self) -> None:
        """Wait until everything is removed. Idempotent."""
        self._pool.shutdown()


def _remove(path: Path) -> None:
    with suppress(StorageError, OSError):
        remove_tree(path)
