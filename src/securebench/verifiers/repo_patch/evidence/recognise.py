"""Find the adapter of a test command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.runner_commands import read_command
from securebench.verifiers.repo_patch.evidence.pytest_adapter import read_pytest
from securebench.verifiers.repo_patch.evidence.sympy_adapter import read_sympy
from securebench.verifiers.repo_patch.evidence.unittest_adapter import read_unittest

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.runner_commands import RunnerCommand
    from securebench.verifiers.repo_patch.evidence.adapter import Adapter

ADAPTERS: Final[tuple[Callable[[RunnerCommand], Adapter | None], ...]] = (read_pytest, read_unittest, read_sympy)
"""Each returns an adapter if the command belongs to its runner. There is one for each runner of ``read_command``."""


def recognise(command: str | tuple[str, ...]) -> Adapter | None:
    """Return the adapter of ``command``, or ``None`` if only its exit code can be judged."""
    found = read_command(command)
    return None if found is None else next(adapter for read in ADAPTERS if (adapter := read(found)) is not None)
