"""Read a run that is finished, interrupted or in progress, in this or an older format.

A run directory may come from a stranger, so nothing in it is trusted: no link is followed, and lines, sizes and nesting
are bounded.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import ConfigError, SourceLocation
from securebench.printable import printable_line
from securebench.results.records.strict_json import require_shallow
from securebench.results.records.trajectory import MAX_LINES, MAX_TRAJECTORY, TRAJECTORIES
from securebench.results.records.usage import read_usage
from securebench.results.run_directory.files import SUITE, opened_run_file
from securebench.results.run_directory.header import HEADER, HEADER_VERSION, read_header
from securebench.results.run_directory.judge import judge_of
from securebench.results.run_directory.lock import is_locked
from securebench.results.run_directory.part_of_pack import PartOfPack
from securebench.results.run_directory.record_files import RecordFiles
from securebench.results.run_directory.running import read_running
from securebench.results.run_directory.sealed import read_sealed
from securebench.results.summary import Counts, RunEnd, TesterRunSummary, count, estimate, total
from securebench.strict_input.faults import shown, similar
from securebench.strict_input.json_text import json_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from securebench.resources import JsonValue
    from securebench.results.recorded_task import RecordedTask
    from securebench.results.records.record import RecordEntry
    from securebench.results.run_directory.closing import RecordTally
    from securebench.results.run_directory.header import RunHeader
    from securebench.results.run_directory.record_files import RecordLine
    from securebench.results.run_directory.running import RunningSession
    from securebench.results.run_directory.sealed import SealedCandidate
    from securebench.trials import TrialId

_SHOWN: Final = 200
"""Maximum length of a suggested id, in characters."""
_LEFT_OUT: Final = 1024
"""Maximum size in bytes of a trajectory's last line, which gives the number of omitted lines."""


def read_run(directory: str | Path) -> RecordedRun:
    """Open the run in ``directory`` for reading. Nothing is written; a run in progress is not disturbed.

    Raises :class:`ConfigError`: ``run-missing``, ``run-version``, ``run-header-damaged``, ``closing-mismatch``,
    ``file-not-regular``, ``file-unreadable``.
    """
    header = read_header(Path(directory).resolve(), older=True)
    if header is None:
        is_suite = os.path.lexists(Path(directory, SUITE))
        raise ConfigError(
            f"{directory} is {'a suite, not a run' if is_suite else 'not a run directory'}: it has no {HEADER}",
            code="run-missing",
            hint="give the directory of one of its runs" if is_suite else "give the --output-dir of a run",
        )
    return RecordedRun(Path(directory), header)


class RecordedRun:
    """A run on disk. Everything in it is untrusted. Only the header is kept: methods read the other files at each call.

    ``directory`` is the path that was given, ``header`` the description of the run. For damaged data, methods raise
    :class:`ConfigError` with the file and, if possible, the line. Only :meth:`running` returns ``None`` instead.
    """

    def __init__(self, directory: Path, header: RunHeader) -> None:
        self.directory = directory
        self.header = header
        self._root = directory.resolve()
        self.run_id = header.run_id
        self.benchmark_id = header.benchmark_id

    @property
    def label(self) -> str:
        """The name of the agent: ``harness.name`` of the tester YAML, or else the type of its harness."""
        return self.header.label

    @property
    def models(self) -> tuple[str, ...]:
        """The models that the run was configured for. Those that answered are in the records."""
        agent = self.header.decisive.get("agent")
        model = agent.get("model") if isinstance(agent, dict) else None
        return (model,) if isinstance(model, str) else ()

    @property
    def planned(self) -> int:
        """The number of planned trials. A complete run has one record for each of them."""
        return self.header.planned

    @property
    def trials(self) -> int:
        """The number of trials of each task."""
        return self.header.trials

    @property
    def selection(self) -> PartOfPack | None:
        """The selected part of the pack, or ``None`` if the whole pack is selected."""
        tasks, planned = self.header.pack_tasks, self.header.planned_tasks
        return None if planned >= tasks else PartOfPack(planned, tasks, self.header.selection)

    @property
    def is_active(self) -> bool:
        """Whether a process is writing to this run now."""
        return is_locked(self._root)

    def records(self) -> Iterator[RecordedTask]:
        """Yield the current record of each trial, in the order in which they finished.

        Only ids and digests are kept in memory. A line that is still being written is left out. While reading, the
        chain of records is checked, if the run's format has one: no record may have been changed or removed.
        """
        return (line.record for line in self._files() if line.is_current)

    def lines(self) -> Iterator[RecordLine]:
        """Yield the lines of the journal and of ``superseded.jsonl``, in the order of their sequence numbers."""
        return iter(self._files())

    def superseded(self) -> Iterator[RecordedTask]:
        """Yield the records of infrastructure errors that ``--resume`` set aside, to run their trials again.

        They are in the order of their sequence numbers. If a run was killed while it moved such records, they may be
        among :meth:`records`, too, with the same sequence numbers.
        """
        return (line.record for line in self._files() if not line.is_current)

    def running(self) -> RunningSession | None:
        """Return what the writing process is executing; ``None`` if no process is writing to the run, or if unknown."""
        return read_running(self._root) if self.is_active else None

    def summary(self, each: Callable[[RecordedTask], None] | None = None) -> TesterRunSummary:
        """Return the summary, counted from the records. Trials without a record count as not run.

        ``each`` is called with every current record.
        """
        return self.counted(each)[0]

    def counted(self, each: Callable[[RecordedTask], None] | None = None) -> tuple[TesterRunSummary, RecordTally]:
        """Return the :meth:`summary`, and the tally of the records, to compare with the closing of the run."""
        is_active = self.is_active  # before the records are read: the last one may be written meanwhile
        files, header = self._files(), self.header
        aside: dict[TrialId, RecordEntry] = {}
        entries = self._entries(files, aside, each)
        families, failures, usage, results, judge_usage = count({}, entries, header.trials, header.planned_families)
        unknown = header.planned // max(1, header.trials) - total(families.values()).tasks
        if unknown > 0:  # a header of version 2 has no number of planned tasks by family
            families["unknown"] = Counts(unknown, trials=header.trials)
        counts = total(families.values())
        checks = [read_usage(check) for check in header.provider_checks if "judge" not in check]
        summary = TesterRunSummary(
            run_id=self.run_id,
            benchmark_id=self.benchmark_id,
            agent=self.label,
            output_dir=self.directory,
            total=counts,
            families=families,
            failures=failures,
            usage=sum(filter(None, [*checks, *(entry.usage for entry in aside.values())]), usage),
            budget_usd=header.budget_usd,
            part=self.selection,
            estimates=estimate(results, header.trials),
            judge=judge_of(header, sum(filter(None, (entry.judge_usage for entry in aside.values())), judge_usage)),
            ending=RunEnd.RUNNING if is_active else self._ending(counts),
            problems=header.problems,
        )
        return summary, files.tally

    def find(self, task_id: str, trial: int = 1) -> RecordedTask:
        """Return the record of a trial.

        Raises :class:`ConfigError` (``task-unknown``) with similar ids, or with the recorded trials of the task.
        """
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
            hint=f"its recorded trials: {', '.join(map(str, sorted(trials)))}" if trials else _near(task_id, ids),
        )

    def to_dataframe(self) -> Any:
        """Return the records as a data frame of pandas, or else of polars, with one row for each record.

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
        """Yield the steps that the agent's program reported, if the record names a trajectory.

        If steps were omitted, the last item counts them: ``{"left_out": number}``.

        Raises :class:`ConfigError`: ``trajectory-altered`` (also for a file of more than about 4 MiB or 20,000 lines),
        ``file-missing``, ``file-not-regular``.
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
            raise self._altered(path, "its digest differs from the recorded one")
        lines = data.split(b"\n", MAX_LINES + 2)
        if len(lines) > MAX_LINES + 2:
            raise self._altered(path, f"it has more than {MAX_LINES} lines")
        for number, line in enumerate(lines, start=1):
            if line:
                yield self._step(path, number, line)

    def _files(self) -> RecordFiles:
        return RecordFiles(self._root, self.header, shown_as=self.directory)

    def _entries(
        self,
        files: RecordFiles,
        aside: dict[TrialId, RecordEntry],
        each: Callable[[RecordedTask], None] | None,
    ) -> Iterator[RecordEntry]:
        """Yield the entries of the current records.

        ``aside`` gets the last entry of each trial that has only superseded records.
        """
        last = -1
        for line in files:
            record = line.record
            if line.is_current:
                aside.pop(record.id, None)
                if each:
                    each(record)
                yield record.entry
            elif line.sequence != last:  # a killed run may leave the same record in both files
                aside[record.id] = record.entry
            last = line.sequence

    def _ending(self, counts: Counts) -> RunEnd:
        """Return how an inactive run ended. A killed run was never closed, so it counts as interrupted."""
        if self.header.version < HEADER_VERSION:
            return RunEnd.INTERRUPTED if counts.not_run else RunEnd.FINISHED
        header = self.header if self.header.closing else read_header(self._root)  # the run may have ended just now
        return RunEnd(header.closing.ending) if header and header.closing else RunEnd.INTERRUPTED

    def _step(self, path: PurePosixPath, number: int, line: bytes) -> JsonValue:
        try:
            step: JsonValue = json.loads(line)
            require_shallow(step)
        except (ValueError, RecursionError) as error:
            raise self._altered(path, json_problem(error), number) from None
        return step

    def _altered(self, path: PurePosixPath, problem: str, line: int | None = None) -> ConfigError:
        return ConfigError(
            f"the trajectory was altered: {problem}",
            code="trajectory-altered",
            hint="do not use this run directory as evidence",
            location=SourceLocation(str(self.directory / TRAJECTORIES / path.name), line),
        )


def _near(task_id: str, ids: set[str]) -> str:
    """Return a hint with the ids that are most like ``task_id``."""
    near = similar(task_id, ids)
    if not near:
        return "'securebench show DIR --all' lists the tasks of a run"
    return f"did you mean {' or '.join(repr(printable_line(name[:_SHOWN])) for name in near)}?"
