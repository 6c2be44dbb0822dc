"""Strict JSON: rejects texts that Python accepts but other parsers read differently.

:func:`decode_json` uses the C scanner of :mod:`json`, with hooks that detect faults. For a text
that it rejects, :func:`json_faults` parses the text again, slowly, to find the faults and their positions.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from securebench.errors import SourceLocation
from securebench.strict_input.faults import MAX_PROBLEMS, Fault, Path, Position, name_of, pointer, shown
from securebench.strict_input.files import position_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.resources import JsonValue

MAX_DEPTH = 32
"""The deepest nesting of lists and objects. No row needs more, and recursive parsers have limits of their own."""

MAX_VALUES = 50_000
"""Maximum number of values in one text. An empty list is three bytes in a file but thirty times that in memory."""

_MAX_INTEGER = 2**63
"""Integers must be at least ``-2**63`` and less than ``2**63``, so that they fit in 64 bits.

Other parsers round or reject integers outside this range.
"""

_MAX_INTEGER_LENGTH = 20

_MAX_LOCATED = 256 * 1024
""":func:`_find` searches a text for a value only if the text has at most this many characters."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_TOKEN = re.compile(r'(?P<text>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<mark>[\[\]{},:])|(?P<word>[^\s\[\]{},:"]+)')


class UnfitJsonError(ValueError):
    """A text is not valid strict JSON. :func:`json_faults` returns the reasons."""


@dataclass(frozen=True, slots=True)
class JsonSource:
    """One JSON text that starts at ``line`` of ``file``."""

    file: str
    text: str
    line: int = 1

    def locate(self, fault: Fault) -> SourceLocation:
        """Return the location of ``fault``, or of the innermost value that contains it."""
        position = fault.position or _find(self.text, self.line, fault)
        return SourceLocation(self.file, position.line, position.column, pointer(fault.path))


def decode_json(text: str, max_values: int = MAX_VALUES) -> tuple[JsonValue, int]:
    """Return the value of ``text``, and the number of values in it. Raises :class:`UnfitJsonError`."""
    try:
        value: JsonValue = _STRICT.decode(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise UnfitJsonError(json_problem(error)) from None
    count = _count(value, max_values)
    if count > max_values:
        raise UnfitJsonError("too many values, or values nested too deeply")
    return value, count


def json_problem(error: Exception) -> str:
    """Return why a text could not be parsed as JSON, in words for users."""
    match error:
        case json.JSONDecodeError():
            return f"not valid JSON at character {error.pos + 1}"
        case UnicodeDecodeError():
            return f"byte {error.start + 1} is not {error.encoding.upper()}"
        case RecursionError():
            return "nested too deeply"
    return str(error)


def json_faults(text: str, line: int = 1) -> list[Fault]:
    """Return the first faults of ``text``, which :func:`decode_json` rejected and which starts at ``line``."""
    try:
        _LENIENT.decode(text)
    except json.JSONDecodeError as error:
        position = position_at(text[: error.pos], line)
        hint = "each line must be one complete JSON object"
        return [Fault("json-syntax", f"not valid JSON: {error.msg}", hint=hint, position=position)]
    except RecursionError:
        pass  # nested too deep for this parser: the text is valid up to MAX_DEPTH, where _faults() stops
    return list(islice(_faults(text, line), MAX_PROBLEMS))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise UnfitJsonError("duplicate key")
    return made


def _number(word: str) -> int | float:
    if fault := _number_fault(word):
        raise UnfitJsonError(fault)
    return int(word) if word.lstrip("-").isdecimal() else float(word)


def _number_fault(word: str) -> str:
    if word.lstrip("-").isdecimal():
        fits = len(word) <= _MAX_INTEGER_LENGTH and -_MAX_INTEGER <= int(word) < _MAX_INTEGER
        return "" if fits else "does not fit in 64 bits"
    return "" if math.isfinite(float(word)) else "is not a finite number"


_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_number, parse_float=_number, parse_constant=_number)
_LENIENT = json.JSONDecoder(parse_int=str, parse_float=str)


def _count(value: JsonValue, max_values: int) -> int:
    """Return the number of values.

    If there are more than ``max_values`` or they are nested too deep, return a number above ``max_values``.
    """
    level, count = [value], 0
    for _ in range(MAX_DEPTH + 1):
        count += len(level)
        level = [child for node in level for child in _children(node)]
        if not level or count > max_values:
            return count
    return max_values + 1


def _children(node: JsonValue) -> list[JsonValue]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


@dataclass(frozen=True, slots=True)
class _Node:
    """A value in a JSON text, with its path and its position."""

    path: Path
    word: str  # the source text of the value; for a list or an object, only the opening bracket
    start: int  # index in the JSON text at which the value starts
    key_start: int | None  # index in the JSON text at which the value's key starts; None if the value has no key


def _nodes(text: str) -> Iterator[_Node]:
    """Yield each value of a valid JSON text, in order, until a list or object is nested deeper than ``MAX_DEPTH``."""
    path: list[str | int] = []
    key_start: int | None = None
    wants_key = False
    for match in _TOKEN.finditer(text):
        word = match[0]
        if word in "]}":
            path.pop()
            wants_key = False
        elif word == ",":
            path[-1], wants_key = _next_member(path[-1])
        elif wants_key:
            path[-1], key_start, wants_key = json.loads(word), match.start(), False
        elif word != ":":
            yield _Node(tuple(path), word, match.start(), key_start)
            key_start, wants_key = None, word == "{"
            if word in "[{":
                path.append(0 if word == "[" else "")
            if len(path) > MAX_DEPTH + 1:
                return


def _next_member(last: str | int) -> tuple[str | int, bool]:
    """Return what the last part of the path becomes after a comma, and whether a key comes next.

    ``last`` is the last part before the comma. In a list, the new part is the next index. In an object, ``last`` is
    returned, and the caller replaces it when it has read the next key.
    """
    return (last + 1, False) if isinstance(last, int) else (last, True)


def _faults(text: str, line: int) -> Iterator[Fault]:
    seen: set[Path] = set()
    for count, node in enumerate(_nodes(text)):
        for code, message in _node_faults(node, repeated=node.path in seen):
            start = node.key_start if code == "key-duplicate" else node.start
            yield Fault(code, message, node.path, position=position_at(text[:start], line))
        if count >= MAX_VALUES:
            yield Fault("too-many-values", f"more than {MAX_VALUES} values in one line", position=Position(line))
            return
        seen.add(node.path)


def _node_faults(node: _Node, *, repeated: bool) -> Iterator[tuple[str, str]]:
    name = name_of(node.path) or "the value"
    if repeated:
        yield "key-duplicate", f"duplicate key {name}"
    if len(node.path) > MAX_DEPTH:
        yield "too-deep", f"more than {MAX_DEPTH} levels of lists and objects"
    if node.word not in ("true", "false", "null", "[", "{") and (fault := _word_fault(node.word)):
        yield "json-value", f"{name} {fault}"
    if node.path and isinstance(node.path[-1], str) and not _is_unicode(node.path[-1]):
        yield "json-value", f"the key {name} contains an unpaired surrogate"


def _word_fault(word: str) -> str:
    if word.startswith('"'):
        return "" if _is_unicode(json.loads(word)) else "contains an unpaired surrogate"
    fault = _number_fault(word)
    return f"is {shown(word)}, which {fault}" if fault else ""


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _find(text: str, line: int, fault: Fault) -> Position:
    """Return the position of the value that ``fault`` is about, or of the key if the fault is at the key.

    If there is no such value, return the position of the innermost existing value on its path.
    """
    if len(text) > _MAX_LOCATED:
        return Position(line)  # searching a long text is slow
    around = [node for node in _nodes(text) if node.path == fault.path[: len(node.path)]]
    if not around:
        return Position(line)
    node = max(around, key=lambda node: len(node.path))
    at_key = fault.at_key and node.path == fault.path and node.key_start is not None
    return position_at(text[: node.key_start if at_key else node.start], line)
