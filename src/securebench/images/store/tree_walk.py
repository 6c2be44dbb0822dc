"""Walking to a directory of a tree that is being built: by descriptors, and never out of the tree.

Each step opens one component and follows no link. A link that may be followed is read, and its target walked from
inside the tree: an absolute one from its root, and ``..`` never above it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.fs.rmtree import remove_entry
from securebench.fs.safe_open import OPEN_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_FOLLOWED: Final = 40
"""As many links as the kernel follows."""


class StuckError(Exception):
    """There is no way to a directory, for the reason that it says."""


@dataclass(frozen=True, slots=True)
class OpenDirectory:
    """An open directory of the tree, and its real path below the root."""

    descriptor: int
    path: bytes

    def path_of(self, name: bytes) -> bytes:
        """Return the real path of an entry."""
        return self.path + b"/" + name if self.path else name


class TreeWalk:
    """Opens directories below ``root``, one at a time: the descriptor holds until the next is opened.

    ``new`` holds the real paths that the layer that is unpacked has made, and gets those of the directories that are
    entered: a link of its own is followed, what a layer below left in the way is removed. ``made(path)`` is told of
    each directory that had to be made.
    """

    def __init__(self, root: int, new: set[bytes], made: Callable[[bytes], None]) -> None:
        self._root = root
        self._new = new
        self._made = made
        self._asked: Sequence[bytes] | None = None
        self._here = -1
        self._where: list[bytes] = []
        self._pending: list[bytes] = []

    def enter(self, parts: Sequence[bytes]) -> OpenDirectory:
        """Open the directory; where it is missing it is made. Raises :class:`StuckError` and ``OSError``."""
        if self._asked == parts:
            return OpenDirectory(self._here, b"/".join(self._where))
        self.leave()
        self._here = os.dup(self._root)
        self._pending = list(reversed(parts))
        followed = 0
        while self._pending:
            followed += self._step(self._pending.pop())
            if followed > MAX_FOLLOWED:
                raise StuckError("its links lead in a circle")
        self._asked = parts
        return OpenDirectory(self._here, b"/".join(self._where))

    def leave(self) -> None:
        """Forget the directory that was opened: what lies on the way to it may change now."""
        self._asked = None
        self._where = []
        if self._here >= 0:
            os.close(self._here)
            self._here = -1

    def _step(self, part: bytes) -> bool:
        """Go one component on, and say whether that was a link."""
        if part == b"..":
            if self._where:
                self._move(os.open(b"..", OPEN_DIRECTORY, dir_fd=self._here))
                self._where.pop()
            return False
        path = b"/".join((*self._where, part))
        try:
            child = os.open(part, OPEN_DIRECTORY, dir_fd=self._here)
        except FileNotFoundError:
            child = self._make(part, path)
        except NotADirectoryError:
            if path in self._new:
                self._follow(part)
                return True
            remove_entry(self._here, part)
            child = self._make(part, path)
        self._move(child)
        self._where.append(part)
        self._new.add(path)
        return False

    def _make(self, part: bytes, path: bytes) -> int:
        os.mkdir(part, 0o700, dir_fd=self._here)
        self._made(path)
        return os.open(part, OPEN_DIRECTORY, dir_fd=self._here)

    def _follow(self, part: bytes) -> None:
        status = os.stat(part, dir_fd=self._here, follow_symlinks=False)
        if not stat.S_ISLNK(status.st_mode):
            raise StuckError("it lies below something that is not a directory")
        target = os.readlink(part, dir_fd=self._here)
        if target.startswith(b"/"):
            self._move(os.dup(self._root))
            self._where = []
        self._pending += [part for part in reversed(target.split(b"/")) if part not in (b"", b".")]

    def _move(self, descriptor: int) -> None:
        with suppress(OSError):
            os.close(self._here)
        self._here = descriptor
