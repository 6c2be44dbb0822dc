"""Progress as plain lines: for files, pipes and continuous integration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.money import dollars, micro_usd
from securebench.plurals import counted
from securebench.printable import printable
from securebench.progress import Resume, RunStart, TaskDone, TaskStart
from securebench.results.records.record import WEAK, Assurance
from securebench.results.run_directory.part_of_pack import PartOfPack

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.progress import Event
    from securebench.trials import TrialId


_CENT: Final = 0.01


class PlainSink:
    """Prints a line when a run starts or resumes, and when a task ends.

    If the task failed or ended in an error, the last line of its agent's stderr follows.
    """

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo
        self._to_do = 0
        self._done = 0
        self._trials = 1
        self._budget: float | None = None
        self._started: dict[TrialId, float] = {}

    def __call__(self, event: Event) -> None:
        """Print one event."""
        match event:
            case RunStart():
                self._to_do = event.to_do
                self._trials = event.trials
                self._budget = event.budget_usd
                self._echo(run_line(event))
            case Resume():
                self._echo(resume_line(event, self._trials))
            case TaskStart():
                self._started[event.trial_id] = event.time
            case TaskDone():
                self._done += 1
                seconds = event.time - self._started.pop(event.trial_id, event.time)
                has_cost = self._budget is not None and event.run_cost_usd is not None
                cost = f", {cost_text(event.run_cost_usd or 0, self._budget)}" if has_cost else ""
                self._echo(f"[{self._done}/{self._to_do}] {task_line(event, self._trials)} ({seconds:.1f} s{cost})")
                if stderr := stderr_line(event):
                    self._echo(stderr)
            case _:
                pass


def run_line(event: RunStart) -> str:
    """Return the first line about a run: its tasks, trials, agent and workers."""
    part = PartOfPack(event.tasks, event.pack_tasks).describe(event.benchmark_id)
    trials = f", {event.trials} trials each" if event.trials > 1 else ""
    return printable(f"run {event.run_id}: {part}{trials}, agent {event.agent}, {counted(event.workers, 'worker')}")


def resume_line(event: Resume, trials: int = 1) -> str:
    """Return how many trials of a resumed run are done."""
    again = f" ({event.redone} of them again, after an error)" if event.redone else ""
    noun = "trials" if trials > 1 else "tasks"
    return f"resuming: {event.kept} of {event.planned} {noun} done, {event.planned - event.kept} to run{again}"


def task_line(event: TaskDone, trials: int = 1) -> str:
    """Return how a task, or one of several ``trials`` of it, ended and why."""
    why = f": {event.reason}" if event.reason else ""
    rests = WEAK.get(Assurance(event.assurance)) if event.status == "passed" and event.assurance else None
    name = f"{event.task_id}{event.trial_id.suffix(trials)}"
    return printable(f"{event.status.upper()} {name}{why}{f' ({rests})' if rests else ''}")


def cost_text(usd: float, budget_usd: float | None = None) -> str:
    """Return what a run has cost, and its budget if it has one: ``$1.50 of $20.00``. Amounts below a cent are exact."""
    cost = f"${usd:,.2f}" if usd >= _CENT else dollars(micro_usd(usd))
    return cost + ("" if budget_usd is None else f" of {dollars(micro_usd(budget_usd))}")


def stderr_line(event: TaskDone) -> str:
    """Return the last line that the agent of a task wrote to stderr, indented; empty if the event has none."""
    return f"    agent's stderr: {printable(event.agent_stderr)}" if event.agent_stderr else ""
