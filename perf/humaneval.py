"""Measure HumanEval end to end, with an agent that knows the solutions, and compare it with bare processes.

The floor is three bare processes per task: the same agent, then the candidate and the tests at once. ``bare crun`` is
the same with the agent and the candidate in containers of the bare runtime, which ``bare_humaneval.py`` runs without a
framework and without cgroups.

Docker's containers are not children of a process that is measured. Therefore, the processor time for Docker is that of
the whole machine, and the machine should be quiet. In all other cases, it is the processor time of the measured process
and the children that it waited for.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cycle import WORKSPACE, apart, bare_bundles, bare_can_run, make_workspace
from measure import Cost, measured, run_measured
from report import Table, within
from runs import SECUREBENCH, Workload

from securebench.sandboxes.base import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sides import Side

ROOT: Final = Path(__file__).resolve().parent.parent
AGENT: Final = """\
import json, os
answers = json.load(open(os.path.join(os.path.dirname(__file__), "answers.json")))
print(answers[json.load(open(os.environ["SECUREBENCH_TASK_FILE"]))["starter_code"]])
"""
PYTHON: Final = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
"""The interpreter of the floor: the machine's own, which is most similar to that of an image."""
FASTER_BOUND: Final = 8.0
CPU_BOUND: Final = 2.0
_OPTIONS: Final = ("-I", "-B")
_BARE: Final = Path(__file__).resolve().parent / "bare_humaneval.py"


@dataclass(frozen=True, slots=True)
class Suite:
    """The rows of the benchmark, and a workload whose agent knows their solutions."""

    rows: Sequence[dict[str, Any]]
    workload: Workload
    note: str

    @classmethod
    def prepare(cls, scratch: Path, limit: int | None) -> Suite:
        """Import the first ``limit`` rows, or all, with ``securebench import``. If that fails, use the demo's rows."""
        pack, note = _import(scratch / "humaneval", limit)
        rows = [json.loads(line) for line in (pack / "tasks.jsonl").read_text(encoding="utf-8").splitlines()]
        agent = scratch / "humaneval-agent"
        agent.mkdir()
        (agent / "agent.py").write_text(AGENT)
        answers = {row["input"]["starter_code"]: row["eval"]["canonical_solution"] for row in rows}
        (agent / "answers.json").write_text(json.dumps(answers))
        command = ("python3", *_OPTIONS, "/opt/securebench/agent/agent.py")
        return cls(rows, Workload(pack, len(rows), command, agent), note)

    def floor(self, workers: int) -> Cost:
        """Run the agent, the candidate and the tests of each task as bare processes. Return the cost."""
        with tempfile.TemporaryDirectory() as directory, measured() as cost, ThreadPoolExecutor(workers) as pool:
            for done in [pool.submit(self._bare, row, Path(directory, str(i))) for i, row in enumerate(self.rows)]:
                done.result()
        return cost

    def _bare(self, row: dict[str, Any], task_file: Path) -> None:
        task_file.write_text(json.dumps(row["input"]))
        agent = [PYTHON, *_OPTIONS, str(self.workload.agent_dir / "agent.py")]  # type: ignore[operator]  # not None
        answer = subprocess.check_output(agent, env={"SECUREBENCH_TASK_FILE": str(task_file)}, text=True)
        programs = (answer, f"{answer}\n{row['eval']['tests']['code']}")
        running = [subprocess.Popen([PYTHON, *_OPTIONS, "-c", program]) for program in programs]
        if any([process.wait() for process in running]):  # noqa: C419 - a generator would not wait for each
            raise SystemExit(f"{row['id']} failed outside of a sandbox")

    def bare_runtime(self, workers: int, scratch: Path) -> Cost:
        """Run the agent and the candidate of each task in bare containers, and the tests as a bare process."""
        workspace = make_workspace(scratch)
        shutil.copytree(self.workload.agent_dir, workspace, dirs_exist_ok=True)  # type: ignore[arg-type]  # not None
        agent = ("python3", *_OPTIONS, f"{WORKSPACE}/agent.py")
        tasks = []
        with bare_bundles(scratch, workspace) as make_bundle:
            for number, row in enumerate(self.rows):
                (workspace / f"{number}.json").write_text(json.dumps(row["input"]))
                answer = row["eval"]["canonical_solution"]
                candidate = ("python3", *_OPTIONS, "-c", answer)
                environment = {"SECUREBENCH_TASK_FILE": f"{WORKSPACE}/{number}.json"}
                tests = [PYTHON, *_OPTIONS, "-c", f"{answer}\n{row['eval']['tests']['code']}"]
                tasks.append(
                    {
                        "agent": make_bundle(Command(argv=agent, timeout_seconds=60, environment=environment)),
                        "candidate": make_bundle(Command(argv=candidate, timeout_seconds=60)),
                        "tests": tests,
                    }
                )
            call = workspace / "call.json"
            call.write_text(json.dumps({"tasks": tasks, "workers": workers}))
            return Cost(**json.loads(run_measured(apart(_BARE, str(call)))[1]))


def table(suite: Suite, sides: Sequence[Side], scratch: Path, *, workers: Sequence[int], rounds: int) -> Table:
    """Measure the floor and each side ``rounds`` times (Docker once). Return a table that compares them."""
    columns = ("workers", "who", "tasks/s", "x docker", "CPU ms a task", "x floor")
    figures = Table(f"HumanEval, {len(suite.rows)} tasks with known solutions, end to end", columns)
    for count in workers:
        costs: dict[str, list[Cost]] = {"floor": []}
        for number in range(rounds):
            costs["floor"].append(suite.floor(count))
            if bare_can_run(sides):
                costs.setdefault("bare crun", []).append(suite.bare_runtime(count, scratch))
            for side in sides:
                if number == 0 or not side.is_docker:
                    costs.setdefault(side.name, []).append(suite.workload.run(side, count, scratch))
        _add(figures, count, len(suite.rows), costs)
    figures.notes += [suite.note] if suite.note else []
    figures.notes.append(
        f"Floor: {PYTHON}, three bare processes a task. CPU: of all processes waited for; Docker: of the whole machine."
    )
    return figures


def _add(table: Table, workers: int, tasks: int, costs: dict[str, list[Cost]]) -> None:
    walls = {name: statistics.median(cost.wall for cost in found) for name, found in costs.items()}
    used = {name: statistics.median(_cpu(name, cost) for cost in found) for name, found in costs.items()}
    for name in costs:
        ours = name not in {"floor", "bare crun", "docker"}
        faster = walls["docker"] / walls[name] if "docker" in walls else None
        more = used[name] / used["floor"]
        table.add(
            workers,
            name,
            tasks / walls[name],
            "" if faster is None else within(faster, FASTER_BOUND, at_least=True) if ours else faster,
            used[name] / tasks * 1000,
            within(more, CPU_BOUND) if ours else more,
        )


def _cpu(name: str, cost: Cost) -> float:
    return cost.machine if name == "docker" else cost.cpu


def _import(pack: Path, limit: int | None) -> tuple[Path, str]:
    argv = [*SECUREBENCH, "import", "humaneval", "--output", str(pack), "--cache", str(ROOT / ".cache" / "import")]
    done = subprocess.run([*argv, *(["--limit", str(limit)] if limit else [])], check=False, capture_output=True)
    mini = ROOT / "benchmarks" / "humaneval-mini"
    if done.returncode == 0:
        return pack, ""
    if (mini / "tasks.jsonl").exists():
        return mini, "The complete data could not be downloaded, so these are the demo's ten tasks."
    raise SystemExit("HumanEval's data could not be downloaded:\n" + done.stderr.decode())
