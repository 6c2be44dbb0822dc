"""A scripted model's answers to the tasks of the example packs. It identifies a task by text from the task file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from benchmarks.packs import BENCHMARKS
from securebench.testing.provider import Say, Script, ScriptBook, Shell
from securebench.testing.provider.scripts import READ_TASK, by_marker, give_up, solve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXT: Final = "text-smoke"
CODE: Final = "code-completion-smoke"
TERMINAL: Final = "terminal-task-smoke"
REPOSITORY: Final = "repo-patch-smoke"
PACKS: Final = (TEXT, CODE, TERMINAL, REPOSITORY)
"""Example packs that together have a task of every active family."""

_ANSWERS: Final = BENCHMARKS / "demo-agent/answers"


def rows_of(pack: str, tasks: Path | None = None) -> list[dict[str, Any]]:
    """Return the rows of an example pack."""
    lines = (tasks or BENCHMARKS / pack / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def solving(pack: str, tasks: Path | None = None) -> ScriptBook:
    """Return a book that solves every task of the pack, and gives up on unknown tasks."""
    return by_marker(dict(scripts_of(pack, rows_of(pack, tasks))), give_up())


def scripts_of(pack: str, rows: list[dict[str, Any]]) -> Iterator[tuple[str, Script]]:
    """Yield, for each row, a text that its task file contains, and the script that solves it."""
    for row in rows:
        yield json.dumps(_said(row))[1:-1], _script(pack, row, _said(row))


def replies_of(pack: str, rows: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield, for each row that a model without a shell can answer in one turn, the question and a right reply."""
    for row in rows if pack in (TEXT, CODE) else []:
        is_code = "starter_code" in row["input"]
        yield _said(row).rstrip(), f"```python\n{_module(_said(row))}```" if is_code else f"Answer: {_right(row)}"


def _said(row: dict[str, Any]) -> str:
    public: dict[str, str] = row["input"]
    return next(public[name] for name in ("starter_code", "question", "instructions", "prompt") if name in public)


def _script(pack: str, row: dict[str, Any], prompt: str) -> Script:
    if pack == TERMINAL:
        return solve("terminal_task", "sort -n numbers.txt > sorted.txt")
    if pack == REPOSITORY:
        return _mended()
    if "starter_code" in row["input"]:
        return solve("code_completion", _module(prompt))
    return solve(str(row.get("family", "multiple_choice")), _right(row))


def _module(starter_code: str) -> str:
    """Return the demo agent's solution, except for ``move_zeros``: that one is wrong on purpose and is replaced."""
    if "def move_zeros(" in starter_code:
        return f"{starter_code}    numbers.sort(key=lambda number: number == 0)\n"
    answer = next(path for path in sorted(_ANSWERS.glob("*.py")) if f"def {path.stem}(" in starter_code)
    return answer.read_text(encoding="utf-8")


def _right(row: dict[str, Any]) -> str:
    """Return a right answer to a question, taken from its row."""
    judged = row["eval"]
    if "rubric" in judged:
        return str(judged["rubric"]["accepted_answers"][0])
    accepted = judged["answer"] if "answer" in judged else judged["accepted_answers"]
    first = accepted[0] if isinstance(accepted, list) else accepted
    choices = row["input"].get("choices", [])
    return choices[first] if isinstance(first, int) and choices else str(first)


def _mended() -> Script:
    """Return the script that fixes a repository with the pack's own agent, which reads the task file."""
    agent = (BENCHMARKS / REPOSITORY / "agents/agent.py").read_text(encoding="utf-8")
    return (
        READ_TASK,
        Shell(f"python3 - solution <<'END_OF_AGENT'\n{agent}END_OF_AGENT"),
        Say("The fault is mended."),
    )
