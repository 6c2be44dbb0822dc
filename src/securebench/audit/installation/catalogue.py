"""The strict reader of ``audit/catalogue.yaml``, the catalogue of attacks."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field, model_validator

from securebench.errors import ConfigError
from securebench.limits import MIB
from securebench.strict_input.faults import Fault, Problems
from securebench.strict_input.files import read_text
from securebench.strict_input.models import WireModel, fit, matching, refusal
from securebench.strict_input.yaml_text import parse_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self

CATALOGUE: Final = Path(__file__).parents[1] / "catalogue.yaml"
MAX_BYTES: Final = MIB // 4


_Text = Annotated[str, Field(min_length=1, max_length=200)]
_Id = Annotated[str, matching(re.compile(r"[A-Z][0-9]{2}"), "an id such as 'A01'")]
_Test = Annotated[str, matching(re.compile(r"tests/[\w/]+\.py(?:::\w+)+"), "a test such as 'tests/x.py::test_y'")]


class CatalogueEntry(WireModel):
    """One attack, and how to check that it is contained.

    ``attack`` says what the attacker does, ``contained_by`` what stops it. ``probes`` are kinds of probes, or single
    probes as ``kind/item``. ``tests`` are ids of the project's own tests. ``not_applicable`` says why an installation
    has nothing to check.
    """

    id: _Id
    title: _Text
    attack: _Text
    contained_by: _Text
    probes: Annotated[list[_Text], Field(min_length=1)] = Field(default_factory=list)
    tests: Annotated[list[_Test], Field(min_length=1)] = Field(default_factory=list)
    not_applicable: _Text = ""

    @model_validator(mode="after")
    def _is_checked_somehow(self) -> Self:
        given = self.model_fields_set & {"probes", "tests", "not_applicable"}
        if not given or ("not_applicable" in given and len(given) > 1):
            raise refusal("field-value", "must have 'probes', 'tests' or both, or only 'not_applicable'")
        return self


class CatalogueSection(WireModel):
    """Attacks on one part of SecureBench. ``id`` is the letter with which the ids of its entries begin."""

    id: Annotated[str, matching(re.compile(r"[A-Z]"), "a capital letter")]
    title: _Text
    entries: Annotated[list[CatalogueEntry], Field(min_length=1)]


class _CatalogueFile(WireModel):
    sections: Annotated[list[CatalogueSection], Field(min_length=1)]


def read_catalogue(path: Path = CATALOGUE) -> tuple[CatalogueSection, ...]:
    """Return the sections in order. Raises :class:`ConfigError` with the line and column of each problem."""
    text, _ = read_text(path, "catalogue", MAX_BYTES)
    value, source, faults = parse_yaml(text, str(path))
    problems = Problems()
    problems.extend(faults, source)
    problems.raise_if_any()
    model, faults = fit(_CatalogueFile, value)
    problems.extend(faults, source)
    if model is not None:
        problems.extend(_id_faults(model), source)
    problems.raise_if_any()
    assert model is not None
    return tuple(model.sections)


def _id_faults(model: _CatalogueFile) -> Iterator[Fault]:
    """Yield a fault for each id that occurs twice, is out of order, or does not begin with its section's letter."""
    last = ""
    for number, section in enumerate(model.sections):
        for index, entry in enumerate(section.entries):
            path = ("sections", number, "entries", index, "id")
            if not entry.id.startswith(section.id):
                yield Fault("field-value", f"the id {entry.id!r} must begin with {section.id!r}", path)
            elif entry.id <= last:
                yield Fault("field-value", f"the id {entry.id!r} must come after {last!r}", path)
            last = entry.id


def entries_of(sections: Iterable[CatalogueSection]) -> Iterator[CatalogueEntry]:
    """Yield the entries of all sections in order."""
    for section in sections:
        yield from section.entries


def select_entries(sections: Iterable[CatalogueSection], patterns: Iterable[str]) -> tuple[CatalogueSection, ...]:
    """Return the sections, reduced to the entries whose id matches one of the glob ``patterns``, ignoring case.

    Sections without such an entry are left out. An empty ``patterns`` selects everything. Raises :class:`ConfigError`
    (``audit-entry-unknown``) for a pattern that matches nothing.
    """
    sections = tuple(sections)
    wanted = [pattern.upper() for pattern in patterns]
    if not wanted:
        return sections
    ids = [entry.id for entry in entries_of(sections)]
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in ids):
            hint = "give an id such as 'A01', or 'A*' for all entries of section A"
            raise ConfigError(f"no entry of the catalogue matches {pattern!r}", code="audit-entry-unknown", hint=hint)
    chosen = (
        section.model_copy(
            update={"entries": [one for one in section.entries if any(fnmatchcase(one.id, name) for name in wanted)]}
        )
        for section in sections
    )
    return tuple(section for section in chosen if section.entries)
