"""The progress of a run, read from its files. Another process may be executing the run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from securebench.results.read import read_run
from securebench.results.summary import RunEnd
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from securebench.resources import JsonValue
    from securebench.results.read import RecordedRun
    from securebench.results.recorded_task import RecordedTask
    from securebench.results.records.usage import Usage
    from securebench.results.run_directory.running import RunningSession, RunningTask
    from securebench.results.summary import Counts, TesterRunSummary

INTERVAL: Final = 2.0
"""The minimum pause between two readings of a run in progress, in seconds."""

_SHARE: Final = 10
"""The minimum pause as a multiple of the time that a reading takes. :data:`INTERVAL` applies if it is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """A run at one moment.

    ``rate`` is how many trials have ended per minute since the run was last started or resumed. ``seconds_left`` is
    estimated from ``rate``. Both are ``None`` if the run is not in progress, or no trial has ended since that start.
    """

    run: RecordedRun
    summary: TesterRunSummary
    running: tuple[RunningTask, ...] = ()
    rate: float | None = None
    seconds_left: float | None = None
    started_at: datetime | None = None
    """When the first trial began."""
    finished_at: datetime | None = None
    """When the most recent trial ended."""

    @property
    def state(self) -> RunEnd:
        """How the run ended, or ``running``."""
        return self.summary.ending

    @property
    def counts(self) -> Counts:
        """The trials by outcome."""
        return self.summary.total

    @property
    def usage(self) -> Usage:
        """The reported usage so far."""
        return self.summary.usage

    @property
    def done(self) -> int:
        """Trials with a record."""
        return self.counts.planned - self.counts.not_run

    @property
    def has_verdicts(self) -> bool:
        """Whether every planned trial has a verdict, or is pending because its family has no verifier."""
        return not (self.counts.not_run or self.counts.errors)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the snapshot as JSON."""
        selection = self.run.selection
        return {
            "run_id": self.summary.run_id,
            "benchmark_id": self.summary.benchmark_id,
            "output_dir": str(self.summary.output_dir),
            "agent": self.run.label,
            "models": list(self.run.models),
            "selection": selection.describe() if selection else None,
            "state": self.state.value,
            "planned": self.counts.planned,
            "done": self.done,
            "left": self.counts.not_run,
            "passed": self.counts.passed,
            "failed": self.counts.failed,
            "errors": self.counts.errors,
            "pending": self.counts.pending,
            "running": [task.to_json() for task in self.running],
            "per_minute": self.rate,
            "seconds_left": self.seconds_left,
            "started_at": self.started_at.isoformat() if self.started_at else None,
            "finished_at": self.finished_at.isoformat() if self.finished_at else None,
            "usage": self.usage.to_json(),
            "cost_usd": self.summary.cost_usd,
            "budget_usd": self.summary.budget_usd,
            "problems": list(self.summary.problems),
        }


class _Times:
    """The times of the records of a run, and the tasks of ``session`` that have no record."""

    def __init__(self, session: RunningSession | None) -> None:
        self._since = session.since if session else None
        self._running = {TrialId(task.task_id, task.trial): task for task in (session.tasks if session else ())}
        self.first: datetime | None = None
        self.last: datetime | None = None
        self.recent = 0
        """The number of trials that ended since the session began."""

    @property
    def running(self) -> tuple[RunningTask, ...]:
        """The tasks in progress that have no record. A finished task may stay in ``running.json`` for a moment."""
        return tuple(self._running.values())

    def __call__(self, record: RecordedTask) -> None:
        """Update the times from ``record``, and remove its task from those in progress."""
        self._running.pop(record.id, None)
        if record.started_at is None:
            return
        end = record.started_at + timedelta(seconds=record.duration_seconds or 0)
        self.first = min(self.first or record.started_at, record.started_at)
        self.last = max(self.last or end, end)
        self.recent += self._since is not None and end >= self._since


def run_snapshot(run: RecordedRun, now: datetime | None = None) -> RunSnapshot:
    """Return the progress of ``run``. Raises :class:`ConfigError` for damaged records."""
    session = run.running()
    times = _Times(session)
    summary = run.summary(times)
    rate = left = None
    if summary.ending is RunEnd.RUNNING and session and times.recent:
        minutes = max(1.0, ((now or datetime.now(UTC)) - session.since).total_seconds()) / 60
        rate = times.recent / minutes
        left = summary.total.not_run / rate * 60
    return RunSnapshot(
        run=run,
        summary=summary,
        running=times.running if summary.ending is RunEnd.RUNNING else (),
        rate=rate,
        seconds_left=left,
        started_at=times.first,
        finished_at=times.last,
    )


def watch_run(directory: Path, sleep: Callable[[float], None] = time.sleep) -> Iterator[RunSnapshot]:
    """Yield snapshots of a run until it ends. Raises the errors of :func:`read_run` and :func:`run_snapshot`."""
    while True:
        start = time.monotonic()
        snapshot = run_snapshot(read_run(directory))
        took = time.monotonic() - start
        yield snapshot
        if snapshot.state is not RunEnd.RUNNING:
            return
        sleep(max(INTERVAL, _SHARE * took))
