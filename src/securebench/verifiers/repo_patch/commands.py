"""Test commands: which of them are pytest's, and how each is started."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

_SHELL: Final = "/bin/sh"
_PLAIN = re.compile(r"""[\w@%+=:,./\[\] '"-]+""", re.ASCII)
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?")
_SCRIPTS: Final = ("pytest", "py.test")
_WITH_VALUE: Final = ("-k", "-m", "-p", "-o", "-c", "-n", "-W", "-r", "--rootdir", "--ignore", "--deselect", "--tb")
"""Options of pytest that take what follows them: it names no tests."""

GUEST: Final = "/opt/securebench/pytest"
"""Where a sandbox has what reports to us."""


@dataclass(frozen=True, slots=True)
class PytestCommand:
    """A command that is pytest. ``module`` for ``PROGRAM -m pytest ARGUMENTS``, else ``PROGRAM ARGUMENTS``."""

    program: str
    arguments: tuple[str, ...]
    module: bool

    @property
    def argv(self) -> tuple[str, ...]:
        """The same command, with what reports to us."""
        if self.module:  # the launcher does what -m does, after pytest is loaded from where it is installed
            return started((self.program, f"{GUEST}/securebench_launch.py", *self.arguments))
        return started((self.program, "-p", "securebench_report", *self.arguments))

    @property
    def environment(self) -> dict[str, str]:
        """What it needs beside the environment of every check. No bytecode: nothing is to be left to be loaded."""
        common = {"PYTHONDONTWRITEBYTECODE": "1"}
        return common if self.module else {**common, "PYTHONPATH": GUEST}

    @property
    def selected(self) -> tuple[str, ...]:
        """The files and directories that it names, as it names them."""
        names: list[str] = []
        before = ""
        for argument in self.arguments:
            if not argument.startswith("-") and before not in _WITH_VALUE:
                names.append(argument.partition("::")[0])
            before = argument
        return tuple(names)


def read_pytest(command: str | tuple[str, ...]) -> PytestCommand | None:
    """Return ``command`` if it is pytest and nothing else, else ``None``: a shell may do anything to it."""
    words = _words(command)
    if not words:
        return None
    program, *rest = words
    if "/" in program and not program.startswith("/"):
        return None  # a program of the repository's own
    name = PurePosixPath(program).name
    if name in _SCRIPTS:
        return PytestCommand(program, tuple(rest), module=False)
    if _PYTHON.fullmatch(name) and rest[:2] == ["-m", "pytest"]:
        return PytestCommand(program, tuple(rest[2:]), module=True)
    return None


def started(command: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the argv of ``command``: a text is a shell's; an array is found on PATH by that shell, and not changed."""
    if isinstance(command, str):
        return (_SHELL, "-c", command)
    return (_SHELL, "-c", 'exec "$@"', "sh", *command)


def _words(command: str | tuple[str, ...]) -> list[str]:
    """Return the words of ``command``; none of a text that a shell would do more to than to part it."""
    if not isinstance(command, str):
        return list(command)
    if not _PLAIN.fullmatch(command):
        return []
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    return [] if words and "=" in words[0] else words
