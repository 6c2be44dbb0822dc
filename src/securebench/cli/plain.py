"""Progress as plain lines: for files, pipes and continuous integration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.printable import printable
from securebench.progress import Resume, RunStart, TaskDone, TaskStart

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.progress import Event


WEAK: Final = {"exit_code": "on exit code only", "shared": "in one process with the candidate"}
"""By assurance: how to mark a pass that the candidate's code could have forged."""


class PlainSink:
    """Prints one line when a run starts and one when a task ends; below a failed task, its agent's last line."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo
        self._to_do = 0
        self._done = 0
        self._started: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        """Print one event."""
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
                if stderr := stderr_line(event):
                    self._echo(stderr)
            case _:
                pass


def run_line(event: RunStart) -> str:
    """Return how many tasks of the pack a run is about to execute."""
    workers = "1 worker" if event.workers == 1 else f"{event.workers} workers"
    tasks = "1 task" if event.pack_tasks == 1 else f"{event.pack_tasks} tasks"
    return printable(f"run {event.run_id}: {event.to_do} of {tasks} of {event.benchmark_id}, {workers}")


def resume_line(event: Resume) -> str:
    """Return how many tasks of a resumed run are done."""
    again = f" ({event.redone} of them again, after an error)" if event.redone else ""
    return f"resuming: {event.kept} of {event.tasks} tasks done, {event.tasks - event.kept} to run{again}"


def task_line(event: TaskDone) -> str:
    """Return how a task ended and why."""
    why = f": {event.reason}" if event.reason else ""
    rests = WEAK.get(event.assurance or "") if event.status == "passed" else None
    return printable(f"{event.status.upper()} {event.task_id}{why}{f' ({rests})' if rests else ''}")


def stderr_line(event: TaskDone) -> str:
    """Return the last line of the stderr of a failed task's agent, indented; empty if it wrote none."""
    return f"    agent's stderr: {printable(event.agent_stderr)}" if event.agent_stderr else ""
