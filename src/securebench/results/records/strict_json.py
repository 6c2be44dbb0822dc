"""Parse JSON of a run directory strictly: refuse JSON that two readers could understand differently."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final

from securebench.strict_input.json_text import json_problem

MAX_DEPTH: Final = 64
"""Maximum levels of lists and objects: twice as many as a row may have, and few enough for recursive code."""

CONVERTED: Final = "its line endings were converted to CRLF, as by git's core.autocrlf: get the original file"


def strict_loads(data: bytes) -> Any:
    """Parse ASCII JSON without duplicate keys or constants such as ``NaN``.

    Raises ``ValueError`` for anything else.
    """
    try:
        return _decoder().decode(data.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise ValueError(json_problem(error)) from None


def require_written_form(data: bytes, written: bytes) -> None:
    """Raise ``ValueError`` unless ``data`` equals ``written``, the bytes that SecureBench writes for this content."""
    if data != written:
        is_converted = data.replace(b"\r\n", b"\n") == written
        raise ValueError(CONVERTED if is_converted else "it is not formatted as SecureBench writes it")


def require_shallow(value: Any) -> None:
    """Raise ``ValueError`` if lists and objects are nested in ``value`` deeper than ``MAX_DEPTH``."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"more than {MAX_DEPTH} levels of lists and objects")


@cache
def _decoder() -> json.JSONDecoder:
    """Return the decoder, which is created once because creating it takes time."""
    return json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Convert ``pairs`` to a dict. Raises ``ValueError`` for a duplicate key."""
    unique = dict(pairs)
    if len(unique) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key {twice[:80]!r}")
    return unique


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not valid JSON")
