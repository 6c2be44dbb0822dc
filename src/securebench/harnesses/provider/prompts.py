"""What an agent program is told: what to read, where to leave its answer, and what an answer is.

The task itself is in the task file and never in here: an argument is in every list of processes, and is short.
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
"""Where an answer is left, in the directory where the agent starts. Other kinds are what it changed there."""

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
"""For families that have no words of their own."""


def prompt_for(view: AgentView) -> str:
    """Return what an agent is told of this task. It depends on family and kind alone."""
    return f"{_COMMON}\n\n{_FAMILIES.get(view.family, _KINDS[view.candidate_kind])}"
