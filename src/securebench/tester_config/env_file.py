r"""Env files: ``KEY=VALUE`` lines, read and never executed. No message shows a value.

A line is blank, a ``#`` comment, or an assignment, optionally after ``export``. A value is bare (a ``#`` that begins it
or follows white space starts a comment), in single quotes (literal) or in double quotes (with the escapes ``\n``,
``\t``, ``\r``, ``\"``, ``\\`` and ``\$``). Nothing is expanded, and no value spans lines.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from securebench.strict_input.faults import Fault, Position, Problems
from securebench.strict_input.files import FileSource, read_text

if TYPE_CHECKING:
    from pathlib import Path

MAX_ENV_BYTES: Final = 64 * 1024
"""Maximum bytes of an env file, which has a few keys and tokens."""

_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)", re.ASCII)
_SINGLE = re.compile(r"'(?P<text>[^']*)'\s*(?:#.*)?")
_DOUBLE = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"\s*(?:#.*)?')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPE_HINT: Final = r"""use only \n, \t, \r, \", \\ and \$, or single quotes, in which '\' has no special meaning"""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$"}


def load_env_file(path: Path) -> dict[str, str]:
    """Return the variables of an env file, in order. Raises :class:`ConfigError` with each invalid line."""
    text, _ = read_text(path, "env file", MAX_ENV_BYTES, follow=True)
    problems = Problems()
    variables: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, value, message, hint = _parse(line.rstrip("\r"))
        if not message and name in variables:
            message, hint = f"{name} is set twice", "remove one of the lines"
        if message:
            problems.add(Fault("env-line", message, hint=hint, position=Position(number)), FileSource(path))
        variables[name] = value
    problems.raise_if_any()
    return variables


class _Line(NamedTuple):
    """An assignment, or an error message and its hint."""

    name: str
    value: str
    message: str = ""
    hint: str = ""


def _parse(line: str) -> _Line:
    match = _ASSIGNMENT.fullmatch(line)
    if match is None:
        hint = "write KEY=VALUE, with letters, digits and '_' in KEY and no space before '='; begin a comment with '#'"
        return _Line("", "", "this line is not KEY=VALUE", hint)
    name, raw = match["name"], match["value"].lstrip()
    if quoted := _SINGLE.fullmatch(raw):
        return _Line(name, quoted["text"])
    if quoted := _DOUBLE.fullmatch(raw):
        unknown = [escape for escape in _ESCAPE.findall(quoted["text"]) if escape not in _ESCAPES]
        message = f"the value of {name} contains an invalid escape sequence" if unknown else ""
        value = _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], ""), quoted["text"])
        return _Line(name, value, message, _ESCAPE_HINT if message else "")
    if raw[:1] in ("'", '"'):
        message = f"the value of {name} has an unclosed quote, or text after the closing quote"
        return _Line(name, "", message, "close the quote at the end of the value, on the same line")
    return _Line(name, _bare(raw))


def _bare(raw: str) -> str:
    """Return an unquoted value without its comment, which begins with a ``#`` at the start or after white space."""
    return re.split(r"(?:^|\s)#", raw, maxsplit=1)[0].strip()
