"""Writing new files below a directory: by descriptor, through no link, and over nothing that is there."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from securebench.descriptors import OPEN_DIRECTORY, opened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY_MODE = 0o755


class TreeWriter:
    """Writes below ``root``, a directory that exists. ``owner`` (uid, gid) gets what is not ``kept``.

    Paths are POSIX, relative, and were checked by the path policy. Missing parents are made. Methods raise ``OSError``:
    ``FileExistsError`` above all, and whatever opening a parent says that turns out to be a link.
    """

    def __init__(self, root: Path, owner: tuple[int, int] | None = None) -> None:
        self._root = os.open(root, OPEN_DIRECTORY)
        self._owner = owner

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    def write_file(self, path: bytes, chunks: Iterable[bytes | memoryview], mode: int, *, kept: bool = False) -> None:
        """Make the file ``path``, with exactly this mode whatever the umask."""
        with self._parent(path) as (parent, name), opened(name, _CREATE, parent) as descriptor:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.writelines(chunks)
            os.fchmod(descriptor, mode)
            self._own(descriptor, kept=kept)

    def make_directory(self, path: bytes, *, kept: bool = False) -> None:
        """Make the directory ``path``."""
        with self._parent(path) as (parent, name):
            os.mkdir(name, _DIRECTORY_MODE, dir_fd=parent)
            self._finish_directory(parent, name, kept=kept)

    def make_link(self, path: bytes, target: bytes) -> None:
        """Make ``path`` a link to ``target``: whether it may lead there was asked when the tree was read."""
        with self._parent(path) as (parent, name):
            os.symlink(target, name, dir_fd=parent)
            if self._owner is not None:
                os.chown(name, *self._owner, dir_fd=parent, follow_symlinks=False)

    @contextmanager
    def _parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """Open the directory in which ``path`` lies; missing ones are made, and are the owner's."""
        *parents, name = path.split(b"/")
        directory = os.dup(self._root)
        try:
            for part in parents:
                with suppress(FileExistsError):
                    os.mkdir(part, _DIRECTORY_MODE, dir_fd=directory)
                    self._finish_directory(directory, part, kept=False)
                child = os.open(part, OPEN_DIRECTORY, dir_fd=directory)
                os.close(directory)
                directory = child
            yield directory, name
        finally:
            os.close(directory)

    def _finish_directory(self, parent: int, name: bytes, *, kept: bool) -> None:
        with opened(name, OPEN_DIRECTORY, parent) as descriptor:
            os.fchmod(descriptor, _DIRECTORY_MODE)
            self._own(descriptor, kept=kept)

    def _own(self, descriptor: int, *, kept: bool) -> None:
        if self._owner is not None and not kept:
            os.fchown(descriptor, *self._owner)
