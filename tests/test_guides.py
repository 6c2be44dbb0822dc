"""The examples in the README, the tutorial and a how-to: their files are written, and their commands are run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_FILE = re.compile(r"`([\w./-]+\.(?:yaml|jsonl|py))`[^`]*\n\n```(?:yaml|json|python)\n(.*?)```", re.DOTALL)
_ANY_COMMAND = re.compile(r"^\$ ((?:securebench|tar) .*)$", re.MULTILINE)
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
    """The files and commands of a page, used in an empty directory, give the expected verdicts.

    Only ``validate``, ``run`` and ``show`` are run, and not on packs below ``benchmarks/``.
    """
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


@pytest.mark.oci
@pytest.mark.usefixtures("oci_driver", "base_image")
def test_a_run_is_published_and_checked(tmp_path: Path) -> None:
    """The commands in publish-a-run.md work, both those of the author and those of a reader.

    The reader has only the pack, the bundle and the public key.
    """
    page = (ROOT / "docs/how-to/publish-a-run.md").read_text(encoding="utf-8")
    author, reader = tmp_path / "author", tmp_path / "reader"
    for name, content in _FILE.findall((ROOT / "README.md").read_text(encoding="utf-8")):
        path = author / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    shutil.copytree(author / "my-pack", reader / "my-pack")
    publish, check = page.split("\n## Check\n")
    _run_all(publish, author, ["keys", "keys", "run", "bundle", "digest"])
    for name in ("results.tar.zst", "signing-key.pem.pub"):
        shutil.copy(author / name, reader)
    shutil.rmtree(author)
    _run_all(check, reader, ["verify-run", "tar", "verify-run", "digest", "reverify"])
    assert (reader / "first-run.reverified" / "run.json").is_file()


def _run_all(text: str, directory: Path, expected: list[str]) -> None:
    """Run the commands in ``text`` in order. Check that their names are ``expected`` and that all succeed."""
    commands = [shlex.split(line) for line in _ANY_COMMAND.findall(text)]
    assert [command[command[0] == "securebench"] for command in commands] == expected
    for command in commands:
        driver = ["--driver", "oci"] if command[1] in {"run", "reverify"} else []
        argv = [sys.executable, "-m", *command, *driver] if command[0] == "securebench" else command
        done = subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
