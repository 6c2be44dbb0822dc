"""The README and the tutorial: their files are written, and their commands run as printed."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_FILE = re.compile(r"`([\w./-]+\.(?:yaml|jsonl|py))`[^`]*\n\n```(?:yaml|json|python)\n(.*?)```", re.DOTALL)
_COMMAND = re.compile(r"^\$ securebench ((?:validate|run|show) (?!benchmarks/).*)$", re.MULTILINE)


@pytest.mark.oci
@pytest.mark.usefixtures("oci_driver", "base_image")
@pytest.mark.parametrize(
    ("page", "passed", "failed"),
    [
        ("README.md", {"france"}, {"peru"}),
        (
            "docs/tutorial/first-benchmark.md",
            {"first/planet", "first/photosynthesis", "first/double"},
            {"first/boiling"},
        ),
    ],
)
def test_the_example_of_a_page_works(page: str, passed: set[str], failed: set[str], tmp_path: Path) -> None:
    """An empty directory, the files of the page and its commands are enough for the verdicts that it describes."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for name, content in _FILE.findall(text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
    commands = [shlex.split(line) for line in _COMMAND.findall(text)]
    assert [command[0] for command in commands][:2] == ["validate", "run"]
    for command in commands:
        driver = ["--driver", "oci"] if command[0] == "run" else []
        argv = [sys.executable, "-m", "securebench", *command, *driver]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    lines = (tmp_path / "results" / "candidates.jsonl").read_text(encoding="utf-8").splitlines()
    verdicts = {record["task_id"]: record["passed"] for record in map(json.loads, lines)}
    assert {task for task, verdict in verdicts.items() if verdict} == passed
    assert {task for task, verdict in verdicts.items() if not verdict} == failed
