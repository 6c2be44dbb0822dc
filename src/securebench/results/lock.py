"""A lock so that only one process at a time writes to a run directory."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from typing import TYPE_CHECKING, Final, Self

from securebench.errors import ConfigError, StorageError
from securebench.fs.durable import storage_errors

if TYPE_CHECKING:
    from pathlib import Path

OWNER_FILE: Final = "owner.json"
"""Names the owner of the lock, for error messages. The lock itself is ``flock``, which ends with its process."""


class RunLock:
    """An exclusive lock on a directory; a context manager. Raises :class:`ConfigError` if another process holds it."""

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
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another run is writing to {self._directory} ({self._holder()})",
                code="output-dir-locked",
                hint="wait until it has finished, or choose another --output-dir for this run",
            ) from None
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
