"""terminal_task: the agent works in a container, and a checker judges the final workspace."""

from __future__ import annotations

from typing import Annotated, Any

from securebench.families.base import COMMAND, STRUCTURE, TAKES_A_MOUNTED_FILE, TAKES_FILES, Family
from securebench.families.fields import ContainerDirectory, DangerousCommands, Seconds, ShellOrArgv, Text, TextOrObject
from securebench.families.row import ImageName
from securebench.resources import Visibility
from securebench.strict_input.models import OPTIONAL, WireModel
from securebench.tasks import CandidateKind


class TerminalTaskInput(WireModel):
    """The instructions, and the context needed to follow them."""

    instructions: Text
    context: TextOrObject = OPTIONAL


class Checker(WireModel):
    """The command that judges a workspace. A pass needs exit code 0.

    If the row has an expected state, a pass also needs this state.
    """

    command: Annotated[ShellOrArgv, COMMAND]
    workdir: Annotated[ContainerDirectory, STRUCTURE] = OPTIONAL
    timeout_seconds: Annotated[Seconds, STRUCTURE] = OPTIONAL
    image: Annotated[ImageName, STRUCTURE] = OPTIONAL
    """The image in which the checker runs, such as the task's image with more packages. No agent runs in it."""


class TerminalTaskEval(WireModel):
    """The checker, the files and commands that it needs, and the expected state."""

    checker: Annotated[Checker, Visibility.EVALUATION_INPUTS]
    run_tests: Annotated[Any, Visibility.EVALUATION_INPUTS, TAKES_FILES] = OPTIONAL
    test_files: Annotated[Any, Visibility.EVALUATION_INPUTS, TAKES_FILES] = OPTIONAL
    needed_commands: Annotated[DangerousCommands, Visibility.EVALUATION_INPUTS, STRUCTURE] = OPTIONAL
    expected_state: Annotated[Any, Visibility.HIDDEN, TAKES_A_MOUNTED_FILE] = OPTIONAL


FAMILY = Family(
    name="terminal_task",
    summary="The agent works in a container. A checker judges the final workspace.",
    candidate_kind=CandidateKind.WORKSPACE,
    input_model=TerminalTaskInput,
    eval_model=TerminalTaskEval,
)
