"""Which test commands have an adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.verifiers.repo_patch.commands import words
from securebench.verifiers.repo_patch.evidence.pytest_adapter import read_pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.verifiers.repo_patch.evidence.adapter import Adapter

ADAPTERS: Final[tuple[Callable[[list[str]], Adapter | None], ...]] = (read_pytest,)
"""Each reads the words of a command, and returns its adapter if they are its runner's and nothing else."""


def recognise(command: str | tuple[str, ...]) -> Adapter | None:
    """Return the adapter of ``command``, or ``None``: its exit code is all there is then."""
    found = words(command)
    return next((adapter for read in ADAPTERS if found and (adapter := read(found)) is not None), None)
