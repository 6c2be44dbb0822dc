"""Strict YAML: the core schema of YAML 1.2, one document, and nothing that two readers would see differently.

Refused: anchors and aliases, tags, directives, repeated keys, keys that are not plain text, and plain words that
older readers take for something else (``no``, ``010``, ``12:30:45``, a date). Values and positions are built from the
parser's events, so that every fault of a file is found at once and nothing is ever constructed from a tag.
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
"""A manifest or tester file is a page of text. The parser is slow: this keeps it under a second or two."""

MAX_YAML_DEPTH = 16
"""Levels of lists and mappings. The deepest that a schema of ours knows is five."""

_MAX_INTEGER = 2**63
_NULL = re.compile(r"~|null|Null|NULL|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_INTEGER = re.compile(r"[-+]?[0-9]{1,20}")
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
    """The positions of a YAML file's values and keys."""

    file: str
    values: dict[Path, Position] = field(default_factory=dict)
    keys: dict[Path, Position] = field(default_factory=dict)

    def locate(self, fault: Fault) -> SourceLocation:
        """Return the place of ``fault``: at its key or value, or at the innermost value around it."""
        position = fault.position or (self.keys.get(fault.path) if fault.at_key else None)
        path = fault.path
        while position is None and path:
            position = self.values.get(path)
            path = path[:-1]
        position = position or self.values.get(()) or Position(1, 1)
        return SourceLocation(self.file, position.line, position.column, pointer(fault.path))


def parse_yaml(text: str, file: str) -> tuple[JsonValue, YamlSource, list[Fault]]:
    """Return the value of ``text``, where its parts stand, and what is wrong with it. Never raises."""
    builder = _Builder(YamlSource(file))
    value: JsonValue = None
    try:
        value = builder.document(_events(text))
    except _StopReading:
        pass
    except Exception as error:  # noqa: BLE001 - the parser raises what it likes on bad input: OverflowError, IndexError
        builder.faults.append(_syntax_fault(error))
    return value, builder.source, builder.faults


class _StopReading(Exception):  # noqa: N818 - the end of reading, not an error
    """What follows cannot be made sense of."""


def _events(text: str) -> Iterator[Any]:
    from ruamel.yaml import YAML

    yield from YAML(typ="safe", pure=True).parse(text)


def _syntax_fault(error: Exception) -> Fault:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
    position = Position(mark.line + 1, mark.column + 1) if mark else None
    return Fault("yaml-syntax", f"not valid YAML: {reason}", position=position)


class _Builder:
    """Builds plain values from parser events, and notes where each stands."""

    def __init__(self, source: YamlSource) -> None:
        self.source = source
        self.faults: list[Fault] = []

    def document(self, events: Iterator[Any]) -> JsonValue:
        next(events)  # the start of the stream
        event = next(events)
        if type(event).__name__ == "StreamEndEvent":
            return None
        if event.explicit and (event.version or event.tags):
            self._refuse(event, (), "yaml-directive", "a directive: YAML is always 1.2 here, without tags")
        value = self._value(next(events), events, ())
        next(events)  # the end of the document
        event = next(events)
        if type(event).__name__ != "StreamEndEvent":
            self._refuse(event, (), "yaml-documents", "a second document begins here: one file holds one")
        return value

    def _value(self, event: Any, events: Iterator[Any], path: Path) -> JsonValue:
        self.source.values[path] = _position(event)
        kind = type(event).__name__
        if kind == "AliasEvent":
            self._refuse(event, path, "yaml-alias", f"the alias *{event.anchor}: write the value out")
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
                event, path, "yaml-alias", f"the anchor &{event.anchor}: anchors and aliases are not used here"
            )
        if event.tag:
            self._refuse(event, path, "yaml-tag", f"the tag {shown(str(event.tag))}: tags are not used here")

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
                self._refuse(event, (*path, key), "key-duplicate", f"{name_of((*path, key))} stands here twice")
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
            self._refuse(event, path, "yaml-value", "this text holds half of a surrogate pair")

    def _refuse(self, event: Any, path: Path, code: str, message: str) -> None:
        self.faults.append(Fault(code, message, path, position=_position(event)))


def _position(event: Any) -> Position:
    return Position(event.start_mark.line + 1, event.start_mark.column + 1)


def _plain(text: str) -> JsonValue:
    """Return what a plain scalar stands for. Raises ``ValueError`` where readers of YAML disagree about it."""
    if _AMBIGUOUS.fullmatch(text):
        raise ValueError("which some YAML readers take for a bool, a date or a number in another base")
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
    value = int(text)
    if not -_MAX_INTEGER <= value < _MAX_INTEGER:
        raise ValueError("which does not fit into 64 bits")
    return value


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("which is not a finite number")
    return value
