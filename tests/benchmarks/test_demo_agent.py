"""The demo agent: its answers are right, except those that its README lists as wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.authors_data import humaneval_document
from benchmarks.packs import BENCHMARKS, judged, tasks_of
from securebench.importers.humaneval import humaneval_rows
from securebench.importers.pack_output import write_pack
from securebench.testing.scripted_sandbox import ScriptedDriver

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver
    from securebench.tasks import SecureBenchTask

AGENT = BENCHMARKS / "demo-agent"
WRONG = set(re.findall(r"^\| `([\w/-]+)` \|", (AGENT / "README.md").read_text(), re.MULTILINE))


def _answer(payload: dict[str, object], directory: Path) -> str:
    """Run the demo agent on a task, and return its output. Of the test's environment, the agent gets only ``PATH``."""
    (directory / "task.json").write_text(json.dumps(payload))
    environment = {"SECUREBENCH_TASK_FILE": str(directory / "task.json"), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-I", str(AGENT / "agent.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def _failed(tasks: Iterable[SecureBenchTask], driver: SandboxDriver, scratch: Path) -> set[str]:
    answers = {task.id: _answer(dict(task.agent_payload()), scratch) for task in tasks}
    return {task.id for task in tasks if not judged(task, answers[task.id], driver, scratch).passed}


def test_the_readme_names_five_wrong_answers() -> None:
    """The README says that five answers are wrong, and its table lists five.

    The next three tests rely on this table.
    """
    assert len(WRONG) == 5
    assert "**Five are wrong on purpose**" in (AGENT / "README.md").read_text()


def test_its_texts_are_right_but_for_those_named(tmp_path: Path) -> None:
    """In text-smoke, exactly the answers that the README lists as wrong fail."""
    failed = _failed(tasks_of("text-smoke").values(), ScriptedDriver(), tmp_path)
    assert failed == {name for name in WRONG if name.startswith("text-smoke/")}


def test_its_functions_are_right_but_for_those_named(driver: SandboxDriver, tmp_path: Path) -> None:
    """In code-completion-smoke, exactly the answers that the README lists as wrong fail."""
    failed = _failed(tasks_of("code-completion-smoke").values(), driver, tmp_path)
    assert failed == {name for name in WRONG if name.startswith("code-completion-smoke/")}


def test_its_answers_to_humaneval_are_right_but_for_those_named(driver: SandboxDriver, tmp_path: Path) -> None:
    """In humaneval-mini, exactly the answers that the README lists as wrong fail."""
    rows = humaneval_rows(humaneval_document(), "HumanEval.jsonl")[:10]
    written = write_pack(tmp_path / "pack", rows, {"id": "humaneval-mini", "version": 1}, force=False).tasks
    failed = _failed(tasks_of("humaneval-mini", written).values(), driver, tmp_path)
    assert failed == {name for name in WRONG if name.startswith("HumanEval/")}


def test_it_copies_no_solution_of_a_data_set() -> None:
    """No answer to the first ten HumanEval tasks contains the authors' solution. White space is ignored."""
    for row in humaneval_rows(humaneval_document(), "HumanEval.jsonl")[:10]:
        answer = (AGENT / "answers" / f"{row.task['metadata']['entry_point']}.py").read_text()
        body = row.task["eval"]["canonical_solution"].removeprefix(row.task["input"]["starter_code"])
        assert "".join(body.split()) not in "".join(answer.split())
