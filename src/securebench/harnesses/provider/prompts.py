"""The prompts for agent programs: what to read, where to write the answer, and what an answer is.

The task itself is only in the task file: arguments are visible in process lists and limited in length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.tasks import CandidateKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.tasks import AgentView

ANSWER_FILES: Final[Mapping[CandidateKind, str]] = {
    CandidateKind.TEXT: "candidate.txt",
    CandidateKind.CODE: "candidate.py",
}
"""The answer file in the working directory, by candidate kind. For other kinds, the answer is the directory."""

_COMMON: Final = (
    "Work on the task that is described in the JSON file whose path the environment variable SECUREBENCH_TASK_FILE "
    "holds; read that file first. You are alone in a sandbox: nobody answers questions, so decide for yourself and "
    "finish the work."
)
_TEXT: Final = (
    "Write your answer as plain UTF-8 text to the file candidate.txt in the current directory. Only that file is "
    "judged, not what you say."
)
_FAMILIES: Final[Mapping[str, str]] = {
    "multiple_choice": (
        f"{_TEXT} Its only line is the label of the one choice that is right: A for the first of `choices`, B for the "
        "second, and so on. Name exactly one choice, also where several are right."
    ),
    "short_answer": (
        f"{_TEXT} It holds the answer to `question` alone, on one line and without an explanation, in the form that "
        "`answer_format` asks for if there is one. Give one answer, not several guesses."
    ),
    "free_response": f"{_TEXT} It holds your response to `prompt`.",
    "code_completion": (
        "Write the program that `prompt` asks for to the file candidate.py in the current directory. It is one whole "
        "Python module: if there is `starter_code`, that code completed, with its imports and signatures. The file "
        "holds Python and nothing else, no Markdown. Only that file is judged, by tests that you do not have."
    ),
    "repo_patch": (
        "The current directory is the repository. Do what `instructions` ask by changing its files in place, and leave "
        "the changes there. Do not change tests, the configuration of tests or builds, or lock files, and leave "
        "version control alone: no commits, branches or stashes are needed, and none are read. What you changed is "
        "judged, by tests that you do not have."
    ),
    "terminal_task": (
        "Do what `instructions` ask. You start in the directory that the task is about; what lies there when you have "
        "finished is judged. Processes that still run then are ended."
    ),
}
_KINDS: Final[Mapping[CandidateKind, str]] = {
    CandidateKind.TEXT: _TEXT,
    CandidateKind.CODE: _FAMILIES["code_completion"],
    CandidateKind.PATCH: _FAMILIES["repo_patch"],
    CandidateKind.WORKSPACE: _FAMILIES["terminal_task"],
}
"""For families without a prompt of their own."""


def prompt_for(view: AgentView) -> str:
    """Return the prompt for this task. It depends only on the family and the candidate kind."""
    return f"{_COMMON}\n\n{instruction_for(view)}"


def instruction_for(view: AgentView) -> str:
    """Return the instructions for answers in the family of this task."""
    return _FAMILIES.get(view.family, _KINDS[view.candidate_kind])
