"""The file with the pinned requirements of an agent from PyPI.

This file is not passed to pip, because pip accepts more than pinned requirements. If a line names a source archive by
URL or path, pip builds the archive, and so runs its code.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from securebench.images.build.derived.wheels import HASH, PIN
from securebench.strict_input.faults import Fault, Position, Problems, shown
from securebench.strict_input.files import FileSource, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MAX_BYTES: Final = 4 * 1024 * 1024
_COMMENT: Final = re.compile(r"(?:^|\s)#.*")
_REQUIREMENT: Final = re.compile(rf"{PIN}{HASH}+", re.ASCII)
_HINT: Final = "write NAME==VERSION --hash=sha256:HEX, without options, URLs, paths, extras or markers"


def read_requirements(path: Path) -> tuple[str, ...]:
    """Return the requirements in a file, each an exact version with its hashes.

    Raises the errors of :func:`read_text`, and :class:`ConfigError` (``agent-requirements``) for all invalid lines, or
    if the file has no requirements.
    """
    text, _ = read_text(path, "requirements file", _MAX_BYTES, follow=True)
    problems = Problems()
    found = []
    for number, line in _lines(text):
        if _REQUIREMENT.fullmatch(line):
            found.append(line)
        else:
            message = f"{shown(line)} is not an exact requirement with sha256 hashes"
            problems.add(Fault("agent-requirements", message, (), _HINT, position=Position(number)), FileSource(path))
    if not found and not problems:
        problems.add(Fault("agent-requirements", "the file contains no requirement", (), _HINT), FileSource(path))
    problems.raise_if_any()
    return tuple(found)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line that is not empty. A backslash at the end continues a line."""
    start = 1
    parts: list[str] = []
    for number, line in enumerate((*text.splitlines(), ""), start=1):
        if not parts:
            start = number
        plain = _COMMENT.sub("", line).rstrip()
        parts.append(plain.removesuffix("\\").strip())
        if not plain.endswith("\\"):
            if joined := " ".join(parts).strip():
                yield start, joined
            parts = []
