"""Progress as plain lines: for files, pipes and continuous integration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.progress import EventKind
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
        match event.kind:
            case EventKind.RUN_START:
                self._to_do = int(str(event.data["to_do"]))
                self._echo(run_line(event))
            case EventKind.RESUME:
                self._echo(resume_line(event))
            case EventKind.TASK_START:
                self._started[event.task_id] = event.time
            case EventKind.TASK_DONE:
                self._done += 1
                seconds = event.time - self._started.pop(event.task_id, event.time)
                self._echo(f"[{self._done}/{self._to_do}] {task_line(event)} ({seconds:.1f} s)")
            case _:
                pass


def run_line(event: Event) -> str:
    """Return what a run is about to do."""
    data = event.data
    workers = "1 worker" if data["workers"] == 1 else f"{data['workers']} workers"
    return printable(
        f"run {data['run_id']}: {data['to_do']} of {data['tasks']} tasks of {data['benchmark_id']}, {workers}"
    )


def resume_line(event: Event) -> str:
    """Return how much of a resumed run is done."""
    kept, tasks, redone = (int(str(event.data[key])) for key in ("kept", "tasks", "redone"))
    again = f" ({redone} of them again, after an error)" if redone else ""
    return f"resuming: {kept} of {tasks} tasks done, {tasks - kept} to run{again}"


def task_line(event: Event) -> str:
    """Return how a task ended, and why."""
    why = f": {event.data['reason']}" if event.data["reason"] else ""
    rests = WEAK.get(str(event.data.get("assurance"))) if event.data["status"] == "passed" else None
    return printable(f"{str(event.data['status']).upper()} {event.task_id}{why}{f' ({rests})' if rests else ''}")
