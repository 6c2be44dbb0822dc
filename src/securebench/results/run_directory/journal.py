"""The journal, ``candidates.jsonl``: the authoritative records of a run.

Each record is appended as one line, and is on disk before the run continues. Opening the journal repairs what
a killed writer left at the end: after a complete record, it adds the missing newline; a partial record is moved to
``candidates.jsonl.torn-N``. Any other damage is an error.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Self

from securebench.fs.append_log import AppendLog
from securebench.fs.durable import storage_errors, write_durably
from securebench.results.records.chain import line_hash
from securebench.results.records.strict_record import read_entry
from securebench.results.records.usage import Usage
from securebench.results.run_directory.files import JOURNAL, SUPERSEDED
from securebench.results.run_directory.record_files import RecordFiles

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from securebench.results.records.identity import RunIdentity
    from securebench.results.records.record import RecordEntry, TaskRecord
    from securebench.results.run_directory.header import RunHeader
    from securebench.trials import TrialId


class Journal:
    """An open journal; a context manager. The caller holds the lock of its directory.

    ``entries`` maps each trial to a summary of its record. Whole records are never kept in memory.
    """

    def __init__(self, directory: Path, header: RunHeader, identity: RunIdentity | None = None) -> None:
        """Open and repair the journal of the run that ``header`` describes.

        If ``identity`` is given, all records must match it. Raises :class:`StorageError` and the errors of
        :class:`RecordFiles`.
        """
        self.path = directory / JOURNAL
        self._superseded = directory / SUPERSEDED
        self.entries: dict[TrialId, RecordEntry] = {}
        self._past: dict[TrialId, RecordEntry] = {}
        # Read everything before the repair, so that a damaged journal is not changed.
        files = RecordFiles(directory, header, identity)
        for line in files:
            entries = self.entries if line.is_current else self._past
            entries[line.record.id] = line.record.entry
        self._sequence, self._last = files.tally.number, files.tally.last
        self._log = AppendLog(self.path, sync=True, is_whole=_is_record)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()

    def append(self, record: TaskRecord) -> RecordEntry:
        """Write ``record`` to disk.

        Raises :class:`StorageError`. Raises ``ValueError`` if the trial already has a record. After either error, the
        file is unchanged.
        """
        line = record.line(self._sequence, self._last)
        entry = read_entry(line)
        if entry.id in self.entries:
            raise ValueError(f"task '{entry.id}' already has a record")
        self._log.append(line)
        self.entries[entry.id] = entry
        self._sequence, self._last = self._sequence + 1, line_hash(line)
        return entry

    def attempts(self, trial: TrialId) -> int:
        """Return the number of recorded attempts at a trial, including those whose records are superseded."""
        known = (self.entries.get(trial), self._past.get(trial))
        return max((entry.attempt for entry in known if entry), default=0)

    def spent(self, trial: TrialId) -> Usage:
        """Return the usage of all recorded attempts at a trial."""
        entry = self.entries.get(trial) or self._past.get(trial)
        return (entry.usage if entry else None) or Usage()

    def judge_spent(self, trial: TrialId) -> Usage:
        """Return what the judge model used in all recorded attempts at a trial."""
        entry = self.entries.get(trial) or self._past.get(trial)
        return (entry.judge_usage if entry else None) or Usage()

    def set_aside(self) -> Iterator[RecordEntry]:
        """Yield the last superseded record of each trial that has no current record."""
        return (entry for name, entry in self._past.items() if name not in self.entries)

    def unverified(self, trial: TrialId) -> dict[str, Any] | None:
        """Return the last superseded record of a trial if its candidate is sealed and only needs verification.

        Otherwise return ``None``.
        """
        entry = self._past.get(trial)
        if entry is None or not entry.can_be_verified:
            return None
        with storage_errors(self._superseded), self._superseded.open("rb") as file:
            found = next(line for line in file if read_entry(line).sequence == entry.sequence)
        record: dict[str, Any] = json.loads(found)
        return record

    def supersede(self, trials: Collection[TrialId]) -> None:
        """Move the records of ``trials`` to ``superseded.jsonl``. A killed run may leave them in both files."""
        if not trials:
            return
        numbers = {number for number, name in enumerate(self.entries) if name in trials}  # entries are in line order
        with storage_errors(self.path), self.path.open("rb") as file:
            self._keep_aside([line for number, line in enumerate(file) if number in numbers])
            file.seek(0)
            self._log.rewrite(line for number, line in enumerate(file) if number not in numbers)
        moved = {name: entry for name, entry in self.entries.items() if name in trials}
        self._past |= moved
        self.entries = {name: entry for name, entry in self.entries.items() if name not in moved}

    def _keep_aside(self, lines: list[bytes]) -> None:
        """Add ``lines`` to ``superseded.jsonl``, except those that a killed run already added."""
        present = self._superseded.read_bytes() if self._superseded.exists() else b""
        known = set(present.splitlines(keepends=True))
        write_durably(self._superseded, present + b"".join(line for line in lines if line not in known))


def _is_record(line: bytes) -> bool:
    """Return whether a last line without a newline is a complete record."""
    try:
        read_entry(line)
    except (ValueError, TypeError, RecursionError):
        return False
    return True
