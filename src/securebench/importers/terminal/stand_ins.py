"""What an image that replaces a task's base image lacks: the original may have ``pip`` and ``python``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from securebench.dockerfile import instructions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.importers.terminal.dockerfile import Dockerfile
    from securebench.importers.terminal.files import TaskFile
    from securebench.importers.terminal.task import TerminalTask

OURS: Final = "securebench/python:"
"""This project's base image. Built from Debian's packages, it has ``python3`` and neither of the following."""

_PROGRAMS: Final[Mapping[str, re.Pattern[str]]] = {
    "pip": re.compile(r"(?<![\w./-])pip3?(?:\.\d+)? |-m[\"', ]+pip\b"),
    "python": re.compile(r"(?:^|[\"'`;&|(]|\b(?:sudo|exec|env|time|then|do)\s)\s*python[\"'` ]", re.MULTILINE),
}
"""How a program is used in a shell line, in the list form of a command, or in a text of a test."""

_INSTALLED: Final = {
    "pip": re.compile(r"python3-pip|ensurepip|get-pip"),
    "python": re.compile(r"\bpython-is-python3\b"),
}
"""The lines with which a Dockerfile installs one of them itself."""


def lacking(task: TerminalTask, facts: Dockerfile, base_images: Mapping[str, str]) -> list[str]:
    """Return what the report says of programs that the task uses and the image in place of its base lacks."""
    stand_in = next((base_images[base] for base in facts.bases[-1:] if base in base_images), "")
    if not stand_in.startswith(OURS):
        return []
    steps = "\n".join(found.operands for found in instructions(task.dockerfile) if found.name == "RUN")
    texts = {"its Dockerfile": steps, "its tests": _text(task.tests), "its solution": _text(task.solution)}
    found = []
    for program, used in _PROGRAMS.items():
        places = [place for place, text in texts.items() if used.search(text)]
        if places and not _INSTALLED[program].search(steps):
            where = "has it only if built from a registry's image: see docs/how-to/import-a-benchmark.md"
            found.append(f"{program}, used by {' and '.join(places)}: {stand_in} {where}")
    return found


def _text(files: Mapping[str, TaskFile]) -> str:
    return "\n".join(file.data.decode("utf-8", "replace") for file in files.values())
