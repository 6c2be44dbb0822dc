"""pytest: ``pytest …``, ``py.test …`` and ``python -m pytest …``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, ClassVar, Final

from securebench.verifiers.repo_patch.commands import started
from securebench.verifiers.repo_patch.evidence.adapter import GUEST, Adapter, CasePlace
from securebench.verifiers.repo_patch.pytest_options import configuration_file

if TYPE_CHECKING:
    from securebench.runner_commands import RunnerCommand

_WITH_VALUE: Final = ("-k", "-m", "-p", "-o", "-c", "-n", "-W", "-r", "--rootdir", "--ignore", "--deselect", "--tb")
"""Options of pytest that take what follows them: it names no tests."""

_NARROWING = re.compile(
    r"-[km].*|--deselect.*|--keyword.*|--markers?-?exp.*|(?!-).*::.*|--(?:lf|ff|sw|last|step|failed).*"
)


_PROTECTED: Final = """
_pytest._code.code _pytest.approx _pytest.assertion _pytest.assertion.rewrite _pytest.assertion.util
_pytest.config _pytest.fixtures _pytest.main _pytest.mark.structures _pytest.nodes _pytest.outcomes
_pytest.python _pytest.python_api _pytest.raises _pytest.recwarn _pytest.reports _pytest.runner
_pytest.skipping _pytest.subtests _pytest.unittest pluggy.*
"""
"""Modules of pytest and pluggy, of all their versions, that decide what becomes of a test."""


@dataclass(frozen=True, slots=True)
class PytestAdapter(Adapter):
    """A command that is pytest. ``module`` for ``PROGRAM -m pytest ARGUMENTS``, else ``PROGRAM ARGUMENTS``."""

    runner: ClassVar[str] = "pytest"
    plain_classes: ClassVar[bool] = True
    protected: ClassVar[tuple[str, ...]] = tuple(_PROTECTED.split())

    program: str
    arguments: tuple[str, ...]
    module: bool

    @property
    def argv(self) -> tuple[str, ...]:
        """The same command, with the reporter as a plugin."""
        if self.module:  # the launcher does what -m does, after pytest is loaded from where it is installed
            return started((self.program, f"{GUEST}/securebench_launch.py", *self.arguments))
        return started((self.program, "-p", "securebench_report", *self.arguments))

    @property
    def environment(self) -> dict[str, str]:
        """No bytecode is written: nothing may be left that a later process loads."""
        common = {"PYTHONDONTWRITEBYTECODE": "1"}
        return common if self.module else {**common, "PYTHONPATH": GUEST}

    @property
    def selected(self) -> tuple[str, ...]:
        """The files and directories that it names."""
        names: list[str] = []
        before = ""
        for argument in self.arguments:
            if not argument.startswith("-") and before not in _WITH_VALUE:
                names.append(argument.partition("::")[0])
            before = argument
        return tuple(names)

    @property
    def narrows(self) -> bool:
        """Whether an option or a node id selects single tests."""
        return any(_NARROWING.fullmatch(argument) for argument in self.arguments)

    @property
    def collecting(self) -> PytestAdapter:
        """The same command with pytest's option for that."""
        return replace(self, arguments=(*self.arguments, "--collect-only"))

    def file(self, test: str) -> str | None:
        """Return the file of a node id."""
        return test.partition("::")[0]

    def owns(self, path: str) -> bool:
        """Return whether ``path`` is the configuration file that the command names."""
        named = configuration_file(self.arguments)
        return bool(named) and PurePosixPath(named) == PurePosixPath(path)

    def names(self, test: str) -> tuple[str, ...]:
        """Return the node id, and what a log parser that cuts at spaces leaves of its parameters.

        What ends before a space without an open bracket is no such rest: it would be the whole id of another test.
        """
        cut = test.split(" ", 1)[0]
        return (test, cut) if cut.count("[") > cut.count("]") else (test,)

    def place(self, test: str) -> CasePlace | None:
        """Read a node id: ``FILE::CLASS::FUNCTION[PARAMETERS]``."""
        path, *inner = test.partition("[")[0].split("::")
        if not inner:
            return None
        return CasePlace(PurePosixPath(path).stem, tuple(inner[:-1]), inner[-1])


def read_pytest(command: RunnerCommand) -> PytestAdapter | None:
    """Return the adapter of a command that is pytest."""
    if command.runner != "pytest":
        return None
    return PytestAdapter(command.program, command.arguments, module=command.interpreter)
