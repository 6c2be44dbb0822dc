"""SymPy's own runner: ``bin/test -C --verbose sympy/…/tests/test_….py``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, ClassVar

from securebench.verifiers.repo_patch.commands import started
from securebench.verifiers.repo_patch.evidence.adapter import GUEST, Adapter, CasePlace

if TYPE_CHECKING:
    from securebench.runner_commands import RunnerCommand


@dataclass(frozen=True, slots=True)
class SympyAdapter(Adapter):
    """A command whose test functions are run by ``guest/securebench_sympy.py`` instead of ``bin/test``."""

    runner: ClassVar[str] = "sympy"
    protected: ClassVar[tuple[str, ...]] = ("inspect", "random", "traceback", "warnings")

    command: RunnerCommand

    @property
    def argv(self) -> tuple[str, ...]:
        """The runner in the sandbox, with the options and paths of the command."""
        launcher = f"{GUEST}/securebench_sympy.py"
        return started((self.command.program, *self.command.flags, launcher, *self.command.arguments))

    @property
    def environment(self) -> dict[str, str]:
        """Bytecode is not written, so that no later process can load it."""
        return {"PYTHONDONTWRITEBYTECODE": "1"}

    @property
    def selected(self) -> tuple[str, ...]:
        """The files and directories that the command names, or all of SymPy if it names none."""
        return tuple(word for word in self.command.arguments if not word.startswith("-")) or ("sympy",)

    @property
    def narrows(self) -> bool:
        """Always whole files."""
        return False

    @property
    def collecting(self) -> SympyAdapter:
        """The same command: the runner only collects if the order says so."""
        return self

    def file(self, test: str) -> str | None:
        """Return the file of a reported id. An expected id is only a function's name."""
        path, inner, _ = test.partition("::")
        return path if inner else None

    def owns(self, path: str) -> bool:
        """Return whether ``path`` belongs to the repository's own runner."""
        return self.command.owns(path)

    def place(self, test: str) -> CasePlace | None:
        """Parse a reported id, ``FILE::FUNCTION``. A function's name alone has no place."""
        path, inner, function = test.partition("::")
        return CasePlace(PurePosixPath(path).stem, (), function) if inner else None

    def names(self, test: str) -> tuple[str, ...]:
        """Return the name of a reported test in logs: its function."""
        return (test, test.partition("::")[2])


def read_sympy(command: RunnerCommand) -> SympyAdapter | None:
    """Return the adapter of a command that runs SymPy's runner."""
    return SympyAdapter(command) if command.runner == "sympy" else None
