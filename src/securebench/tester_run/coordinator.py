"""The coordinator: gives tasks to workers, and is the only one that writes their records."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from securebench.errors import StorageError
from securebench.execution import History, RunStoppedError, execute_task
from securebench.executors.local import LocalExecutor
from securebench.progress import TaskDone
from securebench.tester_run.breaker import Breaker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.execution import TaskContext
    from securebench.results.journal import Journal
    from securebench.results.record import TaskRecord
    from securebench.tester_run.plan import PlannedTrial
    from securebench.trials import TrialId


class Coordinator:
    """Works through trials of tasks. ``trouble`` says why it stopped early, if it did."""

    def __init__(self, context: TaskContext, journal: Journal, workers: int) -> None:
        self._context = context
        self._control = context.control
        self._journal = journal
        self._executor = LocalExecutor(workers)
        self._breaker = Breaker(context.driver, is_resumed=bool(journal.entries))
        self.trouble = ""

    def work_through(self, trials: Sequence[PlannedTrial]) -> None:
        """Execute ``trials`` and write a record of each, until they are done or the run has to stop.

        If the run directory cannot be written any more, results of running tasks are dropped.
        """
        try:
            records = self._executor.run(
                trials, self._execute, draining=self._is_draining, abandoned=self._control.stop
            )
            with closing(records):
                for record in records:
                    self._write(record)
        except StorageError as error:
            self.trouble = str(error)

    def _execute(self, planned: PlannedTrial) -> TaskRecord | None:
        """Run in a worker's thread."""
        self._context.checkpoint("task_started")
        try:
            record = execute_task(planned.task, self._context, self._history(planned.id))
        except RunStoppedError:
            return None
        if trouble := self._breaker.trips(record):
            self.trouble = self.trouble or trouble
            self._control.drain()
        return record

    def _history(self, trial: TrialId) -> History:
        journal = self._journal
        return History(
            trial=trial.trial,
            attempt=1 + journal.attempts(trial),
            spent=journal.spent(trial),
            unverified=journal.unverified(trial),
        )

    def _write(self, record: TaskRecord) -> None:
        self._context.checkpoint("record_ready")
        entry = self._journal.append(record)
        self._context.checkpoint("record_written")
        report = self._context.report.task(entry.id)
        report.emit(
            TaskDone(
                family=entry.task_type,
                status=entry.status.value,
                reason=entry.reason,
                message=entry.message,
                agent_stderr=entry.agent_stderr,
                assurance=entry.assurance.value if entry.assurance else None,
            )
        )

    def _is_draining(self) -> bool:
        return self._control.draining
