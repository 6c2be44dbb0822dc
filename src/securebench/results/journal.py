"""The journal, ``candidates.jsonl``: the authoritative records of a run.

Each record is one line in an append-only log, and is on disk before the run continues. Opening the journal repairs the
traces of a killed writer: a complete record without its newline gets one, and a partial record is moved aside. Any
other damage is an error.
"""

from __future__ import annotations

import json
import os
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Self

from securebench.errors import ConfigError, SourceLocation
from securebench.fs.append_log import AppendLog
from securebench.fs.durable import storage_errors, write_durably
from securebench.results.record import RecordEntry, entry_of, read_entry, read_record
from securebench.results.usage import Usage
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from securebench.results.identity import RunIdentity
    from securebench.results.record import TaskRecord
    from securebench.trials import TrialId

JOURNAL: Final = "candidates.jsonl"
SUPERSEDED: Final = "superseded.jsonl"
"""The file for the ``error`` records of trials that were run again."""

_RESTORE: Final = "restore the file from a backup, or start a new run with another --output-dir"


class Journal:
    """An open journal; a context manager. The caller holds the lock of its directory.

    ``entries``: a summary of each record, by task and trial. Whole records are never kept in memory.
    """

    def __init__(self, directory: Path, identity: RunIdentity | None = None) -> None:
        """Open and repair the journal. If ``identity`` is given, all records must belong to that run.

        Raises :class:`ConfigError` (``journal-damaged``, ``record-foreign``, ``file-not-regular``) and
        :class:`StorageError`.
        """
        self._identity = identity
        self.path = directory / JOURNAL
        self._superseded = directory / SUPERSEDED
        for path in (self.path, self._superseded):
            if os.path.lexists(path):  # opening a FIFO would block
                open_regular(path, "journal").close()
        # Read everything before the repair, so that a damaged journal is not changed.
        self.entries = self._read_entries()
        past = self._read_superseded()
        self._past = {entry.id: entry for entry in past}
        here = [entry.sequence for entry in self.entries.values()]
        self._sequence = next_sequence(directory, here, [entry.sequence for entry in past])
        self._log = AppendLog(self.path, sync=True, is_whole=_is_record)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()

    def append(self, record: TaskRecord) -> RecordEntry:
        """Write ``record`` to disk. Raises :class:`StorageError`; the file is then unchanged."""
        line = record.line(self._sequence)
        entry = read_entry(line)
        if entry.id in self.entries:
            raise ValueError(f"task '{entry.id}' already has a record")
        self._log.append(line)
        self.entries[entry.id] = entry
        self._sequence += 1
        return entry

    def attempts(self, trial: TrialId) -> int:
        """Return the number of attempts at a trial, including superseded ones."""
        known = (self.entries.get(trial), self._past.get(trial))
        return max((entry.attempt for entry in known if entry), default=0)

    def spent(self, trial: TrialId) -> Usage:
        """Return the usage of all recorded attempts at a trial."""
        entry = self.entries.get(trial) or self._past.get(trial)
        return (entry.usage if entry else None) or Usage()

    def set_aside(self) -> Iterator[RecordEntry]:
        """Yield the last superseded record of each trial that has no other record."""
        return (entry for name, entry in self._past.items() if name not in self.entries)

    def unverified(self, trial: TrialId) -> dict[str, Any] | None:
        """Return the superseded record of a trial whose sealed candidate only needs verification, or ``None``."""
        entry = self._past.get(trial)
        if entry is None or not entry.can_be_verified:
            return None
        with storage_errors(self._superseded), self._superseded.open("rb") as file:
            found = next(line for line in file if read_entry(line).sequence == entry.sequence)
        record: dict[str, Any] = json.loads(found)
        return record

    def supersede(self, trials: Collection[TrialId]) -> None:
        """Move the records of ``trials`` from the journal to ``superseded.jsonl``, atomically."""
        if not trials:
            return
        with storage_errors(self.path), self.path.open("rb") as file:
            self._keep_aside([line for line in file if read_entry(line).id in trials])
            file.seek(0)
            self._log.rewrite(line for line in file if read_entry(line).id not in trials)
        moved = {name: entry for name, entry in self.entries.items() if name in trials}
        self._past |= moved
        self.entries = {name: entry for name, entry in self.entries.items() if name not in moved}

    def _read_entries(self) -> dict[TrialId, RecordEntry]:
        entries: dict[TrialId, RecordEntry] = {}
        if not self.path.exists():
            return entries
        with storage_errors(self.path), self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n") or _is_record(line):
                    location = SourceLocation(str(self.path), number)
                    _add(entries, _read(line, location, self._identity), location)
        return entries

    def _read_superseded(self) -> list[RecordEntry]:
        if not self._superseded.exists():
            return []
        with storage_errors(self._superseded), self._superseded.open("rb") as file:
            return [
                _read(line, SourceLocation(str(self._superseded), number), self._identity)
                for number, line in enumerate(file, start=1)
            ]

    def _keep_aside(self, lines: list[bytes]) -> None:
        """Add ``lines`` to ``superseded.jsonl``, except those that a killed run already added."""
        present = self._superseded.read_bytes() if self._superseded.exists() else b""
        known = set(present.splitlines(keepends=True))
        write_durably(self._superseded, present + b"".join(line for line in lines if line not in known))


def iterate_entries(path: Path) -> Iterator[RecordEntry]:
    """Yield the summary of each line of a journal. Raises :class:`ConfigError` (``journal-damaged``)."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            yield _read(line, SourceLocation(str(path), number))


def next_sequence(directory: Path, journal: Sequence[int], superseded: Sequence[int]) -> int:
    """Return the next sequence number after those in the two files of records.

    Raises :class:`ConfigError` (``journal-damaged``) if a record is missing or misplaced: none is ever deleted.
    """
    for name, numbers in ((JOURNAL, journal), (SUPERSEDED, superseded)):
        if any(one >= other for one, other in pairwise(numbers)):
            raise damaged(
                "its records are not in the order of their sequence numbers", SourceLocation(str(directory / name))
            )
    # If a run was killed between the two writes, both files contain the same record: count it once.
    known = {*journal, *superseded}
    missing = next((number for number in range(len(known)) if number not in known), None)
    if missing is not None:
        raise damaged(
            f"the record with the sequence number {missing} is missing", SourceLocation(str(directory / JOURNAL))
        )
    return len(known)


def _add(entries: dict[TrialId, RecordEntry], entry: RecordEntry, location: SourceLocation) -> None:
    if entry.id in entries:
        raise damaged(f"task '{entry.id}' has more than one record", location)
    entries[entry.id] = entry


def _read(line: bytes, location: SourceLocation, identity: RunIdentity | None = None) -> RecordEntry:
    try:
        record = read_record(line)
        entry = entry_of(record)
    except (ValueError, TypeError, RecursionError) as error:
        raise damaged(f"invalid record: {error}", location) from error
    if identity is not None and (why := identity.foreign(record)):
        raise ConfigError(
            f"the record belongs to another run: {why}",
            code="record-foreign",
            hint=f"records of two runs are never mixed: {_RESTORE}",
            location=location,
        )
    return entry


def damaged(what: str, location: SourceLocation) -> ConfigError:
    """Return the error for a damaged file of records."""
    return ConfigError(
        f"the journal is damaged: {what}",
        code="journal-damaged",
        hint=f"nothing was changed: {_RESTORE}",
        location=location,
    )


def _is_record(line: bytes) -> bool:
    """Return whether a last line without a newline is a complete record."""
    try:
        read_entry(line)
    except (ValueError, TypeError, RecursionError):
        return False
    return True
