"""Write files that are never partial, even after a crash, and explain disk errors."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from securebench.errors import StorageError
from securebench.faults import FaultPoint, reached
from securebench.fs.safe_open import OPEN_DIRECTORY, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HINTS = {
    errno.EROFS: "remount its file system with write access",
    errno.EACCES: "give this user read and write permission",
    errno.EPERM: "give this user read and write permission",
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "this user's quota is used up: free some space",
    errno.EMFILE: "raise the limit of open files (ulimit -n), or run fewer tasks at once (--workers)",
    errno.ENFILE: "find the program that has so many files open (lsof)",
}

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
"""Flags to open a directory. They lack ``O_NOFOLLOW``, because a directory that a user names may be a link."""
_MAKING: Final = threading.Lock()


def disk_hint(number: int | None) -> str:
    """Return how to fix a disk error with this ``errno``."""
    return _HINTS.get(number or 0, "check the disk for errors (dmesg)")


@contextmanager
def storage_errors(path: Path, then: str = "continue with --resume; recorded tasks are kept") -> Iterator[None]:
    """Turn an :class:`OSError` into a :class:`StorageError` that names ``path`` and says how to fix the problem.

    ``then`` is what the user should do after that.
    """
    try:
        yield
    except OSError as error:
        problem = f"cannot read or write {path}: {error.strerror or error}"
        hint = f"{disk_hint(error.errno)}; then {then}"
        raise StorageError(problem, hint=hint) from error


def write_whole(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Replace the content of ``path``: whatever happens, it has the old content or the new one. Raises ``OSError``.

    One process at a time may write a file. The file gets ``mode`` without the bits of the umask, even if it
    existed with another mode.
    """
    beside = temporary_name(path)
    if os.path.lexists(beside):  # a killed process left it, perhaps with another mode
        beside.unlink()
    try:
        reached(FaultPoint.FILE_OPEN, path)
        with open(beside, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            reached(FaultPoint.FILE_WRITE, path)
            file.write(data)
            file.flush()
            reached(FaultPoint.FILE_SYNC, path)
            os.fsync(file.fileno())
        # The content must reach the disk before the name does. Some file systems write a rename before the data.
        reached(FaultPoint.FILE_RENAME, path)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_durably(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write a file of a run as :func:`write_whole` does. Raises :class:`StorageError`."""
    with storage_errors(path):
        write_whole(path, data, mode=mode)


def discard(path: Path) -> None:
    """Remove a file that :func:`write_durably` wrote, or began to write. Raises :class:`StorageError`."""
    with storage_errors(path):
        path.unlink(missing_ok=True)
        temporary_name(path).unlink(missing_ok=True)


def temporary_name(path: Path) -> Path:
    """Return the path of the temporary file that holds the new content of ``path`` until it is renamed to ``path``."""
    return path.with_name(f".{path.name}.new")


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of ``data``, with as many calls as needed. Raises ``OSError``."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def make_directories(path: Path, mode: int = 0o777) -> None:
    """Create the directory ``path`` and its missing parents, and flush their names to disk. Raises ``OSError``.

    ``mode`` is the mode of ``path`` before the umask. Existing directories are not changed.
    """
    with _MAKING:  # so that no other thread finds a directory whose name is not on disk yet
        missing = takewhile(lambda directory: not directory.is_dir(), (path, *path.parents))
        for directory in reversed([*missing]):
            directory.mkdir(mode if directory == path else 0o777, exist_ok=True)
            sync_name(directory)


def sync_name(path: Path) -> None:
    """Flush the name of ``path`` to disk. Raises ``OSError``."""
    try:
        sync_directory(path.parent)
    except PermissionError:  # a directory that this user may write to but not read cannot be opened
        os.sync()


def sync_directory(directory: Path) -> None:
    """Flush the names in ``directory`` to disk, so that files that were created or renamed in it survive a crash."""
    reached(FaultPoint.DIRECTORY_SYNC, directory)
    with opened(directory, _OPEN) as descriptor:
        os.fsync(descriptor)


def sync_file_system(path: Path) -> None:
    """Flush the whole file system of ``path`` to disk. Raises ``OSError``.

    For many files, this is faster than syncing each of them.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with opened(path, OPEN_DIRECTORY) as descriptor:
        if libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
