"""Imported rows, each with the authors' record that it comes from."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from securebench.errors import ConfigError, Problem
from securebench.plurals import counted
from securebench.strict_input.files import decode
from securebench.strict_input.json_text import JsonSource, UnfitJsonError, decode_json, json_faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from securebench.errors import SourceLocation
    from securebench.resources import JsonValue

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class ImportedRow:
    """One row of a pack. ``record`` is the authors' record, ``location`` its place."""

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
        """The sha256 (hex) of the authors' record, independent of its mapping to a row."""
        return hashlib.sha256(canonical_json(self.record).encode()).hexdigest()

    @property
    def line(self) -> str:
        """The row as a line of ``tasks.jsonl``, without the line feed: ASCII, fields in the documented order."""
        return json.dumps(dict(self.task), allow_nan=False)


def canonical_json(value: JsonValue) -> str:
    """Return ``value`` as compact ASCII JSON with sorted keys: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Records that could not be imported: their problems, by zero-based position.

    ``ids`` are the ids of tasks that an earlier step has already rejected.
    """

    problems: dict[int, tuple[Problem, ...]] = field(default_factory=dict)
    ids: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[Problem]:
        return itertools.chain.from_iterable(self.problems.values())


def selected(
    rows: Sequence[ImportedRow], positions: Iterable[int] | None, limit: int | None, left_out: LeftOut | None = None
) -> list[ImportedRow]:
    """Return the rows at zero-based ``positions`` (all by default), at most ``limit`` of them.

    A record that was ``left_out`` keeps its position, so a position always means the same row.
    Raises :class:`ConfigError` (``import-row-unknown``) for a position beyond the last row.
    """
    gaps = left_out.problems if left_out else {}
    remaining = iter(rows)
    records = [None if place in gaps else next(remaining) for place in range(len(rows) + len(gaps))]
    chosen = range(len(records)) if positions is None else list(positions)
    beyond = [position for position in chosen if position >= len(records)]
    if beyond:
        message = f"row {beyond[0]} does not exist: found {counted(len(records), 'row')}, numbered from 0"
        hint = "rows are numbered in the order of the lock file or, without a lock file, of the source"
        raise ConfigError(message, code="import-row-unknown", hint=hint)
    return [row for position in chosen if (row := records[position])][:limit]


def rows_of(
    records: Iterable[_Record], make: Callable[[_Record], ImportedRow], left_out: LeftOut | None = None
) -> list[ImportedRow]:
    """Return the row of each record.

    Raises :class:`ConfigError` with the problems of all records, or adds them to ``left_out`` if it is given.
    """
    noted = left_out or LeftOut()
    rows: dict[str, ImportedRow] = {}
    for place, record in enumerate(records):
        try:
            row = make(record)
            if row.id in rows:
                raise bad_record(row.location, f"duplicate id {row.id}")
            rows[row.id] = row
        except ConfigError as error:
            noted.problems[place] = error.problems
    if left_out is None and (problems := [*map(skippable, noted)]):
        raise ConfigError(problems=problems)
    return list(rows.values())


def json_record(name: str, number: int, line: bytes) -> Any:
    """Return the JSON value in line ``number`` of the file ``name``.

    Raises :class:`ConfigError` with the problems of the line.
    """
    text, fault = decode(line, number)
    faults = [fault] if fault else []
    if not faults:
        try:
            return decode_json(text)[0]
        except UnfitJsonError:
            faults = json_faults(text, number)
    source = JsonSource(name, text, number)
    raise ConfigError(problems=[Problem(each.code, each.message, source.locate(each), each.hint) for each in faults])


def skippable(problem: Problem) -> Problem:
    """Return ``problem`` with its hint extended: the option ``--skip-unusable`` leaves out rows with a problem."""
    return replace(problem, hint="; ".join(filter(None, (problem.hint, "--skip-unusable leaves such rows out"))))


def bad_record(location: SourceLocation, message: str, hint: str = "") -> ConfigError:
    """Return the error for a record that cannot be imported."""
    return ConfigError(message, code="import-row-invalid", hint=hint, location=location)
