"""Run SecureBench, as a command or in this process, on packs that the benchmark programs write."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import run_measured

from securebench.tester_config import load_tester_config
from securebench.tester_run import RunOptions, run_benchmark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from measure import Cost
    from sides import Side

    from securebench.progress import Event

SECUREBENCH = (sys.executable, "-m", "securebench")


@dataclass(frozen=True, slots=True)
class Workload:
    """A pack, and an agent that solves all of its tasks."""

    pack: Path
    tasks: int
    command: Sequence[str]
    agent_dir: Path | None = None

    def run(self, side: Side, workers: int, scratch: Path) -> Cost:
        """Run the tasks with ``securebench run`` and return the cost, including start-up.

        Raises ``SystemExit`` if a task does not pass.
        """
        config = self.write(side, scratch)
        argv = (*SECUREBENCH, "run", "--quiet", "--json", "--workers", str(workers), str(config))
        with side.switched():
            cost, output = run_measured(argv)
        self._require_passed(json.loads(output)["passed"], side)
        return cost

    def run_here(self, side: Side, workers: int, scratch: Path, sinks: Iterable[Callable[[Event], None]] = ()) -> float:
        """Run the tasks in this process and return the seconds that they took.

        Raises ``SystemExit`` if a task does not pass.
        """
        config = load_tester_config(self.write(side, scratch))
        started = time.perf_counter()
        with side.switched():
            summary = run_benchmark(config, RunOptions(workers=workers), sinks)
        took = time.perf_counter() - started
        self._require_passed(summary.passed, side)
        return took

    def _require_passed(self, passed: int, side: Side) -> None:
        if passed != self.tasks:
            raise SystemExit(
                f"only {passed} of {self.tasks} tasks passed on {side.name}, so the figures would be meaningless"
            )

    def write(self, side: Side, scratch: Path) -> Path:
        """Write the tester YAML of a run, and return its path."""
        directory = Path(tempfile.mkdtemp(dir=scratch))
        path = directory / "tester.yaml"
        path.write_text(json.dumps(self._config(side, directory)))
        return path

    def _config(self, side: Side, directory: Path) -> dict[str, Any]:
        agent = {"agent_dir": str(self.agent_dir)} if self.agent_dir else {}
        runtime = {"runtime": side.runtime} if side.runtime else {}
        return {
            "schema_version": "0.2",
            "run": {"id": "bench", "output_dir": str(directory / "results")},
            "benchmark": {"manifest": str(self.pack / "manifest.yaml"), "tasks": str(self.pack / "tasks.jsonl")},
            "harness": {"type": "command", "config": {"command": list(self.command), **agent}},
            "sandbox": {"driver": side.driver, **runtime},
        }


def repeated(scratch: Path, row: Mapping[str, object], tasks: int, command: Sequence[str]) -> Workload:
    """Write a pack of ``tasks`` equal tasks, called ``bench/0`` and so on, and return its workload."""
    pack = Path(tempfile.mkdtemp(dir=scratch))
    (pack / "manifest.yaml").write_text("id: bench\nversion: 1\n")
    rows = ({"id": f"bench/{index}", **row} for index in range(tasks))
    (pack / "tasks.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    return Workload(pack, tasks, command)
