"""A small real run with one task of each family that has a verifier, and one of a family that has none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.packs import BENCHMARKS
from tester_run.real_run import AGENT, ROWS, RealRun

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver

PACK = BENCHMARKS / "repo-patch-smoke"
REPOSITORY = "voluptuous-remove-extra"

WORK = """\
import json, os, runpy, sys
task = json.load(open(os.environ["SECUREBENCH_TASK_FILE"]))
if "repo" in task:
    sys.argv = ["agent.py", "solution"]
    runpy.run_path("/opt/securebench/agent/repository_agent.py", run_name="__main__")
elif "words" in task.get("context", ()):
    os.makedirs("out", exist_ok=True)
    with open("out/sorted.txt", "w") as file:
        file.writelines(sorted(task["context"]["words"].split()))
else:
    runpy.run_path("/opt/securebench/agent/text_agent.py", run_name="__main__")
"""

_CHECKER = "import sys; sys.exit(open('out/sorted.txt').read() != 'abc')"
_TERMINAL: dict[str, Any] = {
    "family": "terminal_task",
    "input": {"instructions": "Sort the words.", "context": {"words": "b c a"}},
    "environment": {"workdir": "/app"},
    "eval": {"checker": {"command": ["python3", "-I", "-c", _CHECKER]}},
}
_PENDING: dict[str, Any] = {"family": "tool_call", "input": {"prompt": "Book it.", "tools": []}}


class EveryFamilyRun(RealRun):
    """A run with a task of each family that has a verifier, and a ``tool_call`` task, which stays pending."""

    def __init__(self, root: Path, driver: SandboxDriver) -> None:
        super().__init__(root, driver)
        repository = next(
            row
            for row in map(json.loads, (PACK / "tasks.jsonl").read_text().splitlines())
            if row["id"].endswith(REPOSITORY)
        )
        repository |= {"family": "repo_patch", "environment": {**repository["environment"], "workdir": "/testbed"}}
        rows = [{"id": f"pack/{row['family']}", **row} for row in (*ROWS, _TERMINAL, _PENDING)]
        (root / "pack" / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (*rows, repository)))
        (root / "agent" / "agent.py").write_text(WORK)
        (root / "agent" / "text_agent.py").write_text(AGENT.format(sleep=0))
        shutil.copy(PACK / "agents" / "agent.py", root / "agent" / "repository_agent.py")


def build_images() -> None:
    """Build the image of the repository if it is missing."""
    command = [sys.executable, "-m", "securebench", "images", "build", str(PACK / "images")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
