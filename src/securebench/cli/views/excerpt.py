"""Parts of long untrusted texts and values, made safe for a terminal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from rich.padding import Padding
from rich.text import Text

from securebench.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rich.console import Console

_INDENT: Final = 4
_MAX_VALUES: Final = 60
_MAX_VALUE: Final = 200
_MAX_HIGHLIGHTED: Final = 5_000
"""Maximum number of lines to color. More would take seconds."""


@dataclass(frozen=True, slots=True)
class ExcerptSize:
    """How much of a text to show: the number of lines, and of characters in each."""

    lines: int
    columns: int


BRIEF: Final = ExcerptSize(lines=30, columns=400)
WHOLE: Final = ExcerptSize(lines=10_000_000, columns=10_000_000)


def excerpt(text: str, size: ExcerptSize, *, tail: bool = False) -> tuple[list[str], int]:
    """Return the first lines of ``text`` (the last with ``tail``), escaped, and the number of omitted lines.

    ``size`` limits the number of lines and the length of each.
    """
    text = text.rstrip("\n")
    if not text:
        return [], 0
    parts = text.rsplit("\n", size.lines) if tail else text.split("\n", size.lines)
    left_out = parts.pop(0 if tail else -1).count("\n") + 1 if len(parts) > size.lines else 0
    return [_clipped(part, size.columns) for part in parts], left_out


def highlighted(lines: Iterable[str], lexer: str = "") -> Iterator[Text]:
    """Yield the lines, colored by Pygments' ``lexer`` if one is given."""
    lines = list(lines)
    if lexer and lines:
        from rich.syntax import Syntax

        syntax = Syntax("", lexer, theme="ansi_dark", background_color="default")
        colored = syntax.highlight("\n".join(lines[:_MAX_HIGHLIGHTED]))
        yield from colored.split("\n", allow_blank=True)[: len(lines[:_MAX_HIGHLIGHTED])]
        lines = lines[_MAX_HIGHLIGHTED:]
    yield from map(Text, lines)


def print_lines(console: Console, lines: Iterable[Text]) -> None:
    """Print lines. If the terminal is too narrow for an indented line, indent all rows into which it is wrapped.

    Without the indent, a part of an agent's text would start at the margin and could be mistaken for a heading.
    """
    for line in lines:
        if not console.is_terminal:
            console.print(line, soft_wrap=True)
            continue
        indent = min(_INDENT, len(line.plain) - len(line.plain.lstrip(" ")))
        console.print(Padding(line[indent:], (0, 0, 0, indent), expand=False))


def flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and values of nested metadata, up to a maximum number. The names are dotted: ``outer.inner``.

    Long values are cut. Empty values, ``None`` and ``False`` are left out, but not 0.
    """
    return islice(_leaves(values, prefix), _MAX_VALUES)


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        elif value or (value == 0 and value is not False):
            text = ", ".join(map(_scalar, value)) if isinstance(value, list) else _scalar(value)
            yield f"{prefix}{name}", _clipped(text, _MAX_VALUE)


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _clipped(text: str, length: int) -> str:
    return printable(text[:length]) + ("…" if len(text) > length else "")
