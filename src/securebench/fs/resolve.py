"""Follow a path inside a root directory as a process with that root would, without ever leaving the root.

Each step opens one component and follows no link. A link is read, and its target is resolved inside the root: an
absolute target starts at the root, and ``..`` never leads above it. So no link, however it was created, leads to a
file of the host.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from securebench.fs.safe_open import OPEN_DIRECTORY, OPEN_FILE, opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MAX_LINKS: Final = 40
"""The maximum number of links that are followed in one path: the kernel's limit."""


class StuckError(Exception):
    """A path cannot be followed to its end. The message says why."""


@dataclass(frozen=True, slots=True)
class OpenDirectory:
    """An open directory of the tree, and its real path below the root."""

    descriptor: int
    path: bytes

    def path_of(self, name: bytes) -> bytes:
        """Return the real path of an entry."""
        return self.path + b"/" + name if self.path else name


class Resolver:
    """Opens directories below ``root`` (a descriptor), one at a time: each is valid until the next is opened.

    A context manager. Only one descriptor is open, however deep the path is. ``..`` is opened relative to the
    directory that is open, so callers must ensure that nothing moves directories of the tree meanwhile. Subclasses
    decide what happens where no directory is found.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._here = -1
        self._names: list[bytes] = []
        self._pending: list[bytes] = []
        self._links = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def enter(self, parts: Sequence[bytes]) -> OpenDirectory:
        """Open the directory at ``parts``. Raises :class:`StuckError` and ``OSError``."""
        self._links = 0
        return self._enter(parts)

    def open_file(self, parts: Sequence[bytes]) -> int | None:
        """Return a descriptor of the regular file at ``parts``, or ``None`` for anything else. The caller closes it.

        Raises the errors of :meth:`enter`.
        """
        self._links = 0
        while parts and parts[-1] != b"..":
            *parents, name = parts
            here = self._enter(parents)
            mode = os.stat(name, dir_fd=here.descriptor, follow_symlinks=False).st_mode
            if not stat.S_ISLNK(mode):
                return os.open(name, OPEN_FILE, dir_fd=here.descriptor) if stat.S_ISREG(mode) else None
            target = self._read_link(name)
            parts = ([] if target.startswith(b"/") else split(here.path)) + split(target)
        return None

    def leave(self) -> None:
        """Close the directory that is open."""
        self._names = []
        if self._here >= 0:
            os.close(self._here)
            self._here = -1

    def on_missing(self, here: OpenDirectory, name: bytes) -> int:
        """Raise ``FileNotFoundError``. Subclasses may instead create ``name`` and return a descriptor of it."""
        raise FileNotFoundError(os.fsdecode(here.path_of(name)))

    def on_not_a_directory(self, here: OpenDirectory, name: bytes) -> int | None:  # noqa: ARG002 - for subclasses
        """Return a descriptor of a directory to use instead of ``name``, or ``None`` to follow ``name`` as a link."""
        return None

    def on_entered(self, path: bytes) -> None:
        """Do nothing. A subclass may act on each directory that is entered by name. ``path`` is its real path."""

    def _enter(self, parts: Sequence[bytes]) -> OpenDirectory:
        self.leave()
        self._here = os.dup(self._root)
        self._pending = list(reversed(parts))
        while self._pending:
            self._step(self._pending.pop())
        return OpenDirectory(self._here, b"/".join(self._names))

    def _step(self, part: bytes) -> None:
        """Enter one component. If it is a link, the components of its target become the next ones to enter."""
        if part == b"..":
            if self._names:
                self._move(os.open(b"..", OPEN_DIRECTORY, dir_fd=self._here))
                self._names.pop()
            return
        here = OpenDirectory(self._here, b"/".join(self._names))
        try:
            child: int | None = os.open(part, OPEN_DIRECTORY, dir_fd=self._here)
        except FileNotFoundError:
            child = self.on_missing(here, part)
        except NotADirectoryError:  # also raised for a link: O_NOFOLLOW with O_DIRECTORY
            child = self.on_not_a_directory(here, part)
        if child is None:
            self._follow(part)
            return
        self._move(child)
        self._names.append(part)
        self.on_entered(here.path_of(part))

    def _follow(self, part: bytes) -> None:
        if not stat.S_ISLNK(os.stat(part, dir_fd=self._here, follow_symlinks=False).st_mode):
            raise StuckError("one of its parents is not a directory")
        target = self._read_link(part)
        if target.startswith(b"/"):
            self._move(os.dup(self._root))
            self._names = []
        self._pending += reversed(split(target))

    def _read_link(self, name: bytes) -> bytes:
        self._links += 1
        if self._links > MAX_LINKS:
            raise StuckError("its path has too many links or a loop of links")
        return os.readlink(name, dir_fd=self._here)

    def _move(self, descriptor: int) -> None:
        os.close(self._here)
        self._here = descriptor


@contextmanager
def opened_inside(root: Path, path: str) -> Iterator[int | None]:
    """Yield a descriptor of the regular file at ``path`` inside the tree ``root``, such as an unpacked image.

    Yields ``None`` if there is no such file, or if this user cannot read it.
    """
    try:
        with opened(root, OPEN_DIRECTORY) as top, Resolver(top) as resolver:
            descriptor = resolver.open_file(split(os.fsencode(path)))
    except (OSError, StuckError):
        descriptor = None
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def split(path: bytes) -> list[bytes]:
    """Return the components of ``path`` without empty ones and ``.``."""
    return [part for part in path.split(b"/") if part not in {b"", b"."}]
