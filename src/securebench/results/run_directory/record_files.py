"""Read the records of a run strictly: the one reader for resuming, showing, comparing and checking runs.

A run directory may come from a stranger, and another process may be writing to it. Lines, sizes and nesting are
bounded, and no link is followed.
"""

from __future__ import annotations

import heapq
from collections import Counter
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from securebench.errors import ConfigError, SourceLocation
from securebench.fs.append_log import is_torn
from securebench.results.recorded_task import MAX_LINE, RecordedTask, parse_recorded_task
from securebench.results.records.chain import line_hash
from securebench.results.records.record import VerificationStatus
from securebench.results.records.strict_json import CONVERTED
from securebench.results.records.strict_record import contradiction
from securebench.results.run_directory.closing import RecordTally
from securebench.results.run_directory.files import JOURNAL, SUPERSEDED, numbered_lines
from securebench.results.run_directory.header import HEADER, HEADER_VERSION, read_header
from securebench.strict_input.faults import shown
from securebench.strict_input.files import open_regular
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from securebench.results.records.identity import RunIdentity
    from securebench.results.run_directory.header import RunHeader

_RESTORE: Final = "restore the file from a backup, or start a new run with another --output-dir"


class RecordLine(NamedTuple):
    """A line of a file of records, whose ``number`` counts from 1."""

    name: str
    number: int
    hash: str
    record: RecordedTask
    data: bytes
    """The line itself."""

    @property
    def sequence(self) -> int:
        """The number of the record among all records of the run."""
        return self.record.sequence

    @property
    def is_current(self) -> bool:
        """Whether the line is in the journal. A line in ``superseded.jsonl`` is not current."""
        return self.name == JOURNAL


class RecordFiles:
    """The two files of records of a run. Iterating reads them once, and keeps only ids and digests in memory.

    Lines come in the order of their sequence numbers. If a run was killed while it superseded records, they may be in
    both files; the line in the journal then comes first. A line that is still being written is left out. At the end,
    ``tally`` has counted all records, and is checked against the closing of the run.

    Iterating raises :class:`ConfigError`, which names the file and, if possible, the line. The code is
    ``journal-damaged``, ``record-contradictory``, ``chain-broken``, ``record-foreign``, ``closing-mismatch``,
    ``file-not-regular`` or ``file-unreadable``.
    """

    def __init__(
        self,
        directory: Path,
        header: RunHeader,
        identity: RunIdentity | None = None,
        shown_as: Path | None = None,
        on_problem: Callable[[ConfigError], None] | None = None,
    ) -> None:
        """If ``identity`` is given, all records must match it.

        ``shown_as`` is the directory as the user named it, for error messages. If ``on_problem`` is given, it is
        called with each error, and reading continues; otherwise errors are raised. ``on_problem`` may raise to stop.
        """
        self._on_problem = on_problem
        self._directory = directory
        self._header = header
        self._identity = identity
        self._shown = shown_as or directory
        self._is_chained = header.version >= HEADER_VERSION
        self._run_digest = header.run_digest
        self._own = {
            "record_version": header.version,
            "run_id": header.run_id,
            "benchmark_id": header.benchmark_id,
        }
        self._trials, self._planned_tasks = header.trials, header.planned_tasks
        self._torn: ConfigError | None = None
        """The error for the last line of the journal, if that line is incomplete."""
        self.tally = RecordTally(header.genesis)

    def __iter__(self) -> Iterator[RecordLine]:
        """Yield the lines of both files. Iterate only once."""
        tally, attempts = self.tally, Counter[TrialId]()
        current: set[TrialId] = set()
        tasks: set[str] = set()
        before: RecordLine | None = None
        with ExitStack() as stack:
            # The journal first: a resumed run adds records to superseded.jsonl before it takes them out of the journal.
            files = [(name, self._opened(name, stack)) for name in (JOURNAL, SUPERSEDED)]
            lines = (self._lines(name, file) for name, file in files if file)
            for line in heapq.merge(*lines, key=lambda line: line.sequence):
                record = line.record
                if before is not None and before.sequence == line.sequence:
                    self._require_copy(line, before)
                else:
                    self._require_next(line, before, attempts)
                    tally.number, tally.last = tally.number + 1, line.hash
                if record.candidate_digest:
                    tally.candidates.add(record.candidate_digest)
                if line.is_current:
                    tasks.add(record.task_id)
                    self._require_planned(line, len(tasks), record.id in current)
                    current.add(record.id)
                    tally.statuses[record.status.value] += 1
                else:
                    tally.superseded += 1
                before = line
                yield line
        self._require_closing()

    def _opened(self, name: str, stack: ExitStack) -> IO[bytes] | None:
        """Open a file of records; ``None`` if it does not exist (as before the first record) or was refused."""
        try:
            return stack.enter_context(open_regular(self._directory / name, "file of records"))
        except ConfigError as error:
            if error.code != "file-missing":
                self._refuse(error)
            return None

    def _refuse(self, error: ConfigError) -> None:
        """Raise ``error``, or call ``on_problem`` with it and continue."""
        if self._on_problem is None:
            raise error
        self._on_problem(error)

    def _lines(self, name: str, file: IO[bytes]) -> Iterator[RecordLine]:
        """Yield the lines of one file. A partly written record at the end of the journal is left out.

        A complete record at the end of the journal that lacks only its newline is yielded. In ``superseded.jsonl``, a
        partly written record and a missing newline are errors, because that file is always replaced as a whole.
        """
        last, path = -1, str(self._shown / name)
        torn: ConfigError | None = None
        for number, data in numbered_lines(file, MAX_LINE):
            if torn:
                self._refuse(torn)  # it is not the last line
                torn = None
            location = SourceLocation(path, number)
            try:
                record = parse_recorded_task(data)
            except (ValueError, TypeError, RecursionError) as error:
                invalid = damaged(f"invalid record: {error}", location)
                if name == JOURNAL and is_torn(data) and len(data) <= MAX_LINE:
                    torn = invalid
                else:
                    self._refuse(invalid)
                continue
            if self._is_chained and (why := contradiction(record.raw)):
                self._refuse(_refused(f"the record contradicts itself: {why}", "record-contradictory", location))
            if data.endswith(b"\r\n"):
                self._refuse(damaged(CONVERTED, location))
            if name == SUPERSEDED and not data.endswith(b"\n"):
                self._refuse(damaged("the last line has no newline", location))
            if why := self._foreign(record):
                foreign = ConfigError(
                    f"the record belongs to another run: {why}",
                    code="record-foreign",
                    hint=f"records of two runs are never mixed: {_RESTORE}",
                    location=location,
                )
                self._refuse(foreign)
            if record.sequence <= last:
                self._refuse(broken("the records are not in the order of their sequence numbers", location))
            last = record.sequence
            yield RecordLine(name, number, line_hash(data), record, data)
        self._torn = torn or self._torn

    def _foreign(self, record: RecordedTask) -> str:
        """Return why ``record`` does not belong to this run: the first value that differs. Empty if none differs."""
        for name, value in self._own.items():
            if record.raw[name] != value:
                return f"expected {name} {shown(str(value))}, got {shown(str(record.raw[name]))}"
        if self._is_chained and record.provenance.get("run") != self._run_digest:
            return "its 'provenance.run' is not the digest of this run's settings"
        return self._identity.foreign(record.raw) if self._identity else ""

    def _require_next(self, line: RecordLine, before: RecordLine | None, attempts: Counter[TrialId]) -> None:
        """Refuse the record unless it continues the chain and has the next attempt number of its trial.

        A superseded record must also have the status ``error``. Records of older format versions have no chain: only
        their sequence numbers are checked.
        """
        record, number = line.record, before.sequence + 1 if before else 0
        if record.sequence != number:
            problem = f"expected the record with the sequence number {number}, not {record.sequence}"
            self._refuse(broken(problem, self._location(line)))
        if not self._is_chained:
            return
        if record.sequence == number and record.raw["previous"] != self.tally.last:
            what = f"the record with the sequence number {number - 1}" if number else "the run's id, start and nonce"
            problem = f"'previous' is not the hash of {what}: 'previous' or the hashed data was changed"
            self._refuse(broken(problem, self._location(line)))
        attempts[record.id] += 1
        if record.attempt != attempts[record.id]:
            problem = (
                f"'provenance.attempt' is {record.attempt}, but this is attempt {attempts[record.id]} "
                f"at task {shown(str(record.id))}"
            )
            self._refuse(broken(problem, self._location(line)))
        if not line.is_current and record.status is not VerificationStatus.ERROR:
            problem = f"a superseded record must have the status 'error', not {record.status.value!r}"
            self._refuse(broken(problem, self._location(line)))

    def _require_copy(self, line: RecordLine, other: RecordLine) -> None:
        if line.hash != other.hash or line.name == other.name:
            self._refuse(broken(f"two records have the sequence number {line.sequence}", self._location(line)))

    def _require_planned(self, line: RecordLine, tasks: int, is_known: bool) -> None:  # noqa: FBT001
        record = line.record
        if is_known:
            self._refuse(damaged(f"task {shown(str(record.id))} has more than one record", self._location(line)))
        if record.trial > self._trials or tasks > self._planned_tasks:
            trial = f"trial {shown(str(record.trial))} of task {shown(record.task_id)}"
            self._refuse(damaged(f"{trial} was not planned", self._location(line)))

    def _require_closing(self) -> None:
        """Refuse a closed run's records if they do not match its closing, or if the journal ends in a partial line."""
        closing = self._header.closing
        problems = closing.differences(self.tally, self._header.planned) if closing else []
        if closing is None or not (problems or self._torn):
            return
        # If the run was resumed after this header was read, it has more records than the closing in the header says.
        if self._on_problem is None and read_header(self._directory) != self._header:
            return
        if self._torn:
            self._refuse(self._torn)
        for problem in problems:
            error = ConfigError(
                f"the records do not match the section 'closing' of run.json: {problem}",
                code="closing-mismatch",
                hint="do not use this run directory as evidence: ask for an unchanged copy",
                location=SourceLocation(str(self._shown / HEADER)),
            )
            self._refuse(error)

    def _location(self, line: RecordLine) -> SourceLocation:
        return SourceLocation(str(self._shown / line.name), line.number)


def damaged(what: str, location: SourceLocation) -> ConfigError:
    """Return the error for a damaged line: for example, its record is invalid, or was not planned."""
    return _refused(what, "journal-damaged", location)


def broken(what: str, location: SourceLocation) -> ConfigError:
    """Return the error for a chain in which a record was changed, removed, added or moved."""
    return _refused(what, "chain-broken", location)


def _refused(what: str, code: str, location: SourceLocation) -> ConfigError:
    hint = f"{_RESTORE} (SecureBench has changed nothing)"
    return ConfigError(f"the records are damaged: {what}", code=code, hint=hint, location=location)
