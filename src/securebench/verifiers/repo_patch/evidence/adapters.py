"""The adapters of the test runners, and the choice of the adapter for a test command.

* unittest and runners based on it: ``python -m unittest …``, Django's ``runtests.py`` and ``manage.py test``.
* pytest: ``pytest …``, ``py.test …`` and ``python -m pytest …``.
* SymPy's own runner: ``bin/test -C --verbose sympy/…/tests/test_….py``.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Self

from securebench.runner_commands import read_command
from securebench.verifiers.repo_patch.commands import started
from securebench.verifiers.repo_patch.evidence.adapter import GUEST, NO_BYTECODE, Adapter, CasePlace
from securebench.verifiers.repo_patch.pytest_options import configuration_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.runner_commands import RunnerCommand

_STARTS: Final = ("-s", "--start-directory")
_PRINTED = re.compile(r"(\w+) \(([\w.<>]+)\)")
_SERIAL: Final = "--parallel=1"

_PYTEST_WITH_VALUE: Final = (
    "-k",
    "-m",
    "-p",
    "-o",
    "-c",
    "-n",
    "-W",
    "-r",
    "--rootdir",
    "--ignore",
    "--deselect",
    "--tb",
)
"""Options of pytest whose value is the next argument. That argument is not a file or test to run."""

_NARROWING = re.compile(
    r"-[km].*|--deselect.*|--keyword.*|--markers?-?exp.*|(?!-).*::.*|--(?:lf|ff|sw|last|step|failed).*"
)

_PROTECTED: Final = """
_pytest._code.code _pytest.approx _pytest.assertion _pytest.assertion.rewrite _pytest.assertion.util
_pytest.config _pytest.fixtures _pytest.main _pytest.mark.structures _pytest.nodes _pytest.outcomes
_pytest.python _pytest.python_api _pytest.raises _pytest.recwarn _pytest.reports _pytest.runner
_pytest.skipping _pytest.subtests _pytest.unittest pluggy.*
"""
"""The modules that determine the outcome of a test, in any version of pytest and pluggy."""


class ReportedTest(NamedTuple):
    """A test as ``guest/securebench_unittest.py`` reports it: these fields, joined by ``::``."""

    module: str
    qualified: str
    method: str

    @classmethod
    def read(cls, test: str) -> ReportedTest | None:
        """Parse a reported id. Returns ``None`` for any other text."""
        parts = test.split("::")
        return cls(*parts) if len(parts) == len(cls._fields) else None


@dataclass(frozen=True, slots=True)
class LauncherAdapter(Adapter):
    """A command whose runner is replaced by a launcher, which can also list the tests without running them."""

    command: RunnerCommand

    @property
    def narrows(self) -> bool:
        """Always false: commands with options that select single tests are not recognized."""
        return False

    @property
    def collecting(self) -> Self:
        """This adapter itself. The host's message tells the launcher whether to run the tests or only list them."""
        return self

    def owns(self, path: str) -> bool:
        """Return whether ``path`` belongs to the repository's own runner."""
        return self.command.owns(path)


@dataclass(frozen=True, slots=True)
class UnittestAdapter(LauncherAdapter):
    """A command whose tests are run by ``unittest.TestCase.run``, in one process."""

    runner: ClassVar[str] = "unittest"
    protected: ClassVar[tuple[str, ...]] = ("unittest.main", "unittest.runner", "unittest.mock", "unittest.async_case")
    functions: ClassVar[bool] = False

    @property
    def argv(self) -> tuple[str, ...]:
        """The argv of the launcher, which runs the task's command. Django's runners are told to use one process."""
        command = self.command
        kind, script = ("script", (command.script,)) if command.script else ("module", ())
        serial = (_SERIAL,) if command.runner == "django" and not self._is_serial else ()
        launcher = f"{GUEST}/securebench_unittest.py"
        return started((command.program, *command.flags, launcher, kind, *script, *command.arguments, *serial))

    @property
    def selected(self) -> tuple[str, ...]:
        """The files and directories that the command's labels may refer to, or the directory where ``discover`` starts.

        Labels name modules, classes, methods or paths. Paths that do not exist select nothing. Without labels, the
        result is the directory of the script that the command runs, or the working directory if it runs no script.
        """
        command = self.command
        if command.discovers:
            pairs = zip(command.arguments, command.arguments[1:], strict=False)
            starts = tuple(word for before, word in pairs if before in _STARTS)
            return starts or command.names[1:2] or (".",)
        return tuple(path for label in command.labels for path in self._paths(label)) or (self._top or ".",)

    def selects_method(self, is_file: Callable[[str], bool]) -> bool:
        """Return whether a label names something inside a class of a module, such as a method."""
        labels = [label.split(".") for label in self.command.labels if "/" not in label]
        return any(self._inside_module(parts, is_file) > 1 for parts in labels)

    def file(self, test: str) -> str | None:
        """Return the file of an id in unittest's format, or ``None`` for any other id."""
        printed = _PRINTED.fullmatch(test)
        return self._paths(printed[2])[0] if printed else None

    def place(self, test: str) -> CasePlace | None:
        """Parse a reported id or an id in unittest's format. Return ``None`` for other text, such as a docstring."""
        if reported := ReportedTest.read(test):
            return CasePlace(reported.module.rpartition(".")[2], tuple(reported.qualified.split(".")), reported.method)
        printed = _PRINTED.fullmatch(test)
        if printed is None:
            return None
        parts = printed[2].removesuffix(f".{printed[1]}").split(".")
        return CasePlace(parts[-2], (parts[-1],), printed[1]) if len(parts) > 1 else None

    def stem(self, path: str) -> str:
        """Return the last part of the module name of ``path``."""
        file = PurePosixPath(path)
        return file.parent.name if file.name == "__init__.py" else file.stem

    def names(self, test: str) -> tuple[str, ...]:
        """Return the names of a reported test in logs: in unittest's older and newer formats, and as a dotted path."""
        reported = ReportedTest.read(test)
        if reported is None:
            return (test,)
        owner = f"{reported.module}.{reported.qualified}"
        printed = (f"{reported.method} ({owner})", f"{reported.method} ({owner}.{reported.method})")
        return (*printed, f"{owner}.{reported.method}")

    @property
    def _top(self) -> str:
        """The root of module names: the script's directory, or else the working directory."""
        top = PurePosixPath(self.command.script or ".").parent.as_posix()
        return "" if top == "." else top

    @property
    def _is_serial(self) -> bool:
        text = " ".join(self.command.arguments)
        return "--parallel 1" in text or _SERIAL in text

    def _paths(self, label: str) -> list[str]:
        """Return the files and directories that a label may refer to, relative to the working directory.

        A module may be in the script's directory, where Python looks first, or in the working directory. Names that
        begin with a capital letter count as classes.
        """
        if "/" in label or label.endswith(".py"):
            return [label]
        parts = label.split(".")
        named = [*parts]
        while named and named[-1][:1].isupper():
            named.pop()
        if named == parts and len(parts) > 1 and parts[-2][:1].isupper():
            named = parts[:-2]
        tops = dict.fromkeys(["/".join([self._top, *named]).strip("/"), "/".join(named)])
        return [name for path in tops if path for name in (f"{path}.py", path)] or ["."]

    def _inside_module(self, parts: list[str], is_file: Callable[[str], bool]) -> int:
        """Return how many of a label's ``parts`` follow the name of its module, or 0 if there is no such module."""
        for count in range(len(parts), 0, -1):
            for top in (self._top, ""):
                module = "/".join([top, *parts[:count]]).strip("/")
                if is_file(f"{module}.py") or is_file(f"{module}/__init__.py"):
                    return len(parts) - count
        return 0


def read_unittest(command: RunnerCommand) -> UnittestAdapter | None:
    """Return the adapter of a command that runs its tests with unittest."""
    return UnittestAdapter(command) if command.runner in ("unittest", "django") else None


@dataclass(frozen=True, slots=True)
class PytestAdapter(Adapter):
    """A pytest command: ``PROGRAM FLAGS -m pytest ARGUMENTS`` if ``module``, else ``PROGRAM ARGUMENTS``."""

    runner: ClassVar[str] = "pytest"
    plain_classes: ClassVar[bool] = True
    protected: ClassVar[tuple[str, ...]] = tuple(_PROTECTED.split())

    program: str
    arguments: tuple[str, ...]
    module: bool
    flags: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        """The argv of the task's command, with the reporter as a plugin."""
        if self.module:  # the launcher does the same as -m, but first loads the installed pytest
            return started((self.program, *self.flags, f"{GUEST}/securebench_launch.py", *self.arguments))
        return started((self.program, "-p", "securebench_report", *self.arguments))

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that the runner needs.

        If the task's command is not ``python -m pytest``, ``PYTHONPATH`` names the directory of the reporter.
        """
        return NO_BYTECODE if self.module else {**NO_BYTECODE, "PYTHONPATH": GUEST}

    @property
    def selected(self) -> tuple[str, ...]:
        """The files and directories that the command names."""
        names: list[str] = []
        before = ""
        for argument in self.arguments:
            if not argument.startswith("-") and before not in _PYTEST_WITH_VALUE:
                names.append(argument.partition("::")[0])
            before = argument
        return tuple(names)

    @property
    def narrows(self) -> bool:
        """Whether an option or a node id selects single tests."""
        return any(_NARROWING.fullmatch(argument) for argument in self.arguments)

    @property
    def collecting(self) -> PytestAdapter:
        """An adapter of the same command with pytest's option to collect only."""
        return replace(self, arguments=(*self.arguments, "--collect-only"))

    def file(self, test: str) -> str | None:
        """Return the file of a node id."""
        return test.partition("::")[0]

    def owns(self, path: str) -> bool:
        """Return whether ``path`` is the configuration file that the command names."""
        named = configuration_file(self.arguments)
        return bool(named) and posixpath.normpath(named) == path

    def names(self, test: str) -> tuple[str, ...]:
        """Return the node id, and also the part before its first space if that space is inside the parameters."""
        # Some log parsers cut ids at spaces. The part before a space that is not inside the parameters could be the
        # full id of another test.
        cut = test.split(" ", 1)[0]
        return (test, cut) if cut.count("[") > cut.count("]") else (test,)

    def place(self, test: str) -> CasePlace | None:
        """Read a node id: ``FILE::CLASS::FUNCTION[PARAMETERS]``."""
        path, *inner = test.partition("[")[0].split("::")
        if not inner:
            return None
        return CasePlace(PurePosixPath(path).stem, tuple(inner[:-1]), inner[-1])


def read_pytest(command: RunnerCommand) -> PytestAdapter | None:
    """Return the adapter of a command that runs pytest."""
    if command.runner != "pytest":
        return None
    return PytestAdapter(command.program, command.arguments, module=command.interpreter, flags=command.flags)


@dataclass(frozen=True, slots=True)
class SympyAdapter(LauncherAdapter):
    """A ``bin/test`` command of SymPy. ``guest/securebench_sympy.py`` is run in place of ``bin/test``."""

    runner: ClassVar[str] = "sympy"
    protected: ClassVar[tuple[str, ...]] = ("inspect", "random", "traceback", "warnings")

    @property
    def argv(self) -> tuple[str, ...]:
        """The argv that starts SecureBench's own runner with the options and paths of the task's command."""
        launcher = f"{GUEST}/securebench_sympy.py"
        return started((self.command.program, *self.command.flags, launcher, *self.command.arguments))

    @property
    def selected(self) -> tuple[str, ...]:
        """The files and directories that the command names, or all of SymPy if it names none."""
        return tuple(word for word in self.command.arguments if not word.startswith("-")) or ("sympy",)

    def file(self, test: str) -> str | None:
        """Return the file of a reported id, or ``None`` for an expected id, which is only a function's name."""
        path, inner, _ = test.partition("::")
        return path if inner else None

    def place(self, test: str) -> CasePlace | None:
        """Parse a reported id, ``FILE::FUNCTION``. Return ``None`` for the name of a function alone."""
        path, inner, function = test.partition("::")
        return CasePlace(PurePosixPath(path).stem, (), function) if inner else None

    def names(self, test: str) -> tuple[str, ...]:
        """Return the id of a reported test, and its name in logs: the name of its function."""
        return (test, test.partition("::")[2])


def read_sympy(command: RunnerCommand) -> SympyAdapter | None:
    """Return the adapter of a command that runs SymPy's runner."""
    return SympyAdapter(command) if command.runner == "sympy" else None


ADAPTERS: Final[tuple[Callable[[RunnerCommand], Adapter | None], ...]] = (read_pytest, read_unittest, read_sympy)
"""For each kind of runner, the function that returns the adapter of its commands, or ``None`` for other commands."""


def recognise(command: str | tuple[str, ...]) -> Adapter | None:
    """Return the adapter of ``command``, or ``None`` if only its exit code can be judged."""
    found = read_command(command)
    return None if found is None else next(adapter for read in ADAPTERS if (adapter := read(found)) is not None)
