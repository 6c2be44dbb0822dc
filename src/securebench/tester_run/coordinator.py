"""The coordinator: it gives assignments to the executor, and is the only part of a run that writes records."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from securebench.errors import FailureReason, InfrastructureError
from securebench.execution import History
from securebench.execution.assignment import Assignment
from securebench.faults import FaultPoint, reached
from securebench.plurals import counted
from securebench.progress import TaskDone
from securebench.results.records.strict_record import read_task_record
from securebench.tester_run.breaker import Breaker
from securebench.tester_run.worker import TrialWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from securebench.execution import TaskContext
    from securebench.resources import JsonValue
    from securebench.results.records.record import TaskRecord
    from securebench.results.run_directory.journal import Journal
    from securebench.tester_run.cost import RunCost
    from securebench.tester_run.planning.plan import PlannedTrial
    from securebench.tester_run.worker import PreparedRun
    from securebench.trials import TrialId


class Coordinator:
    """Executes trials through the executor and writes their records.

    ``trouble`` is the problem that ended the execution early, or empty. A budget that is used up is no such problem.
    """

    def __init__(
        self,
        run: PreparedRun,
        context: TaskContext,
        journal: Journal,
        cost: RunCost,
        log_egress: Callable[[Mapping[str, JsonValue]], None] | None = None,
    ) -> None:
        self._context = context
        self._control = context.control
        self._journal = journal
        self._run = run
        self._breaker = Breaker(context.driver, is_resumed=bool(journal.entries))
        self._worker = TrialWorker(run, context, self._watch, distrusts=self._breaker.distrusts, log_egress=log_egress)
        self._cost = cost
        self._expected: set[TrialId] = set()
        """Trials that were handed out and have no result yet."""
        self._nodes: dict[TrialId, str] = {}
        """The node of each trial whose record was seen. An empty string stands for this machine."""
        self.trouble = ""
        self.is_out_of_budget = False
        """Whether the run reached its budget before all trials had a record."""

    @property
    def cost_usd(self) -> float | None:
        """What the run has cost so far, including earlier attempts; ``None`` if that is not known."""
        return self._cost.usd

    def work_through(self, trials: Sequence[PlannedTrial]) -> None:
        """Execute ``trials`` and write a record of each, until they are done or the run has to stop.

        If the run directory cannot be written any more, results of running tasks are dropped.
        """
        assignments = self._assignments(trials)
        if self._cost.is_budget_used_up:
            self._control.drain()
        try:
            results = self._run.plan.executor.run(
                assignments, self._worker, draining=self._is_draining, abandoned=self._control.stop
            )
            with closing(results):
                for result in results:
                    if result:
                        record = self._read(result)
                        self._write(record)
                        is_ours = not self._nodes[record.id]
                        if is_ours and record.failure and record.failure.reason is FailureReason.STORAGE_FAILED:
                            self._control.stop()  # results of running agents could not be stored
            if self._expected and not self._control.stopping:
                raise _executor_failed(f"it returned no result for {counted(len(self._expected), 'trial')}")
        except InfrastructureError as error:
            self.trouble = self.trouble or str(error)
        is_left = any(planned.id not in self._journal.entries for planned in trials)
        self.is_out_of_budget = is_left and self._cost.is_budget_used_up

    def _assignments(self, trials: Sequence[PlannedTrial]) -> Iterator[bytes]:
        for planned in trials:
            self._expected.add(planned.id)
            yield Assignment(self._run.digest, planned.task.id, self._history(planned.id)).to_bytes()

    def _read(self, result: bytes) -> TaskRecord:
        """Return the record in ``result``. Raises :class:`InfrastructureError` if it is invalid or was not expected."""
        try:
            record = read_task_record(result)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise _executor_failed(f"it returned something that is not a record: {error}") from error
        if record.run_id != self._context.run_id or record.id not in self._expected:
            raise _executor_failed(f"it returned an unexpected record, of the trial {record.id}")
        self._expected.remove(record.id)
        self._watch(record)
        return record

    def _watch(self, record: TaskRecord, node: str = "") -> None:
        """Give ``record`` to the breaker, and add its cost.

        If the breaker trips or the run's budget is used up, no more tasks start, and tasks in progress finish. The
        thread that made or received the record calls this before it starts another task. A second call for the same
        record does nothing.
        """
        if record.id in self._nodes:
            return
        self._nodes[record.id] = node
        self._cost.add(record)
        if trouble := self._breaker.trips(record, node):
            self.trouble = self.trouble or trouble
        if trouble or self._cost.is_budget_used_up:
            self._control.drain()

    def _history(self, trial: TrialId) -> History:
        journal = self._journal
        return History(
            trial=trial.trial,
            attempt=1 + journal.attempts(trial),
            spent=journal.spent(trial),
            judge_spent=journal.judge_spent(trial),
            unverified=journal.unverified(trial),
        )

    def _write(self, record: TaskRecord) -> None:
        reached(FaultPoint.RECORD_READY, record.task_id)
        entry = self._journal.append(record)
        reached(FaultPoint.RECORD_WRITTEN, record.task_id)
        report = self._context.report.task(entry.id)
        report.emit(
            TaskDone(
                family=entry.task_type,
                status=entry.status.value,
                reason=entry.reason or None,
                message=entry.message,
                agent_stderr=entry.agent_stderr,
                assurance=entry.assurance.value if entry.assurance else None,
                run_cost_usd=self._cost.usd,
            )
        )

    def _is_draining(self) -> bool:
        return self._control.draining


def _executor_failed(why: str) -> InfrastructureError:
    return InfrastructureError(f"the executor failed: {why}", code="executor-failed", hint="continue with --resume")
