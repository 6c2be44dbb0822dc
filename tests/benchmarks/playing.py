"""Run an example pack from its tester YAML with the driver of a test, and judge its candidates again."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.packs import BENCHMARKS

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver

_PATHS = re.compile(r"^(\s+(?:manifest|tasks|agent_dir): )(.+)$", re.MULTILINE)


def play(
    pack: str, tester: str, driver: SandboxDriver, root: Path, *arguments: str, packs: Path = BENCHMARKS
) -> dict[str, dict[str, Any]]:
    """Run ``benchmarks/<pack>/<tester>.yaml``, and return the records by task.

    The keys are the task ids without the part before the first slash.
    ``arguments`` are added to the agent's command. ``packs`` is the directory of the packs.
    """
    directory = packs / pack
    text = _PATHS.sub(rf"\1{directory}/\2", (directory / f"{tester}.yaml").read_text())
    text = text.replace("agent.sh]", ", ".join(("agent.sh", *arguments)) + "]")
    records = run(text, driver, root)
    return {record["task_id"].partition("/")[2]: record for record in records}


def judge_again(root: Path, *flags: str) -> dict[str, Any]:
    """Run ``securebench reverify`` on the run in ``root / "out"``, and return its JSON result with the exit code."""
    command = [sys.executable, "-m", "securebench", "reverify", str(root / "out"), "--workers", "2", "--json", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return {**json.loads(done.stdout), "exit_code": done.returncode}


def run(tester: str, driver: SandboxDriver, root: Path) -> list[dict[str, Any]]:
    """Run ``tester``, a tester YAML without a ``sandbox``, with output in ``root / "out"``, and return the records."""
    info = driver.info()
    runtime = f", runtime: {info.runtime}" if info.name == "oci" else ""
    config = root / "tester.yaml"
    config.write_text(f"{tester}sandbox: {{driver: {info.name}{runtime}}}\n")
    command = [sys.executable, "-m", "securebench", "run", str(config), "--workers", "2", "--output-dir"]
    done = subprocess.run([*command, str(root / "out")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (root / "said.txt").write_text(done.stdout + done.stderr)
    return [json.loads(line) for line in (root / "out/candidates.jsonl").read_text().splitlines()]
