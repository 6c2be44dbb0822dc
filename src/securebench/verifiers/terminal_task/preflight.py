"""Whether a checker can be started at all, found out in its image without a candidate."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from securebench.errors import MaterializationError
from securebench.pack_paths import LANE_ROOTS, is_at_or_below
from securebench.resources import Visibility
from securebench.sandboxes.base import SandboxSpec, workspace_user
from securebench.verifiers.python_imports import needed_modules
from securebench.verifiers.terminal_task.environment import checker_environment
from securebench.verifiers.terminal_task.layout import lay_out_inputs
from securebench.workspaces.descriptors import Refusal, TreeRefusedError
from securebench.workspaces.snapshot import read_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from securebench.tasks import VerifierView
    from securebench.verifiers.base import VerifyContext
    from securebench.verifiers.terminal_task.request import Request

NOT_STARTED: Final = (126, 127)
"""The exit codes by which a shell, or a runtime, says that it could not start a program."""

_INPUTS: Final = LANE_ROOTS[Visibility.EVALUATION_INPUTS]
_SHELL: Final = ("/bin/sh", "-c")
_REDIRECTION: Final = re.compile(r"\d?>{1,2}\s*(?:&\d|[\w./-]+)", re.ASCII)
_PLAIN: Final = re.compile(r"[\w@%+=:,./ \t'\"-]+", re.ASCII)
_ASSIGNMENT: Final = re.compile(r"\w+=", re.ASCII)
_RESERVED: Final = frozenset(
    {"if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac"}
)
_PYTHON: Final = re.compile(r"python(?:3(?:\.\d+)?)?")
_FLAGS: Final = re.compile(r"-[bBEIOPqsSuv]+")
"""Options of Python that take no value, and do not change what is run."""
_MAX_SOURCE: Final = 1024 * 1024


def require_startable(request: Request, view: VerifierView, context: VerifyContext) -> None:
    """Raise :class:`MaterializationError` (``checker-missing``) if the checker cannot start, whatever a candidate is.

    Only what is certain counts: a program, a script's interpreter or a module that the image lacks, or a file that
    would have to be an evaluation input and is none. What a candidate may bring is not looked for.
    """
    inputs = context.scratch.resolve() / "pristine"
    inputs.mkdir(parents=True)
    inputs.chmod(0o755)
    lay_out_inputs(view, inputs)
    spec = SandboxSpec(
        image=context.driver.resolve_image(request.image),
        limits=context.limits,
        environment=checker_environment(request.target),
        user=workspace_user(),
        labels=context.labels,
    )
    for words in necessary_commands(request.argv):
        _Start(words, request, inputs).require(spec, context)


def necessary_commands(argv: Sequence[str]) -> list[list[str]]:
    """Return the commands, in words, that must each start for a checker to end with 0.

    Of a line for a shell, only what the shell would do no more to than to part it in words is read: the commands of
    its last list of ``&&``, and after ``set -e`` of all its lists. Nothing is returned for other lines.
    """
    if tuple(argv[:2]) != _SHELL:
        return [list(argv)]
    lists = re.split(r"[;\n]", _REDIRECTION.sub(" ", argv[2]).strip("; \t\n"))
    first = lists[0].split()
    needed = lists if first[:1] == ["set"] and first[1:2] and re.match(r"-\w*e", first[1]) else lists[-1:]
    commands = [_words(part) for one in needed for part in one.split("&&")]
    return commands if all(commands) else []


def _words(line: str) -> list[str]:
    """Return the words of one simple command, without ``exec`` and assignments; none of anything else."""
    try:
        words = shlex.split(line) if _PLAIN.fullmatch(line) else []
    except ValueError:
        return []
    while words and (words[0] == "exec" or _ASSIGNMENT.match(words[0])):
        words = words[1:]
    return [] if not words or words[0] in _RESERVED else words


class _Start:
    """The start of one command, given in words, over evaluation inputs that were laid out at ``inputs``."""

    def __init__(self, words: Sequence[str], request: Request, inputs: Path) -> None:
        self._words = words
        self._request = request
        self._inputs = inputs

    def require(self, spec: SandboxSpec, context: VerifyContext) -> None:
        programs = [self._words[0]]
        if self._input(programs[0]) is not None:
            programs = self._interpreter(programs[0])
        # What else lies in the workspace, the candidate may bring.
        programs = [program for program in programs if "/" not in program or not self._in_workspace(program)]
        programs = [self._absolute(program) if "/" in program else program for program in programs]
        if missing := context.probe.missing_programs(context.driver, spec, programs):
            raise _unusable(f"its image has no program {missing[0]}, or may not execute it")
        python, modules = self._python_modules()
        if programs and (missing := context.probe.missing_modules(context.driver, spec, modules, python)):
            raise _unusable(f"its image has no Python module {missing[0]}")

    def _absolute(self, path: str) -> str:
        return os.path.normpath(PurePosixPath(self._request.workdir) / path)

    def _in_workspace(self, path: str) -> bool:
        return is_at_or_below(self._absolute(path), self._request.target)

    def _input(self, path: str) -> str | None:
        """Return the path of an evaluation input below their directory; ``None`` for what is none."""
        absolute, top = self._absolute(path), f"{self._request.target}/{_INPUTS}/"
        return absolute.removeprefix(top) if "/" in path and absolute.startswith(top) else None

    def _interpreter(self, path: str) -> list[str]:
        """Return the program that runs an evaluation input: itself needs no looking for, but to be executable."""
        file = self._inputs / _INPUTS / (self._input(path) or "")
        if not file.is_file() or not file.stat().st_mode & 0o111:
            raise _unusable("the file that it runs is no executable file of the task")
        with file.open("rb") as opened:
            line = opened.readline(256)
        words = line[2:].split() if line.startswith(b"#!") else []
        return [os.fsdecode(words[0])] if words and words[0].startswith(b"/") else []

    def _python_modules(self) -> tuple[tuple[str, ...], list[str]]:
        """Return how Python is started, and the modules that it needs of the image for what it runs."""
        words, count = self._words, 1
        if not _PYTHON.fullmatch(PurePosixPath(words[0]).name):
            return (), []
        while count < len(words) and _FLAGS.fullmatch(words[count]):
            count += 1
        if list(words[count : count + 2]) == ["-m", "pytest"]:
            return tuple(words[:count]), ["pytest"]
        below = self._input(words[count]) if count < len(words) and not words[count].startswith("-") else None
        if below is None:
            return (), []
        try:
            source = read_file(self._inputs, f"{_INPUTS}/{below}", _MAX_SOURCE)
        except TreeRefusedError as refused:
            if refused.refusal is Refusal.MISSING:
                raise _unusable("the script that it runs is no file of the task") from None
            return (), []  # a directory with a __main__, or a script too long to be looked into
        own = {path.stem for path in self._inputs.rglob("*")}  # modules and packages that the task brings
        return tuple(words[:count]), [name for name in needed_modules(source) if name not in own]


def _unusable(problem: str) -> MaterializationError:
    return MaterializationError(
        f"the task's checker cannot start: {problem}",
        code="checker-missing",
        hint="name a program of the image, or set checker.image to one that has what the checker needs",
    )
