"""What a scripted model answers to the tasks of the example packs: it knows them by what stands in the task file."""

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
"""Example packs that hold a task of every active family between them."""

_ANSWERS: Final = BENCHMARKS / "demo-agent/answers"


def rows_of(pack: str, tasks: Path | None = None) -> list[dict[str, Any]]:
    """Return the rows of an example pack."""
    lines = (tasks or BENCHMARKS / pack / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def solving(pack: str, tasks: Path | None = None) -> ScriptBook:
    """Return a book in which every task of the pack is solved. A task that it does not know is given up."""
    return by_marker(dict(scripts_of(pack, rows_of(pack, tasks))), give_up())


def scripts_of(pack: str, rows: list[dict[str, Any]]) -> Iterator[tuple[str, Script]]:
    """Yield what stands in the task file of each row, with what solves it."""
    for row in rows:
        yield json.dumps(_said(row))[1:-1], _script(pack, row, _said(row))


def replies_of(pack: str, rows: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield what a model without a shell is asked for each row that is answered in one turn, with a right reply."""
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
    """Return the module that the demo's agent knows, or our own where that one is wrong on purpose."""
    if "def move_zeros(" in starter_code:
        return f"{starter_code}    numbers.sort(key=lambda number: number == 0)\n"
    answer = next(path for path in sorted(_ANSWERS.glob("*.py")) if f"def {path.stem}(" in starter_code)
    return answer.read_text(encoding="utf-8")


def _right(row: dict[str, Any]) -> str:
    """Return a right answer to a question: the pack's own."""
    judged = row["eval"]
    if "rubric" in judged:
        return str(judged["rubric"]["accepted_answers"][0])
    accepted = judged["answer"] if "answer" in judged else judged["accepted_answers"]
    first = accepted[0] if isinstance(accepted, list) else accepted
    choices = row["input"].get("choices", [])
    return choices[first] if isinstance(first, int) and choices else str(first)


def _mended() -> Script:
    """Mend a repository as the pack's own agent does: it knows its task by the task file."""
    agent = (BENCHMARKS / REPOSITORY / "agents/agent.py").read_text(encoding="utf-8")
    return (
        READ_TASK,
        Shell(f"python3 - solution <<'END_OF_AGENT'\n{agent}END_OF_AGENT"),
        Say("The fault is mended."),
    )
