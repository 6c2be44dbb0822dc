"""Locks between processes: files with a kernel lock (``flock``), which ends when its holder closes it or dies."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOCK_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def take(path: Path, *, shared: bool = False, wait: bool = True) -> int | None:
    """Lock the file ``path``, creating it if needed. Return the descriptor that holds the lock; close it to release.

    ``None`` if another process holds the lock and ``wait`` is false.
    """
    mode = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    while True:
        descriptor = os.open(path, _LOCK_FILE, 0o600)
        try:
            fcntl.flock(descriptor, mode)
            if _is_at(descriptor, path):  # the previous holder may have removed the file while this one waited
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of ``path``."""
    descriptor = take(path)
    assert descriptor is not None
    try:
        yield
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False
