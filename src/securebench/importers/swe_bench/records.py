"""The authors' records: JSON Lines or Parquet, read strictly, with the fields that a row needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import ConfigError, SourceLocation
from securebench.importers.row import bad_record, json_record
from securebench.strict_input.json_text import UnfitJsonError, decode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from securebench.errors import Problem
    from securebench.resources import JsonValue

TEXTS: Final = ("instance_id", "repo", "base_commit", "problem_statement", "patch", "test_patch", "version")
TEST_LISTS: Final = ("FAIL_TO_PASS", "PASS_TO_PASS")
FIELDS: Final = (*TEXTS, *TEST_LISTS, "hints_text")
"""The fields that are read. ``hints_text`` may be absent."""

_INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Instance:
    """One record and its location."""

    id: str
    repository: str
    base_commit: str
    version: str
    problem: str
    hints: str
    patch: str
    test_patch: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    location: SourceLocation

    @property
    def record(self) -> JsonValue:
        """The value whose digest a lock contains: the fields that define the task, independent of the file format.

        It excludes the hints, which are optional, and the order of tests, which differs between exports.
        """
        return {
            "instance_id": self.id,
            "repo": self.repository,
            "base_commit": self.base_commit,
            "version": self.version,
            "problem_statement": self.problem,
            "patch": self.patch,
            "test_patch": self.test_patch,
            "FAIL_TO_PASS": [*sorted(self.fail_to_pass)],
            "PASS_TO_PASS": [*sorted(self.pass_to_pass)],
        }


def json_lines(
    data: bytes, name: str, refuse: Callable[[str, Iterable[Problem]], None]
) -> Iterable[tuple[SourceLocation, Any]]:
    """Yield location and value of each non-blank line. Call ``refuse`` with location and problems of invalid JSON."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        place = SourceLocation(name, number, 1)
        try:
            if line.strip():
                yield place, json_record(name, number, line)
        except ConfigError as error:
            refuse(str(place), error.problems)


def chosen(records: Iterable[tuple[SourceLocation, Any]], wanted: Sequence[str]) -> list[tuple[SourceLocation, Any]]:
    """Return the records of the instances in ``wanted``, or all records if it is empty.

    Raises :class:`ConfigError` (``import-row-unknown``) for unknown instances. The records of other instances are not
    checked: a file may contain records of repositories that cannot be imported.
    """
    found = list(records)
    if not wanted:
        return found
    ids = {record.get("instance_id"): (place, record) for place, record in found if isinstance(record, dict)}
    absent = [name for name in wanted if name not in ids]
    if absent:
        raise ConfigError(f"the source has no instance {', '.join(absent)}", code="import-row-unknown")
    return [ids[name] for name in dict.fromkeys(wanted)]


def instance(location: SourceLocation, record: Any) -> Instance:
    """Return a record as an instance. Raises :class:`ConfigError` (``import-row-invalid``)."""
    if not isinstance(record, dict):
        raise bad_record(location, "expected an object")
    texts = {name: _text(location, record, name) for name in TEXTS}
    _require_match(location, "instance_id", texts["instance_id"], _INSTANCE)
    _require_match(location, "repo", texts["repo"], _REPOSITORY)
    _require_match(location, "base_commit", texts["base_commit"], _COMMIT)
    fail_to_pass, pass_to_pass = (_tests(location, record, name) for name in TEST_LISTS)
    if not fail_to_pass:
        raise bad_record(
            location, "'FAIL_TO_PASS' is empty: no test can distinguish a fixed repository from a broken one"
        )
    return Instance(
        id=texts["instance_id"],
        repository=texts["repo"],
        base_commit=texts["base_commit"],
        version=texts["version"],
        problem=texts["problem_statement"],
        hints=_hints(location, record),
        patch=texts["patch"],
        test_patch=texts["test_patch"],
        fail_to_pass=fail_to_pass,
        pass_to_pass=pass_to_pass,
        location=location,
    )


def _text(location: SourceLocation, record: dict[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not value.strip():
        hint = f"every record must have the fields {', '.join((*TEXTS, *TEST_LISTS))}"
        raise bad_record(location, f"{name!r} must be a non-empty string", hint)
    return value


def _hints(location: SourceLocation, record: dict[str, Any]) -> str:
    value = record.get("hints_text") or ""
    if not isinstance(value, str):
        raise bad_record(location, "'hints_text' must be a string")
    return value.strip()


def _require_match(location: SourceLocation, name: str, value: str, pattern: re.Pattern[str]) -> None:
    if not pattern.fullmatch(value) or ".." in value:
        raise bad_record(location, f"{name!r} contains '..', or does not match the pattern {pattern.pattern}")


def _tests(location: SourceLocation, record: dict[str, Any], name: str) -> tuple[str, ...]:
    """Return a list of test ids. The authors publish it as a string with a JSON list."""
    value = record.get(name)
    if isinstance(value, str):
        try:
            value = decode_json(value)[0]
        except UnfitJsonError as error:
            raise bad_record(location, f"{name!r} is not valid JSON: {error}") from None
    if not isinstance(value, list) or not all(isinstance(test, str) and test.strip() for test in value):
        raise bad_record(location, f"{name!r} must be a list of test ids, or a string with such a list in JSON")
    return tuple(dict.fromkeys(value))
