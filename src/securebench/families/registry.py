"""All families by name, and what a row of theirs must be."""

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
    """The families by name, those of installed packages too. One is loaded when it is looked up."""

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
    def source(self) -> Document:
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
