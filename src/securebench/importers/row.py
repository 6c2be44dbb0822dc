"""What an importer makes: rows, each with the authors' record that it comes from."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from securebench.errors import ConfigError
from securebench.strict_input.faults import Problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from securebench.errors import SourceLocation
    from securebench.resources import JsonValue

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class ImportedRow:
    """One row of a pack. ``record`` is what the authors published, ``location`` where that stands."""

    task: Mapping[str, Any]
    record: JsonValue
    location: SourceLocation

    @property
    def id(self) -> str:
        """The task's id."""
        name: str = self.task["id"]
        return name

    @property
    def digest(self) -> str:
        """The sha256 (hex) of the authors' record, independent of how it is mapped."""
        return hashlib.sha256(canonical_json(self.record).encode()).hexdigest()

    @property
    def line(self) -> str:
        """The row as a line of ``tasks.jsonl``, without its end: ASCII, fields in the order in which a row is read."""
        return json.dumps(dict(self.task), allow_nan=False)


def canonical_json(value: JsonValue) -> str:
    """Return ``value`` as compact ASCII JSON with sorted keys: the same value is always the same text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def selected(rows: Sequence[ImportedRow], positions: Iterable[int] | None, limit: int | None) -> list[ImportedRow]:
    """Return the rows at zero-based ``positions`` (all by default), and of these the first ``limit``.

    Raises :class:`ConfigError` (``import-row-unknown``) for a position beyond the last row.
    """
    chosen = range(len(rows)) if positions is None else list(positions)
    beyond = [position for position in chosen if position >= len(rows)]
    if beyond:
        message = f"there is no row {beyond[0]}: the source has {len(rows)}, and the first is row 0"
        raise ConfigError(message, code="import-row-unknown")
    return [rows[position] for position in chosen][:limit]


def rows_of(records: Iterable[_Record], make: Callable[[_Record], ImportedRow]) -> list[ImportedRow]:
    """Return the row of each record. Raises :class:`ConfigError` with the problems of all of them."""
    problems = Problems()
    rows: dict[str, ImportedRow] = {}
    for record in records:
        try:
            row = make(record)
        except ConfigError as error:
            problems.found += error.problems
            continue
        if row.id in rows:
            problems.found += bad_record(row.location, f"{row.id} stands here again").problems
        rows[row.id] = row
    problems.raise_if_any()
    return list(rows.values())


def bad_record(location: SourceLocation, message: str, hint: str = "") -> ConfigError:
    """Return the error for a record of the authors that no row can be made of."""
    return ConfigError(message, code="import-row-invalid", hint=hint, location=location)
