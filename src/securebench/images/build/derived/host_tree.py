"""Walking a directory of the host that somebody else has made: by descriptors, through no link, waiting for nothing."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import ImageError
from securebench.fs.safe_open import OPEN_DIRECTORY, OPEN_FILE, opened, printable
from securebench.fs.streams import chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_ENTRIES: Final = 2_000_000
MAX_DEPTH: Final = 256


@dataclass(frozen=True, slots=True)
class Found:
    """An entry: its path below the top, what ``lstat`` says, and the open directory that it is in."""

    path: bytes
    status: os.stat_result
    directory: int

    @property
    def name(self) -> bytes:
        """The last part of its path."""
        return self.path.rpartition(b"/")[2]

    def content(self) -> Iterator[bytes]:
        """Give what a regular file holds. Raises ``OSError``, and :class:`ImageError` if it was exchanged."""
        with opened(self.name, OPEN_FILE, self.directory) as descriptor:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ImageError(f"{printable(self.path)!r} changed while it was read", code="image-build-failed")
            with os.fdopen(descriptor, "rb", buffering=0, closefd=False) as file:
                yield from chunks(file)

    def target(self) -> bytes:
        """Return where a link leads."""
        return os.readlink(self.name, dir_fd=self.directory)


def walk(top: int, skip: Callable[[bytes], bool] = lambda _path: False) -> Iterator[Found]:
    """Give what is below the directory ``top`` (a descriptor), by name, each directory before what is in it.

    What ``skip`` says of its path is left out, with all below it. An entry's directory is open until the next entry is
    asked for. Raises :class:`ImageError` (``image-too-large``) and ``OSError``.
    """
    count = 0
    pending: list[tuple[int, bytes, list[bytes]]] = [(os.dup(top), b"", _names(top))]
    try:
        while pending:
            directory, above, names = pending[-1]
            if not names:
                os.close(pending.pop()[0])
                continue
            name = names.pop()
            path = above + name
            if skip(path):
                continue
            found = Found(path, os.stat(name, dir_fd=directory, follow_symlinks=False), directory)
            count += 1
            if count > MAX_ENTRIES or len(pending) > MAX_DEPTH:
                raise ImageError("there are too many files, or they lie too deep", code="image-too-large")
            yield found
            if stat.S_ISDIR(found.status.st_mode):
                below = os.open(name, OPEN_DIRECTORY, dir_fd=directory)
                pending.append((below, path + b"/", _names(below)))
    finally:
        for directory, _, _ in pending:
            os.close(directory)


def _names(directory: int) -> list[bytes]:
    return sorted(map(os.fsencode, os.listdir(directory)), reverse=True)
