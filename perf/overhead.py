"""Measure what the framework costs: start-up, time per task beyond the containers, and the coordinator's memory."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from floor import Floor
from report import Table, within
from runs import SECUREBENCH, repeated

from securebench.tasks import DEFAULT_IMAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from sides import Side

TEXT_ROW: Final = {
    "family": "multiple_choice",
    "input": {"question": "Which is first?", "choices": ["first", "second"]},
    "eval": {"answer": "A"},
}
CODE_ROW: Final = {
    "family": "code_completion",
    "input": {"prompt": "Write double(n)."},
    "eval": {"tests": {"source": "inline", "code": "assert double(2) == 4\n"}},
}
START_UP_BOUND: Final = 0.2
RATIO_BOUND: Final = 1.3


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of task: its row, and an agent that solves it.

    ``floor`` is a function that runs only the bare containers that such a task needs.
    """

    name: str
    row: Mapping[str, object]
    agent: tuple[str, ...]
    floor: Callable[[Floor], None]


SHAPES: Final = (
    Shape("text", TEXT_ROW, ("/bin/echo", "A"), Floor.one),
    Shape("code", CODE_ROW, ("/bin/echo", "def double(n): return 2 * n"), Floor.one_then_two),
)

_DAEMONLESS_TASKS: Final = 8
"""A driver without a daemon runs this many times as many tasks as Docker."""


def start_up() -> Table:
    """Measure the time of whole processes that do very little."""
    table = Table("Start-up, whole process", ("start-up", "median s"))
    for name, argv in {
        "import securebench": (sys.executable, "-c", "import securebench"),
        "securebench --help": (*SECUREBENCH, "--help"),
    }.items():
        table.add(name, within(statistics.median(_seconds(argv) for _ in range(11)), START_UP_BOUND))
    return table


def per_task(sides: Sequence[Side], scratch: Path, *, tasks: int, rounds: int, workers: Sequence[int]) -> Table:
    """Measure the time per task on each side: the time of a whole run, divided by the number of its tasks.

    On Docker, compare this time with that of the same containers without the framework. Other drivers run more tasks,
    because starting a run takes as long as several of their tasks.
    """
    columns = ("task", "workers", "who", "ms a task", "bare containers, ms", "ratio", "tasks/s")
    table = Table(f"Per task: {tasks} tasks a cell, median of {rounds}", columns)
    table.notes.append(f"Drivers without a daemon: {tasks * _DAEMONLESS_TASKS} tasks a cell.")
    for shape in SHAPES:
        for count in workers:
            for side in sides:
                many = tasks if side.is_docker else tasks * _DAEMONLESS_TASKS
                table.add(shape.name, count, side.name, *_cell(shape, side, scratch, (many, rounds, count)))
    return table


def _cell(shape: Shape, side: Side, scratch: Path, many: tuple[int, int, int]) -> Iterator[object]:
    """Yield the ms per task, the ms of its bare containers and the ratio (both only for Docker), and the tasks/s."""
    tasks, rounds, workers = many
    workload = repeated(scratch, shape.row, tasks, shape.agent)
    pairs = [
        (_bare(shape, side, tasks, workers), workload.run_here(side, workers, scratch) / tasks) for _ in range(rounds)
    ]
    ours = statistics.median(framework for _, framework in pairs)
    yield ours * 1000
    yield statistics.median(bare for bare, _ in pairs) * 1000 if side.is_docker else ""
    ratio = statistics.median(framework / bare for bare, framework in pairs) if side.is_docker else 0.0
    yield within(ratio, RATIO_BOUND) if side.is_docker else ""
    yield 1 / ours


def _bare(shape: Shape, side: Side, tasks: int, workers: int) -> float:
    if not side.is_docker:
        return 0.0
    with closing(Floor(DEFAULT_IMAGE)) as floor:
        return floor.per_task(lambda: shape.floor(floor), tasks=tasks, workers=workers)


def memory(side: Side, scratch: Path) -> Table:
    """Measure the peak memory of the coordinator with few and with many tasks."""
    table = Table(f"Memory of the coordinator, 4 workers, on {side.name}", ("tasks", "peak MiB"))
    for tasks in (10, 1000):
        workload = repeated(scratch, TEXT_ROW, tasks, SHAPES[0].agent)
        table.add(tasks, workload.run(side, 4, scratch).peak_mib)
    return table


def _seconds(argv: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started
