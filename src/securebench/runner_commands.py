"""Recognize the test runner that a command starts, and the files of the repository that belong to the runner.

A command is recognized only if it starts a single runner and does nothing else. Other commands can only be judged by
their exit code, which the code under test can fake with one line.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Literal

Runner = Literal["pytest", "unittest", "django", "sympy"]
"""``django`` is ``runtests.py`` or ``manage.py test``, in any directory of the repository: both start unittest."""

_PLAIN = re.compile(r"""[\w@%+=:,./\[\] '"-]+""", re.ASCII)
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?")
_PYTEST_SCRIPTS: Final = ("pytest", "py.test")
_DEFAULT_PYTHON: Final = "python3"

_SYMPY_OPTIONS: Final = frozenset(("-C", "--no-cache", "-v", "--verbose", "--no-colors", "--slow", "--no-subprocess"))
_NARROWING = re.compile(r"-k.*|--pattern.*|-h|--help|--tag.*|--exclude-tag.*|--shard.*|--bisect.*|--pair.*|--pdb|-s=.*")
"""Options with which a command skips tests of the files that it names, runs no tests at all, or starts a debugger."""

_METHOD = re.compile(r"\w+\.(?:\w+\.)*[A-Z]\w*\.\w+")
"""The label of a test method, such as ``tests.test_a.Case.test_x``. One of the test's controls may get the
original name, at random, and the test a new one. So a command with such a label would run only one of these functions.

A label such as ``tests.test_a.case.test_x`` does not match, because its second-to-last part does not start with a
capital letter. Such a label can name a method or a module. Only the repository's files show which.
"""

_OPTIONS: Final = """
-s --start-directory -p --pattern -t --top-level-directory --settings --parallel --verbosity --testrunner --durations
--using --start-at --start-after --pythonpath
"""

_WITH_VALUE: Final = frozenset(_OPTIONS.split())
"""Options of unittest and Django with a value in the next argument, which is not the label of a test."""


@dataclass(frozen=True, slots=True)
class RunnerCommand:
    """A command that starts a test runner.

    ``program`` is the interpreter, or the runner itself if ``interpreter`` is ``False``. ``flags`` are options of the
    interpreter. ``script`` is the runner's file, relative to the working directory, if it is in the repository.
    """

    runner: Runner
    program: str
    arguments: tuple[str, ...]
    interpreter: bool = True
    flags: tuple[str, ...] = ()
    script: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments of a command of unittest or Django that are neither options nor values of options.

        The argument ``test`` of ``manage.py test`` is left out, too.
        """
        own = self.arguments[1:] if PurePosixPath(self.script).name == "manage.py" else self.arguments
        pairs = zip(("", *own), own, strict=False)
        return tuple(word for before, word in pairs if not word.startswith("-") and before not in _WITH_VALUE)

    @property
    def discovers(self) -> bool:
        """Whether unittest searches a directory for tests."""
        return self.runner == "unittest" and self.names[:1] == ("discover",)

    @property
    def labels(self) -> tuple[str, ...]:
        """The modules, classes, methods or paths that a command of unittest or Django names."""
        return () if self.discovers else self.names

    def owns(self, path: str) -> bool:
        """Return whether ``path``, relative to the working directory, belongs to the runner and affects outcomes."""
        if path == self.script:
            return True
        if self.runner == "sympy":
            return _SYMPY_FILES.fullmatch(path) is not None
        return self.runner == "django" and _DJANGO_FILES.fullmatch(path) is not None


_SYMPY_FILES = re.compile(
    r"bin/(?:test|get_sympy\.py)|(?:sympy/)?conftest\.py"
    r"|sympy/(?:testing|utilities)/(?:pytest|runtests|runtests_pytest|randtest|tmpfiles)[./].*"
    r"|sympy/testing(?:/__init__)?\.[^/]+"
)
_DJANGO_FILES = re.compile(
    r"tests/(?:runtests|test_sqlite|urls)[./].*|django/core/management/commands/test[./].*"
    r"|django/test(?:/__init__)?\.[^/]+|django/test/(?:runner|testcases|utils|html)[./].*"
)
"""Files that collect and run tests, provide assertions or set up the environment, and files that would be imported
instead of them."""


def read_command(command: str | tuple[str, ...] | list[str]) -> RunnerCommand | None:
    """Return the runner that ``command`` starts, or ``None`` if only the exit code of ``command`` can be judged."""
    program, *rest = words(command) or [""]
    flags = interpreter_flags(rest)
    name = PurePosixPath(program).name
    if _PYTHON.fullmatch(name) and _is_installed(program):
        rest = rest[len(flags) :]
        if rest[:1] == ["-m"] and len(rest) > 1:
            return _module(program, flags, rest[1], tuple(rest[2:]))
        return _script(program, flags, rest[0], tuple(rest[1:])) if rest else None
    if name in _PYTEST_SCRIPTS and _is_installed(program):
        return RunnerCommand("pytest", program, tuple(rest), interpreter=False)
    return _script(_DEFAULT_PYTHON, (), program, tuple(rest)) if "/" in program or program.endswith(".py") else None


def words(command: str | tuple[str, ...] | list[str]) -> list[str]:
    """Return the words of ``command``, or an empty list if a shell would do more than split it into words."""
    if not isinstance(command, str):
        return list(command)
    if not _PLAIN.fullmatch(command):
        return []
    try:
        found = shlex.split(command)
    except ValueError:
        return []
    return [] if found and "=" in found[0] else found


def _is_installed(program: str) -> bool:
    """Return whether ``program`` is an absolute path or a name to look up in ``PATH``, and not a relative path."""
    return "/" not in program or program.startswith("/")


def interpreter_flags(arguments: list[str]) -> tuple[str, ...]:
    """Return the leading options of Python that change only warnings, bytecode files and buffering."""
    flags: list[str] = []
    rest = list(arguments)
    while rest:
        if rest[0] == "-W" and len(rest) > 1:
            flags += [rest.pop(0), rest.pop(0)]
        elif rest[0] in ("-B", "-u") or (rest[0].startswith("-W") and len(rest[0]) > 2):  # noqa: PLR2004 - "-W" alone
            flags.append(rest.pop(0))
        else:
            break
    return tuple(flags)


def _module(program: str, flags: tuple[str, ...], name: str, arguments: tuple[str, ...]) -> RunnerCommand | None:
    if name == "pytest":
        return RunnerCommand("pytest", program, arguments, flags=flags)
    return _unless_narrow(RunnerCommand("unittest", program, arguments, flags=flags)) if name == "unittest" else None


def _script(program: str, flags: tuple[str, ...], script: str, arguments: tuple[str, ...]) -> RunnerCommand | None:
    path = PurePosixPath(script)
    if path.is_absolute() or ".." in path.parts:
        return None
    known = path.as_posix()
    if known == "bin/test" and all(word in _SYMPY_OPTIONS for word in arguments if word.startswith("-")):
        return RunnerCommand("sympy", program, arguments, flags=flags, script=known)
    django = path.name == "runtests.py" or (path.name == "manage.py" and arguments[:1] == ("test",))
    return _unless_narrow(RunnerCommand("django", program, arguments, flags=flags, script=known)) if django else None


def _unless_narrow(command: RunnerCommand) -> RunnerCommand | None:
    """Return ``command``, or ``None`` if an argument matches :data:`_NARROWING` or a label matches :data:`_METHOD`."""
    narrow = any(_NARROWING.fullmatch(word) for word in command.arguments)
    return None if narrow or any(_METHOD.fullmatch(label) for label in command.labels) else command
