"""Checks whether a checker can start at all, in its image and without a candidate."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from securebench.errors import MaterializationError
from securebench.fs.safe_open import TreeRefusal, TreeRefusedError
from securebench.pack_paths import LANE_ROOTS, is_at_or_below
from securebench.printable import printable_name
from securebench.resources import Visibility
from securebench.sandboxes.base import SandboxSpec, workspace_user
from securebench.verifiers.python_imports import first_needed_module
from securebench.verifiers.terminal_task.environment import checker_environment
from securebench.verifiers.terminal_task.layout import lay_out_inputs
from securebench.workspaces.snapshot import read_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from securebench.tasks import VerifierView
    from securebench.verifiers.base import VerifyContext
    from securebench.verifiers.terminal_task.request import CheckRequest

NOT_STARTED: Final = (126, 127)
"""The exit codes of a shell or a runtime that could not start a program."""

_INPUTS: Final = LANE_ROOTS[Visibility.EVALUATION_INPUTS]
_SHELL: Final = ("/bin/sh", "-c")
_SIMPLE: Final = re.compile(r"(?:[\w@%+=:,./ \t-]|'[\w@%+=:,./ \t-]*'|\"[\w@%+=:,./ \t-]*\")+", re.ASCII)
"""A line that a shell only splits into words."""
_ASSIGNMENT: Final = re.compile(r"\w+\+?=", re.ASCII)
_PYTHON: Final = re.compile(r"python(?:3(?:\.\d+)?)?")
_FLAGS: Final = re.compile(r"-[bBEIOPqsSuv]+")
"""Options of Python that take no value and do not change what is run."""
_SCRIPT_RUNNERS: Final = frozenset({"sh", "ash", "bash", "dash", "ksh", "zsh", "perl", "ruby"})
"""Programs that take their first argument, unless it is an option, as the exact path of a script to run."""
_SHEBANG_ROOM: Final = 256
_ENV: Final = frozenset({"/usr/bin/env", "/bin/env"})
_MAX_SOURCE: Final = 1024 * 1024


def require_startable(request: CheckRequest, view: VerifierView, context: VerifyContext) -> None:
    """Raise :class:`MaterializationError` (``checker-missing``) if the checker cannot start, whatever the candidate is.

    Only problems that are beyond doubt are errors: a program, a script's interpreter or a module that the image lacks,
    a script that the image's Python cannot compile, or an evaluation input that does not exist or cannot be executed.
    Files that a candidate may provide are not checked.
    """
    words = necessary_command(request.argv)
    if not words or context.policy.denied(request.needed_commands):
        return
    inputs = context.scratch.resolve() / "pristine"
    inputs.mkdir(parents=True)
    inputs.chmod(0o755)
    lay_out_inputs(view, inputs)
    capabilities = context.policy.capabilities(request.needed_commands)
    spec = SandboxSpec(
        image=context.driver.resolve_image(request.image),
        limits=context.limits,
        environment=checker_environment(request.target),
        user=(0, 0) if capabilities else workspace_user(),  # the checker's user
        cap_add=capabilities,
        labels=context.labels,
    )
    _Start(words, request, inputs).require(spec, context)


def necessary_command(argv: Sequence[str]) -> list[str]:
    """Return the words of the command that must start if the checker is to exit with 0.

    Returns an empty list if it is uncertain which command must start.

    A shell line is read only if it is a single command of plain words, because functions, here-documents, assignments
    and other shell features can turn any name into a program.
    """
    if tuple(argv[:2]) != _SHELL:
        return list(argv)
    line = argv[2].strip(" \t\n") if len(argv) > len(_SHELL) else ""
    words = shlex.split(line) if _SIMPLE.fullmatch(line) else []
    if words[:1] == ["exec"]:
        words = [] if words[1:2] and words[1].startswith("-") else words[1:]
    return [] if not words or not words[0] or _ASSIGNMENT.match(words[0]) else words


class _Start:
    """Checks whether a command can start. ``inputs`` is the directory that contains the evaluation inputs."""

    def __init__(self, words: Sequence[str], request: CheckRequest, inputs: Path) -> None:
        self._words = list(words)
        self._is_line = tuple(request.argv[:2]) == _SHELL
        self._request = request
        self._inputs = inputs

    def require(self, spec: SandboxSpec, context: VerifyContext) -> None:
        programs = [self._words[0]]
        if self._input(programs[0]) is not None:
            programs = self._interpreter(programs[0])
        if any("/" in program and self._in_workspace(program) for program in programs):
            return  # the candidate may provide it
        of_shell = self._is_line and programs == self._words[:1]
        programs = [self._absolute(program) if "/" in program else program for program in programs]
        if missing := context.probe.missing_programs(context.driver, spec, programs, shell=of_shell):
            raise _unusable(f"its image has no executable program {printable_name(os.fsencode(missing[0]))}")
        self._require_script(spec, context)

    def _require_script(self, spec: SandboxSpec, context: VerifyContext) -> None:
        """Raise an error for a missing script, invalid Python in a script, or a module that the image lacks."""
        words, count = self._words, 1
        name = PurePosixPath(words[0]).name
        is_python = _PYTHON.fullmatch(name) is not None
        while is_python and count < len(words) and _FLAGS.fullmatch(words[count]):
            count += 1
        python, rest = words[:count], words[count:]
        modules = ["pytest"] if is_python and rest[:2] == ["-m", "pytest"] else []
        if (is_python or name in _SCRIPT_RUNNERS) and rest and not rest[0].startswith("-"):
            source = self._source(rest[0])
            if is_python and source is not None:
                if not context.probe.compiles(context.driver, spec, source, python):
                    raise _unusable("its script cannot be compiled by the image's Python")
                own = {path.stem for path in self._inputs.rglob("*")}  # modules and packages of the task
                first = first_needed_module(source, own)
                modules = [first] if first else []
        if missing := context.probe.missing_modules(context.driver, spec, modules, python):
            raise _unusable(f"its image has no Python module {missing[0]}")

    def _source(self, path: str) -> bytes | None:
        """Return the content of the evaluation input ``path``; ``None`` if it is a directory, binary or too long.

        Also return ``None`` if ``path`` is not certain to be an evaluation input. Raises
        :class:`MaterializationError` if the evaluation input is missing.
        """
        below = self._input(path)
        if below is None:
            return None
        try:
            source = read_file(self._inputs, f"{_INPUTS}/{below}", _MAX_SOURCE)
        except TreeRefusedError as refused:
            if refused.refusal is TreeRefusal.MISSING:
                raise _unusable("the script that it runs is not a file of the task") from None
            return None
        return None if b"\0" in source else source

    def _absolute(self, path: str) -> str:
        return os.path.normpath(PurePosixPath(self._request.workdir) / path)

    def _in_workspace(self, path: str) -> bool:
        return is_at_or_below(self._absolute(path), self._request.target)

    def _input(self, path: str) -> str | None:
        """Return ``path`` relative to the evaluation inputs, or ``None`` if it is not certain to be one of them.

        A path with ``..`` may pass through a link of the candidate.
        """
        if "/" not in path or ".." in path.split("/"):
            return None
        absolute, top = self._absolute(path), f"{self._request.target}/{_INPUTS}/"
        return absolute.removeprefix(top) if absolute.startswith(top) else None

    def _interpreter(self, path: str) -> list[str]:
        """Return the programs that an executable evaluation input needs: the interpreter in its ``#!`` line, if any.

        For ``#!/usr/bin/env NAME``, these are ``env`` and ``NAME``.
        """
        file = self._inputs / _INPUTS / (self._input(path) or "")
        if not file.is_file() or not file.stat().st_mode & 0o111:
            raise _unusable("the file that it runs is not an executable file of the task")
        with file.open("rb") as opened:
            begin = opened.read(_SHEBANG_ROOM)
        line, end, _ = begin.partition(b"\n")
        if not begin.startswith(b"#!"):
            if not self._is_line and begin.isascii() and begin.decode().replace("\n", "").isprintable():
                raise _unusable("the file that it runs is not a program and has no line '#!' with an interpreter")
            return []
        # The line is split as the kernel does it: a carriage return is part of the name.
        words = [os.fsdecode(word) for word in line[2:].replace(b"\t", b" ").split(b" ") if word]
        if not end or not words or not words[0].startswith("/"):
            return []
        is_looked_for = words[0] in _ENV and len(words) == len(["env", "NAME"]) and not re.search("[-=/]", words[1])
        return words if is_looked_for else words[:1]


def _unusable(problem: str) -> MaterializationError:
    return MaterializationError(
        f"the task's checker cannot start: {problem}",
        code="checker-missing",
        hint="list the checker's files in 'eval.test_files', and use an image with the programs, modules "
        "and Python version that the checker needs",
    )
