"""Finding a file of an unpacked image as a process in it would, without leaving the image.

What is in it was unpacked from layers that anybody may have made. Each step opens one component and follows no link;
the target of one is walked from inside: an absolute one from the image's root, and ``..`` never above it.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from securebench.fs.safe_open import OPEN_DIRECTORY, OPEN_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MAX_FOLLOWED: Final = 40
"""As many links as the kernel follows."""
_MAX_DEPTH: Final = 64


@contextmanager
def image_file(root: Path, path: str) -> Iterator[int | None]:
    """Give a descriptor of the regular file at ``path`` of the image unpacked at ``root``; ``None`` if there is none.

    What cannot be looked at by this user is as if it were not there.
    """
    walk = _Walk(root)
    try:
        try:
            found = walk.find(os.fsencode(path))
        except OSError:
            found = None
        try:
            yield found
        finally:
            if found is not None:
                os.close(found)
    finally:
        walk.close()


class _Walk:
    def __init__(self, root: Path) -> None:
        self._way = [os.open(root, OPEN_DIRECTORY)]
        """The directories from the root to where it stands, open."""

    def close(self) -> None:
        self._back_to(0)

    def find(self, path: bytes) -> int | None:
        pending = _reversed(path)
        followed = 0
        while pending:
            part = pending.pop()
            if part == b"..":
                self._back_to(max(1, len(self._way) - 1))
                continue
            here = self._way[-1]
            mode = os.stat(part, dir_fd=here, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                followed += 1
                target = os.readlink(part, dir_fd=here)
                if target.startswith(b"/"):
                    self._back_to(1)
                pending += _reversed(target)
            elif stat.S_ISDIR(mode):
                self._way.append(os.open(part, OPEN_DIRECTORY, dir_fd=here))
            else:
                regular = stat.S_ISREG(mode) and not pending
                return os.open(part, OPEN_FILE, dir_fd=here) if regular else None
            if followed > _MAX_FOLLOWED or len(self._way) > _MAX_DEPTH:
                return None
        return None

    def _back_to(self, length: int) -> None:
        while len(self._way) > length:
            os.close(self._way.pop())


def _reversed(path: bytes) -> list[bytes]:
    return [part for part in reversed(path.split(b"/")) if part not in {b"", b"."}]
