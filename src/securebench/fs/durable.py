"""Writing so that it stays written. Every :class:`OSError` here becomes a :class:`StorageError`."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from securebench.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HINTS = {
    errno.EROFS: "it is on a file system that is mounted read-only",
    errno.EACCES: "let this user write there",
    errno.EPERM: "let this user write there",
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space: this user's quota is used up",
    errno.EMFILE: "raise the limit of open files (ulimit -n), or run fewer tasks at once (--workers)",
    errno.ENFILE: "see what on this machine has so many files open",
}


def storage_hint(number: int | None) -> str:
    """Return what to do about an error of the disk with this ``errno``."""
    what = _HINTS.get(number or 0, "see whether the disk is in order (dmesg)")
    return f"{what}; then continue with --resume: what is recorded stays"


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an :class:`OSError` into a :class:`StorageError` that names ``path`` and says what to do."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}", hint=storage_hint(error.errno)) from error


def write_at_once(descriptor: int, line: bytes) -> None:
    """Write a whole line, by one call. Raises :class:`OSError`, also for one that was only begun."""
    if os.write(descriptor, line) != len(line):
        raise OSError(errno.ENOSPC, "the disk took only a part of a line")


def sync_directory(directory: Path) -> None:
    """Flush the names in ``directory`` to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Make ``path`` hold ``data``, or leave it as it was: whatever happens, never something between.

    ``mode`` is what a new file is created with, before the umask.
    """
    beside = temporary_name(path)
    with storage_errors(path):
        beside.unlink(missing_ok=True)  # one that a killed run left may have another mode
        with open(beside, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        sync_directory(path.parent)


def temporary_name(path: Path) -> Path:
    """Return the name under which a new content of ``path`` is written first."""
    return path.with_name(f".{path.name}.new")
