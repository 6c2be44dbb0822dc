"""The journal, ``candidates.jsonl``: the truth about a run.

One writer. A record is one line, one write, flushed to disk before the run goes on. What a killed writer left is
mended when the journal is opened: a whole record that lacks its newline gets it; a torn one is moved aside; damage
anywhere else is never mended by guessing, it stops the run.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import TYPE_CHECKING, Any, Final, Self

from securebench.errors import ConfigError, SourceLocation
from securebench.fs.durable import storage_errors, sync_directory, temporary_name, write_at_once, write_durably
from securebench.results.record import RecordEntry, entry_of, read_entry, read_record
from securebench.results.usage import Usage
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

    from securebench.results.identity import RunIdentity
    from securebench.results.record import TaskRecord

JOURNAL: Final = "candidates.jsonl"
SUPERSEDED: Final = "superseded.jsonl"
"""Where the ``error`` records of tasks that were run again are kept."""

_RESTORE: Final = "restore the file from a copy, or start again in another --output-dir"

_CREATE: Final = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Journal:
    """An open journal; a context manager. The caller holds the lock of its directory.

    ``entries`` says what is recorded, by task id; whole records are never kept in memory.
    """

    def __init__(self, directory: Path, identity: RunIdentity | None = None) -> None:
        """Open and mend. Records have to belong to the run ``identity``, if one is given.

        Raises :class:`ConfigError` (``journal-damaged``, ``record-foreign``, ``file-not-regular``) and
        :class:`StorageError`.
        """
        self._identity = identity
        self.path = directory / JOURNAL
        self._superseded = directory / SUPERSEDED
        for path in (self.path, self._superseded):
            if os.path.lexists(path):  # a pipe in its place would be waited for
                open_regular(path, "journal").close()
        with storage_errors(self.path):
            self._descriptor = os.open(self.path, _CREATE, 0o644)
        try:
            self.entries = self._recover()
            past = self._read_superseded()
            self._past = {entry.task_id: entry for entry in past}
            self._sequence = self._require_sequence([entry.sequence for entry in past])
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def append(self, record: TaskRecord) -> RecordEntry:
        """Write ``record`` and flush it to disk. Raises :class:`StorageError`; then nothing of it is in the file."""
        line = record.line(self._sequence)
        entry = read_entry(line)
        if entry.task_id in self.entries:
            raise ValueError(f"task {entry.task_id!r} has a record already")
        self._write(line)
        self.entries[entry.task_id] = entry
        self._sequence += 1
        return entry

    def attempts(self, task_id: str) -> int:
        """Return how many attempts at a task are on disk, here or superseded."""
        known = (self.entries.get(task_id), self._past.get(task_id))
        return max((entry.attempt for entry in known if entry), default=0)

    def spent(self, task_id: str) -> Usage:
        """Return what all attempts at a task used that are on disk."""
        entry = self.entries.get(task_id) or self._past.get(task_id)
        return (entry.usage if entry else None) or Usage()

    def set_aside(self) -> Iterator[RecordEntry]:
        """Yield what the last superseded record of each task says that has no other record."""
        return (entry for name, entry in self._past.items() if name not in self.entries)

    def unverified(self, task_id: str) -> dict[str, Any] | None:
        """Return the superseded record of a task whose sealed candidate only has to be judged, or ``None``."""
        entry = self._past.get(task_id)
        if entry is None or not entry.can_be_verified:
            return None
        with storage_errors(self._superseded), self._superseded.open("rb") as file:
            found = next(line for line in file if read_entry(line).sequence == entry.sequence)
        record: dict[str, Any] = json.loads(found)
        return record

    def supersede(self, task_ids: Collection[str]) -> None:
        """Move the records of ``task_ids`` out of the journal, into ``superseded.jsonl``. All or nothing."""
        if not task_ids:
            return
        with storage_errors(self.path), self.path.open("rb") as file:
            self._keep_aside([line for line in file if read_entry(line).task_id in task_ids])
            file.seek(0)
            self._replace(line for line in file if read_entry(line).task_id not in task_ids)
        moved = {name: entry for name, entry in self.entries.items() if name in task_ids}
        self._past |= moved
        self.entries = {name: entry for name, entry in self.entries.items() if name not in moved}

    def _write(self, line: bytes) -> None:
        with storage_errors(self.path):
            try:
                write_at_once(self._descriptor, line)
                os.fsync(self._descriptor)
            except OSError:
                os.ftruncate(self._descriptor, self._size)
                raise
        self._size += len(line)

    def _recover(self) -> dict[str, RecordEntry]:
        entries: dict[str, RecordEntry] = {}
        with storage_errors(self.path), self.path.open("rb") as file:
            sync_directory(self.path.parent)
            self._size = 0
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    self._repair_tail(line, entries)
                    break
                _add(entries, _read(line, location := SourceLocation(str(self.path), number), self._identity), location)
                self._size += len(line)
        return entries

    def _read_superseded(self) -> list[RecordEntry]:
        if not self._superseded.exists():
            return []
        with storage_errors(self._superseded), self._superseded.open("rb") as file:
            return [
                _read(line, SourceLocation(str(self._superseded), number), self._identity)
                for number, line in enumerate(file, start=1)
            ]

    def _require_sequence(self, superseded: list[int]) -> int:
        """Return the number of the next record, if none is missing before it: of all records none is ever removed."""
        here = [entry.sequence for entry in self.entries.values()]
        for path, numbers in ((self.path, here), (self._superseded, superseded)):
            if numbers != sorted(set(numbers)):
                raise _damaged("its records do not stand in the order of their numbers", SourceLocation(str(path)))
        # What a run that was killed between two writes left in both files is one record.
        known = {*here, *superseded}
        if missing := sorted(set(range(len(known))) - known):
            raise _damaged(f"the record with the sequence number {missing[0]} is gone", SourceLocation(str(self.path)))
        return len(known)

    def _repair_tail(self, tail: bytes, entries: dict[str, RecordEntry]) -> None:
        """Complete a last line that lacks only its newline; move any other aside."""
        try:
            entry = read_entry(tail)
        except (ValueError, TypeError, RecursionError):
            aside = _free_name(self.path)
            with aside.open("xb") as file:
                file.write(tail)
                file.flush()
                os.fsync(file.fileno())
            sync_directory(self.path.parent)
            os.ftruncate(self._descriptor, self._size)
            os.fsync(self._descriptor)
        else:
            _read(tail, SourceLocation(str(self.path), len(entries) + 1), self._identity)
            self._size += len(tail)
            self._write(b"\n")
            entries[entry.task_id] = entry

    def _keep_aside(self, lines: list[bytes]) -> None:
        """Add ``lines`` to ``superseded.jsonl``, but for those that a killed run put there before."""
        there = self._superseded.read_bytes() if self._superseded.exists() else b""
        known = set(there.splitlines(keepends=True))
        write_durably(self._superseded, there + b"".join(line for line in lines if line not in known))

    def _replace(self, lines: Iterable[bytes]) -> None:
        """Put a new file with ``lines`` in the journal's place."""
        beside = temporary_name(self.path)
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, _CREATE | os.O_EXCL, 0o644)
        with open(descriptor, "wb", closefd=False) as file:
            file.writelines(lines)
        os.fsync(descriptor)
        beside.replace(self.path)
        sync_directory(self.path.parent)
        os.close(self._descriptor)
        self._descriptor, self._size = descriptor, os.fstat(descriptor).st_size


def iterate_entries(path: Path) -> Iterator[RecordEntry]:
    """Yield what each line of a journal says, one at a time. Raises :class:`ConfigError` (``journal-damaged``)."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            yield _read(line, SourceLocation(str(path), number))


def _add(entries: dict[str, RecordEntry], entry: RecordEntry, location: SourceLocation) -> None:
    if entry.task_id in entries:
        raise _damaged(f"a second record of task {entry.task_id!r}", location)
    entries[entry.task_id] = entry


def _read(line: bytes, location: SourceLocation, identity: RunIdentity | None = None) -> RecordEntry:
    try:
        record = read_record(line)
        entry = entry_of(record)
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged(f"not a record: {error}", location) from error
    if identity is not None and (why := identity.foreign(record)):
        raise ConfigError(
            f"a record of another run: {why}",
            code="record-foreign",
            hint=f"records of two runs are never mixed: {_RESTORE}",
            location=location,
        )
    return entry


def _damaged(what: str, location: SourceLocation) -> ConfigError:
    return ConfigError(
        f"the journal is damaged: {what}",
        code="journal-damaged",
        hint=f"nothing was changed: {_RESTORE}",
        location=location,
    )


def _free_name(journal: Path) -> Path:
    """Return the first ``candidates.jsonl.torn-<n>`` that is not taken."""
    numbers = itertools.count(1)
    return next(path for n in numbers if not (path := journal.with_name(f"{journal.name}.torn-{n}")).exists())
