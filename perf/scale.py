"""Measure what depends on workers and rows: throughput, the executor's share of a task, and a pack of many rows."""

from __future__ import annotations

import json
import statistics
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from measure import measured
from overhead import CODE_ROW, SHAPES
from report import Table, within
from runs import repeated
from sides import Side

from securebench.benchmark_compiler import compile_benchmark_pack
from securebench.benchmark_pack import load_benchmark_pack
from securebench.errors import EngineError
from securebench.execution import History
from securebench.execution.assignment import Assignment
from securebench.executors.local import LocalExecutor
from securebench.executors.ray import RayExecutor, RaySettings
from securebench.harnesses.base import AgentResult, HarnessProducer
from securebench.progress import RunStart
from securebench.results.run_directory.files import JOURNAL
from securebench.tasks import CandidateKind
from securebench.tester_config import load_tester_config
from securebench.tester_run import RunOptions, RunParts, run_benchmark
from securebench.testing.conformance.executors import SleepingWorker
from securebench.testing.scripted_sandbox import ScriptedDriver

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.executors.base import Executor, Worker
    from securebench.harnesses.base import ProduceContext
    from securebench.progress import Event
    from securebench.tasks import AgentView

LOCAL_BOUND: Final = 2.0
RAY_BOUND: Final = 30.0
RAY_TASKS: Final = 500
"""Maximum number of tasks that Ray executes. Ray is slower than the local executor."""
ROWS_BOUND: Final = 3.0
WORKERS: Final = (1, 2, 4, 8, 16, 32)
NOISE: Final = 0.05
"""A rate may be lower by this share than the best rate with fewer workers."""
_RECORD_BYTES: Final = 4096
_TEXT: Final = "x" * 500


class _Nothing(SleepingWorker):
    """A worker that only parses an assignment, and returns a record of the usual size."""

    def __call__(self, assignment: bytes) -> bytes:
        Assignment.from_bytes(assignment)
        return b"x" * _RECORD_BYTES


def executors(*, tasks: int, rounds: int) -> Table:
    """Measure what executors add to a task that does nothing. Include Ray on one machine, if it is installed."""
    table = Table("Executor: tasks that do nothing", ("executor", "workers", "tasks", "ms a task"))
    assignment = Assignment("", "bench/1", History()).to_bytes()
    for workers in (1, 4):
        found = [_per_task(LocalExecutor(workers), _Nothing(), [assignment] * tasks) for _ in range(rounds)]
        table.add("local", workers, tasks, within(statistics.median(found) * 1000, LOCAL_BOUND))
    if find_spec("ray") is not None:
        sleep = json.dumps({"sleep": 0, "text": "x" * _RECORD_BYTES}).encode()
        few = min(tasks, RAY_TASKS)
        for workers in (1, 4):
            seconds = _per_task(RayExecutor(workers, RaySettings()), SleepingWorker(), [sleep] * few)
            table.add("ray", workers, few, within(seconds * 1000, RAY_BOUND))
    return table


def _per_task(executor: Executor, worker: Worker, assignments: list[bytes]) -> float:
    """Return the mean seconds per task after the first result. This leaves out the start of the workers."""
    results = executor.run(iter(assignments), worker, draining=lambda: False, abandoned=lambda: None)
    next(results)
    started = time.perf_counter()
    if 1 + sum(1 for _ in results) != len(assignments):
        raise SystemExit("the executor lost tasks")
    return (time.perf_counter() - started) / (len(assignments) - 1)


def throughput(side: Side, scratch: Path, *, tasks: int, rounds: int) -> Table:
    """Measure the rate of trivial code tasks with increasing numbers of workers."""
    table = Table(f"Throughput of {tasks} code tasks on {side.name}, median of {rounds}", ("workers", "tasks/s", "x"))
    rates: dict[int, list[float]] = {workers: [] for workers in WORKERS}
    workload = repeated(scratch, CODE_ROW, tasks, SHAPES[1].agent)
    workload.run_here(side, 1, scratch)  # the first run also imports modules and compiles programs
    for number in range(rounds):  # the order alternates, so that other load affects all numbers alike
        for workers in WORKERS[:: -1 if number % 2 else 1]:
            rates[workers].append(tasks / workload.run_here(side, workers, scratch))
    medians = {workers: statistics.median(found) for workers, found in rates.items()}
    best = 0.0
    for workers, rate in medians.items():
        table.add(workers, rate, within(rate / best, 1 - NOISE, at_least=True) if best else 1.0)
        best = max(best, rate)
    table.notes.append("x: compared with the best rate of fewer workers.")
    return table


class _Answering(HarnessProducer):
    """A producer that answers without a sandbox. The task ``failing`` fails as if the engine had stopped."""

    name = "bench"
    failing = "bench/0"

    def produce(self, view: AgentView, context: ProduceContext) -> AgentResult:
        if view.task_id == self.failing:
            raise EngineError("the engine does not answer")
        answer = f"I thought about {view.task_id}.\nAnswer: A\n"
        return AgentResult(
            candidate=context.store.seal_bytes(CandidateKind.TEXT, answer.encode(), answer), stdout=answer
        )


def many_rows(scratch: Path, *, rows: int) -> Table:
    """Measure a pack of many rows: loading it, compiling it, and resuming a run in which one task is left."""
    row: dict[str, Any] = {**SHAPES[0].row, "metadata": {"text": _TEXT}}
    workload = repeated(scratch, row, rows, ("unused",))
    manifest, lines = workload.pack / "manifest.yaml", workload.pack / "tasks.jsonl"
    with measured() as load:
        pack = load_benchmark_pack(manifest, lines)
    with measured() as compiling:
        compile_benchmark_pack(pack)
    producer = _Answering()
    parts = RunParts(make_driver=lambda *_: ScriptedDriver(), make_producer=lambda _: producer)
    config = load_tester_config(workload.write(Side("crun"), scratch))
    with measured() as first:
        run_benchmark(config, RunOptions(workers=2), (), parts)
    producer.failing = ""
    until_start = 0.0

    def note(event: Event) -> None:
        nonlocal until_start
        if isinstance(event, RunStart):
            until_start = time.perf_counter() - started

    started = time.perf_counter()
    with measured() as resume:
        summary = run_benchmark(config, RunOptions(workers=2, resume=True), [note], parts)
    if summary.passed != rows:
        raise SystemExit(f"only {summary.passed} of {rows} tasks passed, so the figures would be meaningless")
    journal = (config.run.output_dir / JOURNAL).stat().st_size
    table = Table(f"A pack of {rows:,} rows, {lines.stat().st_size / 2**20:.0f} MiB", ("what", "s", "CPU s"))
    table.add("load", load.wall, within(load.cpu, ROWS_BOUND))
    table.add("compile", compiling.wall, within(compiling.cpu, ROWS_BOUND))
    table.add(f"resume with {rows - 1:,} done, to the summary", resume.wall, within(resume.cpu, ROWS_BOUND))
    table.add("of that, until its task starts", until_start, "")
    table.notes.append(
        f"The run itself, without sandboxes: {first.wall / rows * 1000:.2f} ms a task. "
        f"Its journal: {journal / 2**20:.0f} MiB."
    )
    return table
