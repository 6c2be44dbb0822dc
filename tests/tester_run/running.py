"""A small run with fakes: its pack, its tester YAML, and its replaceable parts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from run_fakes import FakeProducer
from securebench.results.records.record import comparable
from securebench.results.run_directory.files import JOURNAL
from securebench.tester_config import load_tester_config
from securebench.tester_run import RunOptions, RunParts, TesterRunSummary, run_benchmark
from securebench.tester_run.planning import plan
from securebench.testing.scripted_sandbox import ScriptedDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from securebench.progress import Event
    from securebench.tester_config import TesterConfig

TESTER_YAML = """\
schema_version: "0.2"
run:
  id: run
  output_dir: results
benchmark:
  manifest: pack/manifest.yaml
  tasks: pack/tasks.jsonl
harness:
  type: command
  env: {env}
  config:
    command: [agent]
    agent_dir: agent
"""


def pin_framework(set_attribute: Callable[[object, str, object], None] = setattr) -> None:
    """Make the digest of the framework constant in this process: its source may be edited while tests run."""
    set_attribute(plan, "framework_provenance", lambda: {"version": "0", "digest": "pinned"})


def write_run(root: Path, tasks: int = 6, *, family: str = "short_answer", env: Iterable[str] = ()) -> Path:
    """Write a pack, an agent and a tester YAML, and return the YAML's path. The answer of each task is ``right``."""
    (root / "pack").mkdir(exist_ok=True)
    (root / "agent").mkdir(exist_ok=True)
    (root / "agent" / "agent.py").write_text("print('right')\n")
    (root / "pack" / "manifest.yaml").write_text("id: pack\nversion: 1\n")
    rows = [row(f"pack/task-{number}", family) for number in range(tasks)]
    (root / "pack" / "tasks.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    path = root / "tester.yaml"
    path.write_text(TESTER_YAML.format(env=json.dumps(list(env))))
    return path


def row(task_id: str, family: str = "short_answer") -> dict[str, Any]:
    """Return a row of the pack: a question, or a prompt for a family other than ``short_answer``."""
    if family == "short_answer":
        return {"id": task_id, "family": family, "input": {"question": "?"}, "eval": {"accepted_answers": ["right"]}}
    return {"id": task_id, "family": family, "input": {"prompt": "?", "tools": []}}


def add_row(root: Path) -> None:
    """Add a row to the pack."""
    path = root / "pack" / "tasks.jsonl"
    path.write_text(path.read_text() + json.dumps(row("pack/new")) + "\n")


def configuration(root: Path) -> TesterConfig:
    """Return the configuration from the tester YAML in ``root``."""
    return load_tester_config(root / "tester.yaml")


def make_parts(producer: FakeProducer | None = None, driver: ScriptedDriver | None = None, **changes: Any) -> RunParts:
    """Return the parts of a run. Harness and driver are fakes, unless ``changes`` replaces them."""
    chosen, made = producer or FakeProducer(), driver or ScriptedDriver()
    return RunParts(**{"make_driver": lambda *_: made, "make_producer": lambda _: chosen, **changes})


def run(
    root: Path,
    *,
    parts: RunParts | None = None,
    sinks: Iterable[Callable[[Event], None]] = (),
    **options: Any,
) -> TesterRunSummary:
    """Execute the run in ``root``, and return its summary."""
    return run_benchmark(configuration(root), RunOptions(**options), sinks, parts or make_parts())


def records(root: Path) -> list[dict[str, Any]]:
    """Return the records of the run in ``root``, in the order of the journal."""
    return [json.loads(line) for line in (root / "results" / JOURNAL).read_bytes().splitlines()]


def comparables(root: Path) -> list[dict[str, Any]]:
    """Return the records without the keys that may differ between two correct runs, sorted by task and trial."""
    return sorted(map(comparable, records(root)), key=lambda record: (str(record["task_id"]), record["trial"]))
