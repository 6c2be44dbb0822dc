"""Progress on a terminal: running and finished tasks, and the time left."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from securebench.cli.views.plain import cost_text, resume_line, run_line, stderr_line, task_line
from securebench.printable import printable_line
from securebench.progress import Resume, RunDone, RunStart, TaskDone, TaskStart, VerifierStart

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from securebench.progress import Event
    from securebench.trials import TrialId

STYLES: Final = {"passed": "green", "failed": "red", "error": "bold magenta", "pending": "yellow"}

_REFRESH_PER_SECOND: Final = 4
_SHOWN_TASKS: Final = 16
_NAME_WIDTH: Final = 48


class LiveSink:
    """A display that stays at the bottom of a terminal while finished tasks scroll by above it.

    The first event of a run starts the display. The last event, or :meth:`close`, removes it.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._running: dict[TrialId, tuple[str, float]] = {}
        self._counts: Counter[str] = Counter()
        self._to_do = 0
        self._trials = 1
        self._cost: float | None = None
        self._budget: float | None = None
        self._start = time.monotonic()
        self._live = Live(
            console=console, get_renderable=self._render, refresh_per_second=_REFRESH_PER_SECOND, transient=True
        )

    def __call__(self, event: Event) -> None:
        """Show one event."""
        match event:
            case RunStart():
                self._begin(event)
            case Resume():
                self._console.print(Text(resume_line(event, self._trials)))
            case TaskStart():
                self._phase(event, "agent", event.time)
            case VerifierStart():
                self._phase(event, "verifier", self._running.get(event.trial_id, ("", event.time))[1])
            case TaskDone():
                self._end(event)
            case RunDone():
                self.close()
            case _:
                pass

    def close(self) -> None:
        """Remove the display from the terminal. Idempotent."""
        self._live.stop()

    def _begin(self, event: RunStart) -> None:
        self._to_do = event.to_do
        self._trials = event.trials
        self._cost, self._budget = event.cost_usd, event.budget_usd
        self._start = event.time
        self._console.print(Text(run_line(event), style="bold"))
        self._live.start()

    def _phase(self, event: Event, phase: str, since: float) -> None:
        with self._lock:
            self._running[event.trial_id] = (phase, since)

    def _end(self, event: TaskDone) -> None:
        status = event.status
        with self._lock:
            _, since = self._running.pop(event.trial_id, ("", event.time))
            self._counts[status] += 1
            self._cost = event.run_cost_usd
        line = Text(task_line(event, self._trials), style=STYLES.get(status, ""))
        line.append(f" ({event.time - since:.1f} s)", style="dim")
        self._console.print(line)
        if stderr := stderr_line(event):
            self._console.print(Text(stderr, style="dim"), overflow="ellipsis", no_wrap=True)

    def _render(self) -> RenderableType:
        now = time.monotonic()
        with self._lock:
            running = sorted(self._running.items(), key=lambda item: item[1][1])
            counts = Counter(self._counts)
        done = counts.total()
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=max(self._to_do, 1), completed=done, width=30),
            Text(f"{done}/{self._to_do}"),
            *(Text(f"{counts[status]} {status}", style=style) for status, style in STYLES.items() if counts[status]),
            Text("" if self._cost is None else cost_text(self._cost, self._budget)),
            Text(self._time_left(done, now), style="dim"),
        )
        return Group(self._tasks(running, now), bar)

    def _tasks(self, running: list[tuple[TrialId, tuple[str, float]]], now: float) -> Table:
        table = Table.grid(padding=(0, 1))
        for trial, (phase, since) in running[:_SHOWN_TASKS]:
            name = shortened(trial.task_id) + trial.suffix(self._trials)
            table.add_row(Text("●", style="cyan"), Text(name), Text(phase, style="dim"), Text(clock(now - since)))
        if len(running) > _SHOWN_TASKS:
            table.add_row("", Text(f"and {len(running) - _SHOWN_TASKS} more", style="dim"))
        return table

    def _time_left(self, done: int, now: float) -> str:
        spent = now - self._start
        if not done or done >= self._to_do:
            return clock(spent)
        return f"{clock(spent)}, about {clock(spent / done * (self._to_do - done))} left"


def clock(seconds: float) -> str:
    """Return a duration as ``1:02:03`` or ``2:03``."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def shortened(task_id: str) -> str:
    """Return a task id that fits into a column. A long id is cut in the middle: most ids differ at the end."""
    text = printable_line(task_id)
    if len(text) <= _NAME_WIDTH:
        return text
    end = _NAME_WIDTH // 2
    return f"{text[: _NAME_WIDTH - end - 1]}…{text[-end:]}"
