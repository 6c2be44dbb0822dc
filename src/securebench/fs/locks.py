"""Locks between processes: kernel locks (``flock``), which end when their holder closes them or dies."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from securebench.fs.safe_open import OPEN_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOCK_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def take(path: Path, *, shared: bool = False) -> int:
    """Lock ``path``: a directory, or a file, which is created if needed.

    Return the descriptor that holds the lock; close it to release.
    """
    descriptor = _take(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    assert descriptor is not None
    return descriptor


def take_now(path: Path) -> int | None:
    """Lock ``path`` like :func:`take`, or return ``None`` if it is already locked."""
    return _take(path, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of ``path`` in this block."""
    descriptor = take(path)
    try:
        yield
    finally:
        os.close(descriptor)


def _take(path: Path, mode: int) -> int | None:
    flags = OPEN_DIRECTORY if path.is_dir() else _LOCK_FILE
    while True:
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, mode)
            if _is_at(descriptor, path):  # the previous holder of the lock may have removed the file meanwhile
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False
