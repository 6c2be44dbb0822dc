"""Creating files below a directory: by descriptor, through no link, and never over an existing file."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Self

from securebench.faults import FaultPoint, reached
from securebench.fs.durable import write_all
from securebench.fs.safe_open import OPEN_DIRECTORY, open_below, opened

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY_MODE = 0o755
_FILE_MODE = 0o644
_CANNOT_SHARE = frozenset({errno.EXDEV, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
"""Errors of ``copy_file_range`` if it cannot copy between two files. ``sendfile`` is used instead."""


class TreeWriter:
    """Writes below the existing directory ``root``. ``owner`` (uid, gid) owns all files written without ``keep_owner``.

    With ``everybody``, all users may write all files, and have the owner's rights to read and execute them. Use
    ``everybody`` only for a root that no other user can reach. Files written with ``keep_owner``, and FIFOs, are
    exceptions: they belong to the user of this process, and ``everybody`` does not change their modes.

    Paths are relative POSIX paths that the caller has checked. Missing parents are created. Methods raise ``OSError``,
    such as ``FileExistsError`` if the path exists, or ``ENOTDIR`` or ``ELOOP`` if a parent is a link.
    """

    def __init__(self, root: Path, owner: tuple[int, int] | None = None, *, everybody: bool = False) -> None:
        self._name = root
        self._root = os.open(root, OPEN_DIRECTORY)
        self._here, self._parents = os.dup(self._root), b""
        self._owner = owner
        self._everybody = everybody
        self._later: list[tuple[bytes, int, bool]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            os.close(self._here)
            os.close(self._root)

    def write_file(
        self, path: bytes, chunks: Iterable[bytes | memoryview], mode: int, *, keep_owner: bool = False
    ) -> None:
        """Create the file ``path`` with this mode, whatever the umask.

        Without ``keep_owner``, the file also gets the rights that this writer gives to everybody.
        """
        parent, name = self._parent(path)
        with opened(name, _CREATE, parent) as descriptor:
            reached(FaultPoint.TREE_WRITE, self._name)
            for chunk in chunks:
                write_all(descriptor, chunk)
            self._own(descriptor, mode, keep_owner=keep_owner)

    def copy_file(self, path: bytes, source: int, size: int, mode: int) -> None:
        """Create ``path`` with the first ``size`` bytes of the descriptor ``source``. Shares blocks if possible."""
        parent, name = self._parent(path)
        with opened(name, _CREATE, parent) as descriptor:
            reached(FaultPoint.TREE_WRITE, self._name)
            offset = 0
            while offset < size:
                copied = _copy_range(source, descriptor, offset, size - offset)
                if not copied:
                    raise OSError(errno.EIO, "a file became shorter while it was copied")
                offset += copied
            self._own(descriptor, mode)

    def write_sparse(self, path: bytes, size: int) -> None:
        """Create the sparse file ``path`` with ``size`` bytes, which use no disk space."""
        parent, name = self._parent(path)
        with opened(name, _CREATE, parent) as descriptor:
            os.ftruncate(descriptor, size)
            self._own(descriptor, _FILE_MODE)

    def make_fifo(self, path: bytes) -> None:
        """Create the FIFO ``path``."""
        parent, name = self._parent(path)
        os.mkfifo(name, _FILE_MODE, dir_fd=parent)

    def make_directory(self, path: bytes, mode: int = _DIRECTORY_MODE, *, keep_owner: bool = False) -> None:
        """Create the directory ``path``.

        The owner of the directory has all rights until :meth:`finish`, even if ``mode`` denies some.
        """
        parent, name = self._parent(path)
        os.mkdir(name, _DIRECTORY_MODE, dir_fd=parent)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            self._later.append((path, mode, keep_owner))
            mode |= stat.S_IRWXU
        self._finish_directory(parent, name, mode, keep_owner=keep_owner)

    def finish(self) -> None:
        """Set the final modes of directories whose owner lacks a right. Nothing may be written afterwards."""
        for path, mode, keep_owner in reversed(self._later):
            parent, name = self._parent(path)
            self._finish_directory(parent, name, mode, keep_owner=keep_owner)
        self._later.clear()

    def make_hard_link(self, path: bytes, original: bytes) -> None:
        """Make ``path`` another name of ``original``, which was written before and is not a directory."""
        parent, name = self._parent(path)
        *parents, old = original.split(b"/")
        directory = open_below(self._root, parents)
        try:
            os.link(old, name, src_dir_fd=directory, dst_dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(directory)

    def make_link(self, path: bytes, target: bytes) -> None:
        """Make ``path`` a symbolic link to ``target``, which is neither followed nor checked."""
        parent, name = self._parent(path)
        os.symlink(target, name, dir_fd=parent)
        if self._owner is not None:
            os.chown(name, *self._owner, dir_fd=parent, follow_symlinks=False)

    def _parent(self, path: bytes) -> tuple[int, bytes]:
        """Return the open parent directory of ``path``, and the last name of ``path``.

        The directory stays open until another one is needed: trees are written directory by directory.
        """
        parents, _, name = path.rpartition(b"/")
        if parents != self._parents:
            directory = self._directory(parents.split(b"/") if parents else [])
            os.close(self._here)
            self._here, self._parents = directory, parents
        return self._here, name

    def _directory(self, parts: list[bytes]) -> int:
        """Return a descriptor of the directory at ``parts``. Create missing directories, owned by ``owner``."""
        directory = os.dup(self._root)
        try:
            for part in parts:
                child = self._child(directory, part)
                os.close(directory)
                directory = child
        except BaseException:
            os.close(directory)
            raise
        return directory

    def _child(self, parent: int, name: bytes) -> int:
        try:
            return os.open(name, OPEN_DIRECTORY, dir_fd=parent)
        except FileNotFoundError:
            os.mkdir(name, _DIRECTORY_MODE, dir_fd=parent)
            self._finish_directory(parent, name, _DIRECTORY_MODE, keep_owner=False)
            return os.open(name, OPEN_DIRECTORY, dir_fd=parent)

    def _finish_directory(self, parent: int, name: bytes, mode: int, *, keep_owner: bool) -> None:
        with opened(name, OPEN_DIRECTORY, parent) as descriptor:
            self._own(descriptor, mode, keep_owner=keep_owner)

    def _own(self, descriptor: int, mode: int, *, keep_owner: bool = False) -> None:
        if self._owner is not None and not keep_owner:
            os.fchown(descriptor, *self._owner)
        # The mode comes last: chown clears set-id bits.
        os.fchmod(descriptor, mode | _for_everybody(mode) if self._everybody and not keep_owner else mode)


def _for_everybody(mode: int) -> int:
    """Return mode bits that give group and others the owner's rights, and always the right to write."""
    return (mode >> 6 & 0o7) * 0o011 | 0o022


def _copy_range(source: int, target: int, offset: int, size: int) -> int:
    try:
        return os.copy_file_range(source, target, size, offset)
    except OSError as error:
        if error.errno not in _CANNOT_SHARE:
            raise
        return os.sendfile(target, source, offset, size)
