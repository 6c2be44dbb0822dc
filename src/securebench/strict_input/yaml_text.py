"""Strict YAML: the core schema of YAML 1.2, one document, and no value that two parsers would read differently.

Rejected: anchors and aliases, tags, directives, duplicate keys, keys that are not scalars, and plain values that older
parsers read differently (``no``, ``010``, ``12:30:45``, a date). A key is always read as text. Values and
positions are built from the parser's events, so that parsing continues after most faults and no tag ever constructs an
object.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from securebench.errors import SourceLocation
from securebench.strict_input.faults import Fault, Path, Position, name_of, pointer, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.resources import JsonValue

MAX_YAML_BYTES = 64 * 1024
"""Maximum bytes of a YAML file. Manifests and tester files are shorter. Parsing this many takes two seconds."""

MAX_YAML_DEPTH = 16
"""The deepest nesting of lists and mappings. Every schema here needs fewer than half as many levels."""

_MAX_INTEGER = 2**63
_NULL = re.compile(r"~|null|Null|NULL|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_INTEGER_CHARACTERS = 20
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_AMBIGUOUS = re.compile(
    r"""(?ix) yes | no | on | off                           # a bool in YAML 1.1
    | [-+]?0[0-9][0-9_]* | [-+]?0[box][0-9a-f_]+            # another base
    | [-+]?[0-9][0-9,]*_[0-9_.]*                            # digits in groups
    | [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?      # base sixty
    | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[t\ ].*)?            # a date""",
)


@dataclass(frozen=True, slots=True)
class YamlSource:
    """The positions of the values and keys in a YAML file."""

    file: str
    values: dict[Path, Position] = field(default_factory=dict)
    keys: dict[Path, Position] = field(default_factory=dict)

    def locate(self, fault: Fault) -> SourceLocation:
        """Return the location of ``fault``: its key or value, or the innermost value that contains it."""
        position = fault.position or (self.keys.get(fault.path) if fault.at_key else None)
        path = fault.path
        while position is None and path:
            position = self.values.get(path)
            path = path[:-1]
        position = position or self.values.get(()) or Position(1, 1)
        return SourceLocation(self.file, position.line, position.column, pointer(fault.path))


def parse_yaml(text: str, file: str) -> tuple[JsonValue, YamlSource, list[Fault]]:
    """Return the value of ``text``, the positions of its parts, and its faults. Never raises."""
    builder = _Builder(YamlSource(file))
    value: JsonValue = None
    try:
        value = builder.document(_events(text))
    except _StopReading:
        pass
    except Exception as error:  # noqa: BLE001 - the parser raises various errors on bad input: OverflowError, IndexError
        builder.faults.append(_syntax_fault(error))
    return value, builder.source, builder.faults


class _StopReading(Exception):  # noqa: N818 - the end of reading, not an error
    """The rest of the document cannot be parsed."""


def _events(text: str) -> Iterator[Any]:
    from ruamel.yaml import YAML

    yield from YAML(typ="safe", pure=True).parse(text)


def _syntax_fault(error: Exception) -> Fault:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
    position = Position(mark.line + 1, mark.column + 1) if mark else None
    return Fault("yaml-syntax", f"not valid YAML: {reason}", position=position)


class _Builder:
    """Builds plain values from parser events, and records their positions."""

    def __init__(self, source: YamlSource) -> None:
        self.source = source
        self.faults: list[Fault] = []

    def document(self, events: Iterator[Any]) -> JsonValue:
        next(events)  # skip the start of the stream
        event = next(events)
        if type(event).__name__ == "StreamEndEvent":
            return None
        if event.explicit and (event.version or event.tags):
            self._refuse(
                event, (), "yaml-directive", "directives are not supported: the file is always read as YAML 1.2"
            )
        value = self._value(next(events), events, ())
        next(events)  # skip the end of the document
        event = next(events)
        if type(event).__name__ != "StreamEndEvent":
            self._refuse(event, (), "yaml-documents", "a second document begins here; the file must contain only one")
        return value

    def _value(self, event: Any, events: Iterator[Any], path: Path) -> JsonValue:
        self.source.values[path] = _position(event)
        kind = type(event).__name__
        if kind == "AliasEvent":
            self._refuse(event, path, "yaml-alias", f"alias *{event.anchor} is not supported: repeat the value here")
            return None
        self._refuse_properties(event, path)
        if kind == "ScalarEvent":
            return self._scalar(event, path)
        if len(path) >= MAX_YAML_DEPTH:
            self._refuse(event, (), "too-deep", f"more than {MAX_YAML_DEPTH} levels of lists and mappings")
            raise _StopReading
        return self._sequence(events, path) if kind == "SequenceStartEvent" else self._mapping(events, path)

    def _refuse_properties(self, event: Any, path: Path) -> None:
        if event.anchor:
            self._refuse(
                event, path, "yaml-alias", f"anchor &{event.anchor} is not supported: repeat the value at each place"
            )
        if event.tag:
            self._refuse(event, path, "yaml-tag", f"tag {shown(str(event.tag))} is not supported")

    def _sequence(self, events: Iterator[Any], path: Path) -> JsonValue:
        made: list[JsonValue] = []
        for event in events:
            if type(event).__name__ == "SequenceEndEvent":
                break
            made.append(self._value(event, events, (*path, len(made))))
        return made

    def _mapping(self, events: Iterator[Any], path: Path) -> JsonValue:
        made: dict[str, JsonValue] = {}
        for event in events:
            if type(event).__name__ == "MappingEndEvent":
                break
            key = self._key(event, path)
            if key in made:
                self._refuse(event, (*path, key), "key-duplicate", f"duplicate key {name_of((*path, key))}")
            self.source.keys[*path, key] = _position(event)
            made[key] = self._value(next(events), events, (*path, key))
        return made

    def _key(self, event: Any, path: Path) -> str:
        if type(event).__name__ != "ScalarEvent":
            self._refuse(event, path, "yaml-key", "a key must be plain text")
            raise _StopReading
        self._refuse_properties(event, path)
        self._refuse_surrogates(event, path)
        return str(event.value)

    def _scalar(self, event: Any, path: Path) -> JsonValue:
        text: str = event.value
        self._refuse_surrogates(event, path)
        if event.style is not None:
            return text
        try:
            return _plain(text)
        except ValueError as error:
            name = name_of(path) or "the value"
            hint = f'put it in quotes if it is text: "{text}"' if text.isprintable() else ""
            self.faults.append(Fault("yaml-value", f"{name} is {shown(text)}, {error}", path, hint))
            return None

    def _refuse_surrogates(self, event: Any, path: Path) -> None:
        if any("\ud800" <= character <= "\udfff" for character in event.value):
            self._refuse(event, path, "yaml-value", "this text contains an unpaired surrogate")

    def _refuse(self, event: Any, path: Path, code: str, message: str) -> None:
        self.faults.append(Fault(code, message, path, position=_position(event)))


def _position(event: Any) -> Position:
    return Position(event.start_mark.line + 1, event.start_mark.column + 1)


def _plain(text: str) -> JsonValue:
    """Return the value of a plain scalar.

    Raises ``ValueError`` if YAML parsers disagree about it, or if it is a number that is not finite or is too large.
    """
    if _AMBIGUOUS.fullmatch(text):
        raise ValueError("which YAML parsers read in different ways: as text, a bool, a date or a number")
    if _NOT_FINITE.fullmatch(text):
        raise ValueError("which is not a finite number")
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text) or _FALSE.fullmatch(text):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        return _float(text)
    return text


def _integer(text: str) -> int:
    value = int(text) if len(text) <= _INTEGER_CHARACTERS else _MAX_INTEGER  # int() refuses thousands of digits
    if not -_MAX_INTEGER <= value < _MAX_INTEGER:
        raise ValueError("which does not fit in 64 bits")
    return value


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("which is not a finite number")
    return value
