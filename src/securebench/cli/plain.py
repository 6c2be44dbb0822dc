"""Progress as plain lines: for files, pipes and continuous integration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.progress import Resume, RunStart, TaskDone, TaskStart
from securebench.results.trace import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.progress import Event


WEAK: Final = {"exit_code": "on exit code only", "shared": "in one process with the candidate"}
"""How a pass is shown that the candidate's code could have made without doing the task, by its assurance."""


class PlainSink:
    """Tells how a run begins and ends, and how each task ended, one line each."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo
        self._to_do = 0
        self._done = 0
        self._started: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        """Tell of one event."""
        match event:
            case RunStart():
                self._to_do = event.to_do
                self._echo(run_line(event))
            case Resume():
                self._echo(resume_line(event))
            case TaskStart():
                self._started[event.task_id] = event.time
            case TaskDone():
                self._done += 1
                seconds = event.time - self._started.pop(event.task_id, event.time)
                self._echo(f"[{self._done}/{self._to_do}] {task_line(event)} ({seconds:.1f} s)")
            case _:
                pass


def run_line(event: RunStart) -> str:
    """Return what a run is about to do."""
    workers = "1 worker" if event.workers == 1 else f"{event.workers} workers"
    return printable(f"run {event.run_id}: {event.to_do} of {event.tasks} tasks of {event.benchmark_id}, {workers}")


def resume_line(event: Resume) -> str:
    """Return how much of a resumed run is done."""
    again = f" ({event.redone} of them again, after an error)" if event.redone else ""
    return f"resuming: {event.kept} of {event.tasks} tasks done, {event.tasks - event.kept} to run{again}"


def task_line(event: TaskDone) -> str:
    """Return how a task ended, and why."""
    why = f": {event.reason}" if event.reason else ""
    rests = WEAK.get(event.assurance or "") if event.status == "passed" else None
    return printable(f"{event.status.upper()} {event.task_id}{why}{f' ({rests})' if rests else ''}")
