"""Opening untrusted files and directories: by descriptor, without following links, and without blocking.

A file counts as readable if its owner's mode bits say so, whatever rights this process has: root and an ordinary user
get the same result for the same tree.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

from securebench.printable import printable_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""``O_NONBLOCK``: opening a FIFO returns at once instead of waiting for a writer."""

_SET_ID = stat.S_ISUID | stat.S_ISGID
_READ_DIRECTORY = stat.S_IRUSR | stat.S_IXUSR
_CLOSED = "is not readable by its owner"


class TreeRefusal(StrEnum):
    """Why a tree or a file was refused."""

    MISSING = "missing"
    UNSAFE = "unsafe"
    TOO_LARGE = "too_large"


class TreeRefusedError(Exception):
    """A tree or file is refused. ``offenders``: a printable line for each refused entry, at most ``MAX_OFFENDERS``."""

    def __init__(self, refusal: TreeRefusal, *offenders: str) -> None:
        super().__init__("; ".join(offenders))
        self.refusal = refusal
        self.offenders = offenders


@contextmanager
def opened(path: str | bytes | Path, flags: int, directory: int | None = None) -> Iterator[int]:
    """Yield a descriptor of ``path`` (relative to the descriptor ``directory``) and close it at the end."""
    descriptor = os.open(path, flags, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_below(top: int, parts: Iterable[bytes]) -> int:
    """Return a descriptor of the directory at ``parts`` below ``top``. Follows no link. Raises ``OSError``."""
    here = os.dup(top)
    for part in parts:
        try:
            child = os.open(part, OPEN_DIRECTORY, dir_fd=here)
        finally:
            os.close(here)
        here = child
    return here


@contextmanager
def opened_root(root: Path) -> Iterator[int]:
    """Yield a descriptor of ``root``. Raises :class:`TreeRefusedError` if it is not a readable, real directory."""
    with refusing(os.fsencode(root.name)), opened(root, OPEN_DIRECTORY) as descriptor:
        require_readable_directory(os.fstat(descriptor), os.fsencode(root.name))
        yield descriptor


@contextmanager
def opened_below(top: int, parents: list[bytes]) -> Iterator[int]:
    """Yield a descriptor of the directory at ``parents`` below ``top``.

    Raises :class:`TreeRefusedError`, which names the path up to the refused component.
    """
    directory = os.dup(top)
    try:
        for depth, part in enumerate(parents, start=1):
            path = b"/".join(parents[:depth])
            with refusing(path):
                child = os.open(part, OPEN_DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = child
            require_readable_directory(os.fstat(directory), path)
        yield directory
    finally:
        os.close(directory)


@contextmanager
def refusing(path: bytes) -> Iterator[None]:
    """Turn each ``OSError`` that a hostile ``path`` can cause into a :class:`TreeRefusedError`."""
    try:
        yield
    except OSError as error:
        raise refusal_of(error, path) from None


def refusal_of(error: OSError, path: bytes) -> TreeRefusedError | OSError:
    """Return a :class:`TreeRefusedError` if a hostile ``path`` can cause ``error``, else ``error`` itself."""
    if error.errno == errno.ENOENT:
        return TreeRefusedError(TreeRefusal.MISSING, f"{printable_name(path)}: does not exist")
    reason = _REFUSED_ERRORS.get(error.errno or 0)
    return error if reason is None else TreeRefusedError(TreeRefusal.UNSAFE, f"{printable_name(path)}: {reason}")


_REFUSED_ERRORS = {
    errno.ELOOP: "is a link",
    errno.ENOTDIR: "is not a directory, or has a link in its path",
    errno.EACCES: _CLOSED,
    errno.EPERM: _CLOSED,
    errno.ENXIO: "is a socket or device",
    errno.ENAMETOOLONG: "has too long a name",
}


def require_readable_directory(status: os.stat_result, path: bytes) -> None:
    """Raise :class:`TreeRefusedError` for a directory that its owner may not read and search."""
    if mode_fault(status.st_mode):
        raise TreeRefusedError(TreeRefusal.UNSAFE, f"{printable_name(path)}: {_CLOSED}")


def require_file(status: os.stat_result, path: bytes) -> None:
    """Raise :class:`TreeRefusedError` for everything but regular files."""
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise TreeRefusedError(
            TreeRefusal.UNSAFE, f"{printable_name(path)}: is a {_KIND_NAMES.get(kind, 'special file')}"
        )


def require_readable_file(status: os.stat_result, path: bytes, *, set_id: bool = False) -> None:
    """Raise :class:`TreeRefusedError` unless this is a regular file that its owner may read.

    Files with set-id bits are refused too, unless ``set_id``.
    """
    require_file(status, path)
    if fault := mode_fault(status.st_mode & ~_SET_ID if set_id else status.st_mode):
        raise TreeRefusedError(TreeRefusal.UNSAFE, f"{printable_name(path)}: {fault}")


def mode_fault(mode: int) -> str:
    """Return why a file or directory with this mode is refused, or an empty string. Other types are not checked."""
    if stat.S_ISDIR(mode):
        return "" if mode & _READ_DIRECTORY == _READ_DIRECTORY else _CLOSED
    if not stat.S_ISREG(mode):
        return ""
    if not mode & stat.S_IRUSR:
        return _CLOSED
    return "has a set-user-id or set-group-id bit" if mode & _SET_ID else ""


_KIND_NAMES = {
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "block device",
    stat.S_IFCHR: "character device",
}
