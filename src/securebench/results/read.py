"""Read a run back: one that is finished, interrupted or in progress, of this or an older version, from anybody.

A run directory may come from a stranger, so nothing in it is trusted: no link is followed, and lines, sizes and nesting
are bounded.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Final

from securebench.errors import ConfigError, SourceLocation
from securebench.printable import printable_line
from securebench.results.journal import JOURNAL, SUPERSEDED, damaged, next_sequence
from securebench.results.lock import is_locked
from securebench.results.part_of_pack import PartOfPack
from securebench.results.record import require_shallow
from securebench.results.recorded_task import MAX_LINE, RecordedTask, parse_recorded_task
from securebench.results.run_files import numbered_lines, opened_run_file
from securebench.results.run_header import HEADER, read_header
from securebench.results.running import read_running
from securebench.results.sealed import read_sealed
from securebench.results.summary import Counts, RunEnd, TesterRunSummary, count, estimate, total
from securebench.results.trajectory import MAX_LINES, MAX_TRAJECTORY, TRAJECTORIES
from securebench.results.usage import read_usage
from securebench.strict_input.faults import shown, similar
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from securebench.resources import JsonValue
    from securebench.results.record import RecordEntry
    from securebench.results.run_header import RunHeader
    from securebench.results.running import RunningSession
    from securebench.results.sealed import SealedCandidate
    from securebench.trials import TrialId

_SHOWN: Final = 200
"""Characters of a suggested id."""
_LEFT_OUT: Final = 1024
"""Bytes of the last line of a trajectory, which counts the lines left out."""


def read_run(directory: str | Path) -> RecordedRun:
    """Open the run in ``directory`` for reading. Nothing is written; a run in progress is not disturbed.

    Raises :class:`ConfigError`: ``run-missing``, ``run-version``, ``run-header-damaged``, ``file-not-regular``.
    """
    header = read_header(Path(directory).resolve(), older=True)
    if header is None:
        raise ConfigError(
            f"{directory} is not a run directory: it has no {HEADER}",
            code="run-missing",
            hint="give the --output-dir of a run",
        )
    return RecordedRun(Path(directory), header)


class RecordedRun:
    """A run on disk. Everything in it is untrusted. Each call of a method reads the files as they are then.

    ``directory`` is the path that was given, ``header`` the description of the run. All methods that read raise
    :class:`ConfigError` with the file and the line for damaged data.
    """

    def __init__(self, directory: Path, header: RunHeader) -> None:
        self.directory = directory
        self.header = header
        self._root = directory.resolve()
        self.run_id = self._text("run_id")
        self.benchmark_id = self._text("benchmark", "id")

    @property
    def label(self) -> str:
        """The name of the agent: ``harness.name`` of the tester YAML, or else the type of its harness."""
        harness = self._section("harness")
        return harness["name"] if isinstance(harness.get("name"), str) else self._text("harness", "type")

    @property
    def models(self) -> tuple[str, ...]:
        """The models that the run was configured for. Those that answered are in the records."""
        model = self._section("agent").get("model")
        return (model,) if isinstance(model, str) else ()

    @property
    def planned(self) -> int:
        """The number of planned trials: one record each, once the run is complete."""
        return self._number(self.header.information, "information", "planned")

    @property
    def trials(self) -> int:
        """The number of trials of each task."""
        return self._number(self.header.decisive, "trials") if "trials" in self.header.decisive else 1

    @property
    def selection(self) -> PartOfPack | None:
        """The selected part of the pack, or ``None`` if it is the whole."""
        tasks = self._number(self._section("pack"), "pack", "tasks")
        planned = self._planned_tasks
        return None if planned >= tasks else PartOfPack(planned, tasks, self._section("selection"))

    @property
    def is_active(self) -> bool:
        """Whether a process is writing to this run now."""
        return is_locked(self._root)

    def records(self) -> Iterator[RecordedTask]:
        """Yield the current record of each trial, in the order in which they finished.

        Memory is constant but for the ids. A line that is still being written is left out. At the end, the sequence
        numbers must show that no record was removed.
        """
        with ExitStack() as stack:
            # The journal first: a resumed run adds records to superseded.jsonl before it takes them out of the journal.
            journal = self._opened(JOURNAL, stack)
            superseded = self._opened(SUPERSEDED, stack)
            numbers: list[int] = []
            seen: set[TrialId] = set()
            tasks: set[str] = set()
            trials, planned_tasks = self.trials, self._planned_tasks
            for line, record in self._parsed(JOURNAL, journal):
                tasks.add(record.task_id)
                is_planned = record.trial <= trials and len(tasks) <= planned_tasks
                if record.id in seen or not is_planned:
                    no_trial = f"has no trial {shown(str(record.trial))} in this run"
                    location = SourceLocation(str(self.directory / JOURNAL), line)
                    problem = "has more than one record" if is_planned else no_trial
                    raise damaged(f"task {shown(record.task_id)} {problem}", location)
                seen.add(record.id)
                numbers.append(record.sequence)
                yield record
            next_sequence(self.directory, numbers, [item.sequence for _, item in self._parsed(SUPERSEDED, superseded)])

    def superseded(self) -> Iterator[RecordedTask]:
        """Yield the records of infrastructure errors whose tasks ran again, in their order.

        If a run was killed while it moved such records, they are among :meth:`records`, too, with the same sequence.
        """
        with ExitStack() as stack:
            for _, record in self._parsed(SUPERSEDED, self._opened(SUPERSEDED, stack)):
                yield record

    def running(self) -> RunningSession | None:
        """Return what the process that writes to this run is executing; ``None`` if there is none, or it is unknown."""
        return read_running(self._root) if self.is_active else None

    def summary(self, each: Callable[[RecordedTask], None] | None = None) -> TesterRunSummary:
        """Count the records, as at the end of a run. The tasks of a run that is not complete count as not run.

        ``each`` is called with every record.
        """
        seen: set[TrialId] = set()
        is_active = self.is_active  # before the records are read: the last one may be written meanwhile
        families, failures, usage, results = count({}, self._entries(seen, each), self.trials, self._planned_families())
        unknown = self.planned // max(1, self.trials) - total(families.values()).tasks
        if unknown > 0:  # version 2 has no number of planned tasks by family
            families["unknown"] = Counts(unknown, trials=self.trials)
        counts = total(families.values())
        aside = {record.id: record.spent for record in self.superseded() if record.id not in seen}
        checks = map(read_usage, self.header.provider_checks)
        left = RunEnd.INTERRUPTED if counts.not_run else RunEnd.FINISHED
        return TesterRunSummary(
            run_id=self.run_id,
            benchmark_id=self.benchmark_id,
            agent=self.label,
            output_dir=self.directory,
            total=counts,
            families=families,
            failures=failures,
            usage=sum(filter(None, [*checks, *aside.values()]), usage),
            part=self.selection,
            estimates=estimate(results, self.trials),
            ending=RunEnd.RUNNING if is_active else left,
            problems=self.header.problems,
        )

    def find(self, task_id: str, trial: int = 1) -> RecordedTask:
        """Return the record of a trial. Raises :class:`ConfigError` (``task-unknown``) with similar ids."""
        ids: set[str] = set()
        trials: list[int] = []
        for record in self.records():
            if record.id == (task_id, trial):
                return record
            ids.add(record.task_id)
            if record.task_id == task_id:
                trials.append(record.trial)
        raise ConfigError(
            f"{self.directory} has no record of task {shown(task_id)}{f', trial {trial}' if trials else ''}",
            code="task-unknown",
            hint=f"its trials: {', '.join(map(str, sorted(trials)))}" if trials else _near(task_id, ids),
        )

    def to_dataframe(self) -> Any:
        """Return the records as a data frame of pandas, or else of polars: one row each, with flat columns.

        Raises :class:`ConfigError` (``dataframe-library-missing``) if neither is installed.
        """
        from securebench.results.dataframe import to_dataframe

        return to_dataframe(self)

    def candidate(self, record: RecordedTask) -> SealedCandidate:
        """Return the sealed candidate of a record.

        Raises :class:`ConfigError`: ``candidate-not-stored``, ``candidate-altered``, ``file-not-regular``.
        """
        return read_sealed(self._root, record)

    def trajectory(self, record: RecordedTask) -> Iterator[JsonValue]:
        """Yield the steps that the agent's program reported: nothing without a trajectory, at most 4 MiB.

        Raises :class:`ConfigError`: ``trajectory-altered``, ``file-missing``, ``file-not-regular``.
        """
        described = record.provenance.get("trajectory")
        if not isinstance(described, dict):
            return
        path = PurePosixPath(str(described.get("path")))
        if path.parts[:-1] != (TRAJECTORIES,):
            raise self._altered(path, f"{shown(str(path))} is not in {TRAJECTORIES}/")
        with opened_run_file(self._root, TRAJECTORIES, path.name) as file:
            data = file.read(MAX_TRAJECTORY + _LEFT_OUT + 1)
        if len(data) > MAX_TRAJECTORY + _LEFT_OUT:
            raise self._altered(path, f"it has more than {MAX_TRAJECTORY} bytes")
        if hashlib.sha256(data).hexdigest() != described.get("sha256"):
            raise self._altered(path, "its digest is not the recorded one")
        lines = data.split(b"\n", MAX_LINES + 2)
        if len(lines) > MAX_LINES + 2:
            raise self._altered(path, f"it has more than {MAX_LINES} lines")
        for number, line in enumerate(lines, start=1):
            if line:
                yield self._step(path, number, line)

    @property
    def _planned_tasks(self) -> int:
        information = self.header.information
        if "planned_tasks" not in information:  # version 2 has one trial of each task
            return self.planned
        tasks = self._number(information, "information", "planned_tasks")
        if tasks * self.trials != self.planned:
            raise self._header_damaged("'information.planned' is not 'trials' times 'planned_tasks'")
        return tasks

    def _entries(self, seen: set[TrialId], each: Callable[[RecordedTask], None] | None) -> Iterator[RecordEntry]:
        for record in self.records():
            seen.add(record.id)
            if each:
                each(record)
            yield record.entry

    def _planned_families(self) -> dict[str, int]:
        sizes = self.header.information.get("planned_families", {})
        if not isinstance(sizes, dict):
            raise self._header_damaged("'information.planned_families' is not an object")
        return {name: self._number(sizes, "information", "planned_families", name) for name in sizes}

    @cached_property
    def _identity(self) -> tuple[str, str]:
        return self.run_id, self.benchmark_id

    def _opened(self, name: str, stack: ExitStack) -> IO[bytes] | None:
        """Open a file of records; ``None`` if it does not exist, as before the first record."""
        try:
            return stack.enter_context(open_regular(self._root / name, "file of records"))
        except ConfigError as error:
            if error.code != "file-missing":
                raise
            return None

    def _parsed(self, name: str, file: IO[bytes] | None) -> Iterator[tuple[int, RecordedTask]]:
        """Yield the records with their line numbers. A last line without a newline counts only if it is whole."""
        for number, line in numbered_lines(file, MAX_LINE) if file else ():
            location = SourceLocation(str(self.directory / name), number)
            try:
                record = parse_recorded_task(line)
            except (ValueError, TypeError, RecursionError) as error:
                if not line.endswith(b"\n") and len(line) <= MAX_LINE:
                    return
                raise damaged(f"invalid record: {error}", location) from None
            if (record.run_id, record.benchmark_id) != self._identity:
                raise ConfigError(
                    f"the record belongs to another run: {shown(record.run_id)} of {shown(record.benchmark_id)}",
                    code="record-foreign",
                    hint="records of two runs are never mixed: ask for an unchanged copy",
                    location=location,
                )
            yield number, record

    def _step(self, path: PurePosixPath, number: int, line: bytes) -> JsonValue:
        try:
            step: JsonValue = json.loads(line)
            require_shallow(step)
        except (ValueError, RecursionError) as error:
            raise self._altered(path, f"invalid JSON: {error}", number) from None
        return step

    def _altered(self, path: PurePosixPath, problem: str, line: int | None = None) -> ConfigError:
        return ConfigError(
            f"the trajectory was altered: {problem}",
            code="trajectory-altered",
            hint="do not use this run directory as evidence",
            location=SourceLocation(str(self.directory / TRAJECTORIES / path.name), line),
        )

    def _section(self, name: str) -> Mapping[str, Any]:
        section = self.header.decisive.get(name, {})
        if not isinstance(section, dict):
            raise self._header_damaged(f"{name!r} is not an object")
        return section

    def _text(self, *path: str) -> str:
        section = self._section(path[0]) if len(path) > 1 else self.header.decisive
        value = section.get(path[-1])
        if not isinstance(value, str):
            raise self._header_damaged(f"'{'.'.join(path)}' is not a string")
        return value

    def _number(self, section: Mapping[str, Any], *path: str) -> int:
        value = section.get(path[-1])
        if type(value) is not int or value < 0:
            raise self._header_damaged(f"'{'.'.join(path)}' is not a number of tasks")
        return value

    def _header_damaged(self, problem: str) -> ConfigError:
        location = SourceLocation(str(self.directory / HEADER))
        return ConfigError(f"the run header is damaged: {problem}", code="run-header-damaged", location=location)


def _near(task_id: str, ids: set[str]) -> str:
    """Return a hint with the ids that are most like ``task_id``."""
    near = similar(task_id, ids)
    if not near:
        return "'securebench show DIR' lists the tasks of a run"
    return f"did you mean {' or '.join(repr(printable_line(name[:_SHOWN])) for name in near)}?"
