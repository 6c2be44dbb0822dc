"""Evaluate ``.dockerignore``, erring on the side of including files."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.importers.terminal.files import TaskFile

IGNORE_FILE: Final = ".dockerignore"
_UNSURE: Final = frozenset("[]\\")


def is_ignored(path: str, context: Mapping[str, TaskFile]) -> bool:
    """Whether the build ignores the file ``path`` of its context.

    As in Docker, the last pattern that matches the path or a parent directory decides. A pattern with a character class
    or an escape is not evaluated: it ignores nothing, and as an exception (``!``) it includes everything.
    """
    file = context.get(IGNORE_FILE)
    ignored = False
    for line in file.data.decode("utf-8", "replace").split("\n") if file else ():
        pattern = line.strip()
        if not pattern or line.startswith("#"):
            continue
        exception = pattern.startswith("!")
        pattern = posixpath.normpath(f"/{pattern.removeprefix('!').strip()}").strip("/")
        fits = exception if _UNSURE & set(pattern) else _expression(pattern).fullmatch(path) is not None
        ignored = not exception if fits else ignored
    return ignored


def _expression(pattern: str) -> re.Pattern[str]:
    """Return an expression that matches the paths of a pattern and everything below them."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    body = "".join(parts.get(piece) or re.escape(piece) for piece in pieces)
    return re.compile(f"{body}(?:/.*)?", re.DOTALL)
