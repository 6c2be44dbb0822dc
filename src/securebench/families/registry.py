"""All families by name, and what a row of theirs must be."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from securebench.families import (
    code_completion,
    deferred,
    free_response,
    multiple_choice,
    repo_patch,
    short_answer,
    terminal_task,
)
from securebench.strict_input.faults import Fault, Problems, did_you_mean, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.families.base import Family
    from securebench.strict_input.faults import Source
    from securebench.tasks import Environment

_ACTIVE = (multiple_choice, short_answer, free_response, code_completion, repo_patch, terminal_task)

FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {family.name: family for family in (*(module.FAMILY for module in _ACTIVE), *deferred.FAMILIES)}
)
"""Every family, the active ones first."""


class FamilyRow(Protocol):
    """What a family must know of a row."""

    @property
    def family(self) -> str:
        """The name of its family."""

    @property
    def input(self) -> dict[str, Any]:
        """Its public fields."""

    @property
    def eval(self) -> dict[str, Any]:
        """Its scoring fields."""

    @property
    def environment(self) -> Environment:
        """Its environment, merged over the manifest's defaults."""

    @property
    def source(self) -> Source:
        """Where it stands."""


def family_faults(row: FamilyRow) -> list[Fault]:
    """Return what is wrong with a row by the rules of its family. A deferred family has none."""
    family = FAMILIES.get(row.family)
    if family is None:
        hint = did_you_mean(row.family, FAMILIES)
        return [Fault("family-unknown", f"unknown family {shown(row.family)}", ("family",), hint)]
    return family.faults(row.input, row.eval, row.environment)


def validate_benchmark_row_family(row: FamilyRow) -> None:
    """Hold a row to its family. Raises :class:`ConfigError` with every problem and its place."""
    problems = Problems()
    problems.extend(family_faults(row), row.source)
    problems.raise_if_any()
