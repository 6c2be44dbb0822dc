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
"""Options of pytest with a value in the next argument, which is not the name of a test."""

_NARROWING = re.compile(
    r"-[km].*|--deselect.*|--keyword.*|--markers?-?exp.*|(?!-).*::.*|--(?:lf|ff|sw|last|step|failed).*"
)


_PROTECTED: Final = """
_pytest._code.code _pytest.approx _pytest.assertion _pytest.assertion.rewrite _pytest.assertion.util
_pytest.config _pytest.fixtures _pytest.main _pytest.mark.structures _pytest.nodes _pytest.outcomes
_pytest.python _pytest.python_api _pytest.raises _pytest.recwarn _pytest.reports _pytest.runner
_pytest.skipping _pytest.subtests _pytest.unittest pluggy.*
"""
"""Modules of pytest and pluggy, in all versions, that determine the outcome of a test."""


@dataclass(frozen=True, slots=True)
class PytestAdapter(Adapter):
    """A pytest command: ``PROGRAM -m pytest ARGUMENTS`` if ``module``, else ``PROGRAM ARGUMENTS``."""

    runner: ClassVar[str] = "pytest"
    plain_classes: ClassVar[bool] = True
    protected: ClassVar[tuple[str, ...]] = tuple(_PROTECTED.split())

    program: str
    arguments: tuple[str, ...]
    module: bool

    @property
    def argv(self) -> tuple[str, ...]:
        """The same command, with the reporter as a plugin."""
        if self.module:  # the launcher does the same as -m, but first loads the installed pytest
            return started((self.program, f"{GUEST}/securebench_launch.py", *self.arguments))
        return started((self.program, "-p", "securebench_report", *self.arguments))

    @property
    def environment(self) -> dict[str, str]:
        """Bytecode is not written, so that no later process can load it."""
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
        """The same command with pytest's option to collect only."""
        return replace(self, arguments=(*self.arguments, "--collect-only"))

    def file(self, test: str) -> str | None:
        """Return the file of a node id."""
        return test.partition("::")[0]

    def owns(self, path: str) -> bool:
        """Return whether ``path`` is the configuration file that the command names."""
        named = configuration_file(self.arguments)
        return bool(named) and PurePosixPath(named) == PurePosixPath(path)

    def names(self, test: str) -> tuple[str, ...]:
        """Return the node id, and the part of it that remains in a log parser that cuts at spaces.

        Only cuts inside brackets are included. Text before another space could be the full id of another test.
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
