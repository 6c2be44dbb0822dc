"""The trials of a report: short rows up to a maximum, and the details that fit. Failed trials and errors come first."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from securebench.report.detail import DetailLimits, TaskDetail, task_detail
from securebench.results.records.record import VerificationStatus

if TYPE_CHECKING:
    from securebench.results.read import RecordedRun
    from securebench.results.recorded_task import RecordedTask

MAX_ROWS: Final = 20_000
"""Maximum number of trials that a page lists."""

MAX_DETAIL: Final = 5 * 1024 * 1024
"""Maximum size of the HTML of all task details on a page, in bytes."""

MAX_TRAJECTORIES: Final = 32 * 1024 * 1024
"""Maximum bytes of trajectories that are read for one run. Each file is read completely to check its digest."""

_BRIEF: Final = 160


@dataclass(slots=True, kw_only=True)
class TaskRow:
    """One trial in a page's list of trials.

    ``detail`` is ``None`` if the page has no room for it, or if the trial has a page of its own.
    """

    sequence: int
    task_id: str
    trial: int
    family: str
    status: VerificationStatus
    reason: str
    seconds: float | None
    tokens: int | None
    command: str
    """The command that shows the trial in a terminal."""
    detail: TaskDetail | None = None


@dataclass(slots=True)
class TaskRows:
    """Collects the rows of one run. Failed tasks and errors come first.

    ``left_out`` counts the rows beyond the maximum.
    """

    run: RecordedRun
    with_detail: bool
    max_rows: int = MAX_ROWS
    max_detail: int = MAX_DETAIL
    left_out: int = 0
    _first: list[TaskRow] = field(default_factory=list)
    _rest: list[TaskRow] = field(default_factory=list)
    _droppable: list[TaskRow] = field(default_factory=list)
    """Passed and pending tasks whose detail may be removed in favor of a failed task or an error."""
    _used: int = 0
    _trajectories: int = 0

    def add(self, record: RecordedTask) -> None:
        """Add a row. In a full list, a failed task or error replaces the last of the passed and pending tasks."""
        row = _row(self.run, record)
        is_first = record.status in {VerificationStatus.FAILED, VerificationStatus.ERROR}
        if len(self._first) + len(self._rest) >= self.max_rows:
            self.left_out += 1
            if not (is_first and self._rest):
                return
            self._forget(self._rest.pop())
        (self._first if is_first else self._rest).append(row)
        if self.with_detail:
            self._add_detail(row, record, is_first=is_first)

    @property
    def without_detail(self) -> int:
        """The number of listed rows whose detail did not fit; 0 unless ``with_detail`` is set."""
        return sum(row.detail is None for row in (*self._first, *self._rest)) if self.with_detail else 0

    def by_status(self) -> list[tuple[VerificationStatus, list[TaskRow]]]:
        """Return the rows grouped by status: failed, error, passed, pending. Empty groups are left out."""
        order = (
            VerificationStatus.FAILED,
            VerificationStatus.ERROR,
            VerificationStatus.PASSED,
            VerificationStatus.PENDING,
        )
        rows = [*self._first, *self._rest]
        groups = [(status, [row for row in rows if row.status is status]) for status in order]
        return [(status, found) for status, found in groups if found]

    def _add_detail(self, row: TaskRow, record: RecordedTask, *, is_first: bool) -> None:
        if self._used >= self.max_detail and not (is_first and self._droppable):
            return
        detail = task_detail(self.run, record, BRIEF, with_steps=self._may_read_trajectory(record))
        while is_first and self._used + detail.size > self.max_detail and self._droppable:
            self._forget(self._droppable.pop())
        if self._used + detail.size > self.max_detail:
            return
        row.detail = detail
        self._used += detail.size
        if not is_first:
            self._droppable.append(row)

    def _may_read_trajectory(self, record: RecordedTask) -> bool:
        described = record.provenance.get("trajectory")
        size = described.get("bytes") if isinstance(described, dict) else 0
        if not isinstance(size, int) or not 0 <= size <= MAX_TRAJECTORIES - self._trajectories:
            return False
        self._trajectories += size
        return True

    def _forget(self, row: TaskRow) -> None:
        if row.detail is not None:
            self._used -= row.detail.size
            row.detail = None
        if self._droppable and self._droppable[-1] is row:
            self._droppable.pop()


BRIEF: Final = DetailLimits(text=6_000, steps=40, step=800)
"""The limits for a task on a page with many tasks."""


def _row(run: RecordedRun, record: RecordedTask) -> TaskRow:
    usage = record.spent or record.usage
    return TaskRow(
        sequence=record.sequence,
        task_id=record.task_id[:_BRIEF],
        trial=record.trial,
        family=record.family[:_BRIEF],
        status=record.status,
        reason=record.reason.value if record.reason else "",
        seconds=record.duration_seconds,
        tokens=usage.input_tokens + usage.output_tokens if usage else None,
        command=show_command(run, record),
    )


def show_command(run: RecordedRun, record: RecordedTask) -> str:
    """Return the command that shows a trial in a terminal."""
    trial = ["--trial", str(record.trial)] if record.trial > 1 else []
    return shlex.join(["securebench", "show", str(run.directory), record.task_id, *trial])
