"""The messages that ask a model to do a task, and the required form of its answer."""

from __future__ import annotations

import json
import re
import string
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_CUE: Final = "End with a line of the form 'Answer: {}', where {}."
_QUESTIONS: Final = {
    "multiple_choice": "Answer the multiple-choice question. "
    + _CUE.format("X", "X is the label of the one right choice"),
    "short_answer": "Answer the question. "
    + _CUE.format("X", "X is only the answer, in the format that is asked for, without an explanation"),
    "code_completion": "Write the Python module that is asked for. If there is starter code, complete it, and keep its "
    "imports and signatures. Reply with the whole module in one Markdown code block. Write no other code block.",
}
"""How to answer, by family. For the other families that are answered in one turn, the model gets only the task."""

_NO_ANSWER: Final = "Your reply does not end with a line of the form 'Answer: X'. Reply again, and end with that line."
_NO_CODE: Final = (
    "Your reply does not contain exactly one Markdown code block. Reply with the whole module in one Markdown code "
    "block, and write no other code block."
)
_EMPTY: Final = "Your reply is empty. Reply again."

_ANSWER: Final = re.compile(r"(?i)\banswer\b|\\boxed|####")
_LAST_LINES: Final = 3
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")

_WORK: Final = (
    "You are alone in a sandbox: nobody answers questions, so decide for yourself. Run commands with the "
    "tool `shell`. Each command runs in a new shell that starts in the current directory, has no standard input, and "
    "is killed after {seconds:g} seconds; long output is shortened in the middle. When the work is finished, reply "
    "without a tool call."
)
_PROMPTS: Final = ("prompt", "question", "instructions")


def question(family: str, task: Mapping[str, Any]) -> str:
    """Return the message for a task that is answered in one turn."""
    choices = [f"{_label(place)}. {text}" for place, text in enumerate(task.get("choices", ()))]
    parts = [
        _QUESTIONS.get(family, ""),
        *_texts(task),
        "\n".join(choices),
        f"```python\n{code.rstrip()}\n```" if (code := task.get("starter_code")) else "",
    ]
    return "\n\n".join(filter(None, parts))


def assignment(instruction: str, task: Mapping[str, Any], seconds: float) -> str:
    """Return the message for a task that the model works on with a shell.

    ``instruction`` says how to answer a task of this family. ``seconds`` is the time limit of each command.
    """
    return "\n\n".join((_WORK.format(seconds=seconds), instruction, *_texts(task)))


def fault_of(family: str, text: str) -> str:
    """Return what to tell the model if its answer does not have the required form, else an empty string."""
    if not text:
        return _EMPTY
    lines = text.splitlines()
    if family in {"multiple_choice", "short_answer"}:
        return "" if len(lines) == 1 or _ANSWER.search("\n".join(lines[-_LAST_LINES:])) else _NO_ANSWER
    if family == "code_completion":
        fences = sum(bool(_FENCE.match(line)) for line in lines)
        return "" if fences == 2 or (not fences and _is_python(text)) else _NO_CODE  # noqa: PLR2004 - two per block
    return ""


def _is_python(text: str) -> bool:
    try:
        compile(text, "<answer>", "exec", dont_inherit=True)  # compiled but never run
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _texts(task: Mapping[str, Any]) -> list[str]:
    """Return the prompts of a task, then most of its other fields, such as ``context``, each after its name."""
    first = [task[name] for name in _PROMPTS if isinstance(task.get(name), str)]
    rest = {
        name: value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        for name, value in sorted(task.items())
        if name not in {*_PROMPTS, "choices", "starter_code", "language", "assets"}
    }
    return [*first, *(f"{name}:\n{value}" for name, value in rest.items())]


def _label(place: int) -> str:
    """Return the label of a choice: A to Z, then AA, AB and so on."""
    rest, letter = divmod(place, len(string.ascii_uppercase))
    return (_label(rest - 1) if rest else "") + string.ascii_uppercase[letter]
