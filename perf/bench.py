"""What the framework costs, beside the bare floor, in one run: medians, and ratios to trust on a noisy machine.

    make bench                 all of it, a few minutes
    perf/bench.py --quick      fewer tasks and rounds, no memory figure

Each round measures floor and framework one after the other, for every number of workers; the table shows the medians
over the rounds, per task, and the median of the rounds' own ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from floor import Floor
from rich.console import Console
from rich.table import Table

from securebench.tasks import DEFAULT_IMAGE
from securebench.tester_config import load_tester_config
from securebench.tester_run import RunOptions, run_benchmark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

WORKERS = (1, 2, 4, 8)
TEXT_ROW = {
    "family": "multiple_choice",
    "input": {"question": "Which is first?", "choices": ["first", "second"]},
    "eval": {"answer": "A"},
}
CODE_ROW = {
    "family": "code_completion",
    "input": {"prompt": "Write double(n)."},
    "eval": {"tests": {"source": "inline", "code": "assert double(2) == 4\n"}},
}
TEXT_AGENT = ["/bin/echo", "A"]
CODE_AGENT = ["/bin/echo", "def double(n): return 2 * n"]


@dataclass(frozen=True)
class Shape:
    """A kind of task: what one is, what answers it, and the containers that it takes at the least."""

    name: str
    row: Mapping[str, object]
    agent: list[str]
    floor: Callable[[Floor], None]


SHAPES = (
    Shape("text", TEXT_ROW, TEXT_AGENT, Floor.one),
    Shape("code", CODE_ROW, CODE_AGENT, Floor.one_then_two),
)


def main() -> None:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer tasks and rounds, no memory figure")
    quick = parser.parse_args().quick
    tasks, rounds = (16, 1) if quick else (40, 3)
    console = Console(width=None if sys.stdout.isatty() else 100)
    with tempfile.TemporaryDirectory(prefix="securebench-bench-") as scratch:
        console.print(_start_up())
        console.print(_overhead(Path(scratch), tasks, rounds))
        if not quick:
            console.print(_memory(Path(scratch)))


def _start_up() -> Table:
    table = Table("start-up", "median s", "bound s", title="Start-up, whole process")
    for name, argv in {
        "import securebench": [sys.executable, "-c", "import securebench"],
        "securebench --help": [sys.executable, "-m", "securebench", "--help"],
    }.items():
        table.add_row(name, f"{statistics.median(_seconds(argv) for _ in range(11)):.3f}", "0.2")
    return table


def _seconds(argv: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def _overhead(scratch: Path, tasks: int, rounds: int) -> Table:
    title = f"Per task: {tasks} tasks a cell, median of {rounds}"
    table = Table("task", "workers", "floor ms", "framework ms", "ratio", "bound", "tasks/s", title=title)
    floor = Floor(DEFAULT_IMAGE)
    for shape in SHAPES:
        for workers in WORKERS:
            pairs = [_pair(floor, shape, scratch, tasks, workers) for _ in range(rounds)]
            bare, ours = (statistics.median(figures) for figures in zip(*pairs, strict=True))
            ratio = statistics.median(framework / bare for bare, framework in pairs)
            figures = (f"{bare * 1000:.0f}", f"{ours * 1000:.0f}", f"{ratio:.2f}", "1.30", f"{1 / ours:.1f}")
            table.add_row(shape.name, str(workers), *figures)
    floor.close()
    return table


def _pair(floor: Floor, shape: Shape, scratch: Path, tasks: int, workers: int) -> tuple[float, float]:
    bare = floor.per_task(lambda: shape.floor(floor), tasks=tasks, workers=workers)
    config = _write_run(scratch, shape, tasks)
    started = time.perf_counter()
    summary = run_benchmark(load_tester_config(config), RunOptions(workers=workers))
    ours = (time.perf_counter() - started) / tasks
    if summary.passed != tasks:
        raise SystemExit(f"only {summary.passed} of {tasks} tasks passed: the figures would mean nothing")
    return bare, ours


def _memory(scratch: Path) -> Table:
    table = Table("tasks", "peak MiB", title="Memory of the coordinator, 4 workers")
    for tasks in (10, 1000):
        config = _write_run(scratch, SHAPES[0], tasks)
        argv = [sys.executable, "-m", "securebench", "run", "--quiet", "--workers", "4", str(config)]
        table.add_row(str(tasks), f"{_peak_mib(argv):.1f}")
    return table


def _peak_mib(argv: Sequence[str]) -> float:
    """Return the peak memory of a whole process, as the kernel accounted it."""
    measure = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", measure, *argv], check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout) / 1024


def _write_run(scratch: Path, shape: Shape, tasks: int) -> Path:
    """Write a pack of ``tasks`` equal tasks and a tester YAML for it, with an output directory of its own."""
    directory = Path(tempfile.mkdtemp(dir=scratch))
    pack = directory / "pack"
    pack.mkdir()
    (pack / "manifest.yaml").write_text("id: bench\nversion: 1\n")
    rows = ({"id": f"bench/{index}", **shape.row} for index in range(tasks))
    (pack / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "schema_version": "0.2",
        "run": {"id": "bench", "output_dir": "results"},
        "benchmark": {"manifest": "pack/manifest.yaml", "tasks": "pack/tasks.jsonl"},
        "harness": {"type": "command", "config": {"command": shape.agent}},
    }
    path = directory / "tester.yaml"
    path.write_text(json.dumps(config))
    return path


if __name__ == "__main__":
    main()
