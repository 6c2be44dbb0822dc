"""Append-only logs: one writer, one line for each write, and no partial line that could be mistaken for a whole one.

A killed process, a full disk or a power failure can leave a partial line at the end. Opening the log moves that part
into a file next to it, ``NAME.torn-N``, so that the next line is not joined to it and nothing is lost.

Lines never contain a NUL. After a power failure, the last line may end in a newline and still contain NULs, because
parts of it did not reach the disk. Such a line counts as partial.
"""

from __future__ import annotations

import errno
import itertools
import os
from typing import TYPE_CHECKING, Final, Self

from securebench.faults import FaultPoint, reached
from securebench.fs.durable import storage_errors, sync_directory, temporary_name
from securebench.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

# O_APPEND: if a write fails and the file is truncated, the next write appends at the new end without a seek.
_OPEN: Final = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_MODE: Final = 0o644


class AppendLog:
    """An open log; a context manager. One thread at a time may use it. ``path`` must not be a link.

    With ``sync``, every line is on disk when :meth:`append` returns, and so is the name of the file. ``limit`` is the
    largest size in bytes. ``is_whole`` decides whether a last line without a newline is otherwise complete; by default,
    such a line counts as torn. ``size`` is the length of all whole lines in bytes. Methods raise :class:`StorageError`.
    """

    def __init__(
        self,
        path: Path,
        *,
        sync: bool = False,
        limit: int | None = None,
        is_whole: Callable[[bytes], bool] = lambda _line: False,
    ) -> None:
        self.path = path
        self.size = 0
        self._sync = sync
        self._limit = limit
        with storage_errors(path):
            reached(FaultPoint.FILE_OPEN, path)
            self._descriptor = os.open(path, _OPEN, _MODE)
            try:
                self._repair(is_whole)
                if sync:
                    os.fsync(self._descriptor)  # a killed process may not have synced its last line
                    sync_directory(path.parent)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def is_closed(self) -> bool:
        """Whether the log is closed."""
        return self._descriptor < 0

    def append(self, line: bytes) -> bool:
        """Write ``line``, which ends in a newline. Return ``False`` and write nothing if the log would be too large.

        If this raises :class:`StorageError`, the file is as it was before.
        """
        if self._limit is not None and self.size + len(line) > self._limit:
            return False
        with storage_errors(self.path):
            try:
                reached(FaultPoint.FILE_WRITE, self.path)
                _write_at_once(self._descriptor, line)
                if self._sync:
                    reached(FaultPoint.FILE_SYNC, self.path)
                    os.fsync(self._descriptor)
            except OSError:
                os.ftruncate(self._descriptor, self.size)
                raise
        self.size += len(line)
        return True

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Replace all lines at once: whatever happens, the file has either the old ones or the new ones."""
        beside = temporary_name(self.path)
        with storage_errors(self.path):
            beside.unlink(missing_ok=True)
            reached(FaultPoint.FILE_OPEN, self.path)
            descriptor = os.open(beside, _OPEN | os.O_EXCL, _MODE)
            try:
                reached(FaultPoint.FILE_WRITE, self.path)
                with open(descriptor, "wb", closefd=False) as file:
                    file.writelines(lines)
                reached(FaultPoint.FILE_SYNC, self.path)
                os.fsync(descriptor)
                reached(FaultPoint.FILE_RENAME, self.path)
                beside.replace(self.path)
            except BaseException:
                os.close(descriptor)
                beside.unlink(missing_ok=True)
                raise
            self.close()
            self._descriptor, self.size = descriptor, os.fstat(descriptor).st_size
            sync_directory(self.path.parent)

    def _repair(self, is_whole: Callable[[bytes], bool]) -> None:
        """Repair a partial last line: add its newline if only that is missing, otherwise move it to ``NAME.torn-N``."""
        end = os.fstat(self._descriptor).st_size
        start = _start_of_last_line(self._descriptor, end)
        tail = os.pread(self._descriptor, end - start, start)
        if not is_torn(tail):
            self.size = end
            return
        self.size = start
        if is_whole(tail):
            self.size = end
            self.append(b"\n")
            return
        numbers = itertools.count(1)
        names = (self.path.with_name(f"{self.path.name}.torn-{number}") for number in numbers)
        with next(path for path in names if not os.path.lexists(path)).open("xb") as file:
            file.write(tail)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self.path.parent)  # the copy must be on disk before the original is cut
        os.ftruncate(self._descriptor, self.size)
        os.fsync(self._descriptor)


def _write_at_once(descriptor: int, line: bytes) -> None:
    """Write a line with one call. Raise ``OSError`` for a short write: the disk is full or a size limit is reached."""
    if os.write(descriptor, line) != len(line):
        raise OSError(errno.ENOSPC, "the disk accepted only a part of a line")


def is_torn(line: bytes) -> bool:
    """Return whether ``line``, the last of a log, is only partly written. An empty line is not torn."""
    return bool(line) and (not line.endswith(b"\n") or b"\0" in line)


def _start_of_last_line(descriptor: int, end: int) -> int:
    """Search backwards from ``end`` and return the offset of the last line, with or without a newline."""
    end -= 1
    while end > 0:
        start = max(0, end - MIB)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
