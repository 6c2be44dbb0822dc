"""The prompts for agent programs: what to read, where to write the answer, and what it must contain.

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
"""The answer file in the working directory, by candidate kind.

For the other kinds, the files in the working directory are the answer.
"""

_COMMON: Final = (
    "Your task is described in a JSON file. The environment variable SECUREBENCH_TASK_FILE contains the path of this "
    "file. Read the file first, then do the task. You are alone in a sandbox: nobody answers questions, so decide for "
    "yourself and finish the work."
)
_TEXT: Final = (
    "Write your answer as plain UTF-8 text to the file candidate.txt in the current directory. Only this file is "
    "judged, not your messages."
)
_FAMILIES: Final[Mapping[str, str]] = {
    "multiple_choice": (
        f"{_TEXT} The file must contain one line with nothing but the label of the correct choice: A for the first of "
        "the `choices`, B for the second, and so on. Give exactly one label, even if several choices are correct."
    ),
    "short_answer": (
        f"{_TEXT} The file must contain only the answer to the `question`, on one line, without an explanation. If the "
        "task has an `answer_format`, the answer must have that format. Give one answer, not several guesses."
    ),
    "free_response": f"{_TEXT} The file must contain your response to the `prompt`.",
    "code_completion": (
        "Write the program that the `prompt` asks for to the file candidate.py in the current directory. The file must "
        "be one complete Python module. If the task has `starter_code`, complete this code, and keep its imports and "
        "signatures. The file must contain only Python code, no Markdown. Only this file is judged. The tests that "
        "judge it are not available to you."
    ),
    "repo_patch": (
        "The current directory is the repository. Follow the `instructions`: change the files of the repository in "
        "place, and leave the changes there. Do not change tests, the configuration of tests or builds, or lock files. "
        "Leave version control as it is: no commits, branches or stashes are needed, and none are read. Your changes "
        "are judged by tests that are not available to you."
    ),
    "terminal_task": (
        "Follow the `instructions`. You start in the directory that the task is about. When you have finished, the "
        "content of this directory is judged. Processes that are still running at that time are ended."
    ),
}
_KINDS: Final[Mapping[CandidateKind, str]] = {
    CandidateKind.TEXT: _TEXT,
    CandidateKind.CODE: _FAMILIES["code_completion"],
    CandidateKind.PATCH: _FAMILIES["repo_patch"],
    CandidateKind.WORKSPACE: _FAMILIES["terminal_task"],
}
"""The instructions for the families that ``_FAMILIES`` does not contain, by candidate kind."""


def prompt_for(view: AgentView) -> str:
    """Return the prompt for this task. It depends only on the family and the candidate kind."""
    return f"{_COMMON}\n\n{instruction_for(view)}"


def instruction_for(view: AgentView) -> str:
    """Return the instructions for answers in the family of this task."""
    return _FAMILIES.get(view.family, _KINDS[view.candidate_kind])
