"""All families by name, and the validation of their rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from securebench import plugins
from securebench.errors import ConfigError
from securebench.families.base import Family
from securebench.plugins import ExtensionKind
from securebench.strict_input.faults import Fault, Problems, did_you_mean, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.strict_input.faults import Document
    from securebench.tasks import Environment


class _Families(Mapping[str, Family]):
    """The families by name, including those of installed packages. A family is loaded on first access."""

    def __getitem__(self, name: str) -> Family:
        if not plugins.is_known(ExtensionKind.FAMILY, name):
            raise KeyError(name)
        family = plugins.load(ExtensionKind.FAMILY, name)
        if not isinstance(family, Family) or family.name != name:
            raise ConfigError(f"the extension {name!r} is not a family of that name", code="plugin-broken")
        return family

    def __iter__(self) -> Iterator[str]:
        return iter(plugins.names(ExtensionKind.FAMILY))

    def __len__(self) -> int:
        return len(plugins.names(ExtensionKind.FAMILY))


FAMILIES: Final[Mapping[str, Family]] = _Families()
"""Every family by name: the active ones first, then the deferred ones, then those of installed packages."""


class FamilyRow(Protocol):
    """The parts of a row that its family validates."""

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
    def source(self) -> Document:
        """Where the row is."""


def family_faults(row: FamilyRow) -> list[Fault]:
    """Return the faults of a row by the rules of its family. A deferred family has no rules."""
    family = FAMILIES.get(row.family)
    if family is None:
        hint = did_you_mean(row.family, FAMILIES)
        return [Fault("family-unknown", f"unknown family {shown(row.family)}", ("family",), hint)]
    return family.faults(row.input, row.eval, row.environment)


def validate_benchmark_row_family(row: FamilyRow) -> None:
    """Validate a row with its family's rules. Raises :class:`ConfigError` with all problems and their locations."""
    problems = Problems()
    problems.extend(family_faults(row), row.source)
    problems.raise_if_any()
