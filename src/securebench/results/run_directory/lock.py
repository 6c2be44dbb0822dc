"""A lock so that only one process at a time writes to a run directory."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from securebench.errors import ConfigError, StorageError
from securebench.fs.durable import storage_errors
from securebench.fs.safe_open import opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OWNER_FILE: Final = "owner.json"
"""The file that names the owner of the lock, for error messages. The lock itself is a ``flock`` on the directory."""


_RETRY_SECONDS: Final = 0.5
"""How long a new run tries to get the lock, in seconds: a reader may hold it for a moment (:func:`is_locked`)."""


def is_locked(directory: Path) -> bool:
    """Return whether a run is writing to ``directory``. False if that cannot be found out."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)  # a flock can only be tested by taking it
    except OSError:
        return False
    finally:
        os.close(descriptor)


@contextmanager
def reading(directory: Path) -> Iterator[None]:
    """Keep runs from writing to ``directory``. Raises :class:`ConfigError` (``run-active``) if a run is writing to it.

    Where the file system has no locks, nothing is locked.
    """
    with opened(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as descriptor:
        try:
            is_free = _try_lock(descriptor, fcntl.LOCK_SH)
        except OSError:
            is_free = True
        if not is_free:
            raise ConfigError(
                f"a run is writing to {directory}",
                code="run-active",
                hint="wait until it has finished; 'securebench status DIR --watch' shows its progress",
            )
        yield


class RunLock:
    """An exclusive lock on a directory; a context manager.

    Raises :class:`ConfigError` if another process holds the lock or the file system has no locks. Raises
    :class:`StorageError` if the directory cannot be opened, locked or written.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor = -1

    def __enter__(self) -> Self:
        with storage_errors(self._directory):
            self._descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._acquire()
            with storage_errors(self._directory / OWNER_FILE):
                (self._directory / OWNER_FILE).write_text(json.dumps(_owner()) + "\n", encoding="ascii")
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            (self._directory / OWNER_FILE).unlink(missing_ok=True)
        except OSError:
            pass  # only informative; the next owner overwrites it
        finally:
            os.close(self._descriptor)

    def _acquire(self) -> None:
        deadline = time.monotonic() + _RETRY_SECONDS
        try:
            while not _try_lock(self._descriptor, fcntl.LOCK_EX):
                if time.monotonic() >= deadline:
                    raise ConfigError(
                        f"another process is using {self._directory} ({self._holder()})",
                        code="output-dir-locked",
                        hint="wait until it has finished, or choose another --output-dir for this run",
                    )
                time.sleep(_RETRY_SECONDS / 10)
        except OSError as error:
            if error.errno not in {errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF, errno.ENOSYS, errno.EINVAL}:
                raise StorageError(f"cannot lock {self._directory}: {error.strerror}") from error
            raise ConfigError(
                f"the file system of {self._directory} does not support locks: {error.strerror}",
                code="output-dir-unlockable",
                hint="choose an --output-dir on a local disk",
            ) from error

    def _holder(self) -> str:
        try:
            owner = json.loads((self._directory / OWNER_FILE).read_text(encoding="ascii"))
            return f"process {int(owner['pid'])}, since {owner['since']!s:.40}"
        except (OSError, ValueError, KeyError, TypeError):
            return "process unknown"


def _owner() -> dict[str, str | int]:
    return {"pid": os.getpid(), "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def _try_lock(descriptor: int, kind: int) -> bool:
    """Take the lock and return true, or return false if it conflicts with a lock that is already held.

    Raises ``OSError`` if the file system does not support locks.
    """
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
