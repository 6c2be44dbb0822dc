"""Which test commands have an adapter."""

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
"""Each returns its adapter if a command is its runner's. Every runner that ``read_command`` knows has one."""


def recognise(command: str | tuple[str, ...]) -> Adapter | None:
    """Return the adapter of ``command``, or ``None``: its exit code is all there is then."""
    found = read_command(command)
    return None if found is None else next(adapter for read in ADAPTERS if (adapter := read(found)) is not None)
