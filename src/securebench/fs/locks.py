"""Locks between processes: files that carry a lock of the kernel's, which ends with whoever held it."""

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
    """Lock the file ``path``, which is made where it is missing, and return the descriptor that holds the lock.

    Closing it lets go. ``None`` where somebody else holds it and this does not ``wait``.
    """
    mode = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    while True:
        descriptor = os.open(path, _LOCK_FILE, 0o600)
        try:
            fcntl.flock(descriptor, mode)
            if _is_at(descriptor, path):  # and not removed by who held it before
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
    """Hold the lock of ``path`` alone."""
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
