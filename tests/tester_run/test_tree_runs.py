"""Runs of repository and terminal tasks in real sandboxes. The runs are killed at various moments and resumed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.packs import BENCHMARKS
from tester_run.real_run import RealRun, anonymous
from tester_run.running import records

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver

PACK = BENCHMARKS / "repo-patch-smoke"
REPOSITORIES = ("more-itertools-split", "voluptuous-remove-extra")
AGENT = """\
import json, os, runpy, sys
task = json.load(open(os.environ["SECUREBENCH_TASK_FILE"]))
if "repo" in task:
    sys.argv = ["agent.py", "solution"]
    runpy.run_path("/opt/securebench/agent/repository_agent.py", run_name="__main__")
else:
    os.makedirs("out", exist_ok=True)
    os.symlink("out", "link")
    with open("out/sorted.txt", "w") as file:
        file.writelines(sorted(task["context"]["words"].split(), reverse=task["context"]["wrong"]))
"""
KILLS = 6
CHECKER = "import sys; sys.exit(open('out/sorted.txt').read() != 'abc')"


def _terminal_row(number: int) -> dict[str, Any]:
    return {
        "id": f"pack/terminal-{number}",
        "family": "terminal_task",
        "input": {"instructions": "Sort the words.", "context": {"words": "b c a", "wrong": number == 2}},
        "environment": {"workdir": "/app"},
        "eval": {"checker": {"command": ["python3", "-I", "-c", CHECKER]}},
    }


def _repository_rows() -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (PACK / "tasks.jsonl").read_text().splitlines()]
    return [
        {
            **row,
            "family": "repo_patch",
            "environment": {**row["environment"], "workdir": "/testbed"},
        }
        for row in rows
        if row["id"].partition("/")[2] in REPOSITORIES
    ]


class TreeRun(RealRun):
    """A run of three ``terminal_task`` rows, one of which the agent solves wrongly, and two ``repo_patch`` rows."""

    def __init__(self, root: Path, driver: SandboxDriver) -> None:
        super().__init__(root, driver)
        rows = [*map(_terminal_row, range(3)), *_repository_rows()]
        (root / "pack" / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (root / "agent" / "agent.py").write_text(AGENT)
        shutil.copy(PACK / "agents" / "agent.py", root / "agent" / "repository_agent.py")


@pytest.fixture(scope="module")
def images() -> None:
    """Build the missing images of the repositories."""
    command = [sys.executable, "-m", "securebench", "images", "build", str(PACK / "images")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.sandboxes_alone
@pytest.mark.timeout(300)
@pytest.mark.long
def test_killed_at_any_moment_and_resumed(tmp_path: Path, driver: SandboxDriver, images: None) -> None:
    """A killed and resumed run has the records of an uninterrupted run and leaves nothing on the host (L01, L10)."""
    clean = TreeRun(tmp_path / "clean", driver)
    begun = time.monotonic()
    done = clean.finish("--workers", "2")
    lasted = time.monotonic() - begun
    assert done.returncode == 0, done.stderr
    verdicts = {record["task_id"]: record["verification_status"] for record in records(clean.root)}
    assert sorted(verdicts.values()) == ["failed", "passed", "passed", "passed", "passed"], done.stdout
    for part in range(1, KILLS + 1):
        one = TreeRun(tmp_path / f"killed-{part}", driver)
        _kill_after(one, lasted * part / (KILLS + 1))
        done = one.finish("--workers", "2", "--resume")
        assert done.returncode == 0, done.stderr
        assert anonymous(one.root) == anonymous(clean.root)
        assert not one.left()
    assert not clean.left()


def _kill_after(run: RealRun, seconds: float) -> None:
    with run.begun("--workers", "2", after=0) as process:
        time.sleep(seconds)
        process.kill()
