"""Read facts from a task's Dockerfile and its ``.dockerignore`` without a build."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from securebench.dockerfile import BaseImages, instructions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.dockerfile import Instruction
    from securebench.importers.terminal.files import TaskFile
    from securebench.importers.terminal.task import TerminalTask

IGNORE_FILE: Final = ".dockerignore"
_UNSURE: Final = frozenset("[]\\")

BASE_IMAGE_PREFIX: Final = "securebench/python:"
"""The prefix of the names of SecureBench's base images.

A base image that is built from Debian packages has no ``pip`` and no ``python`` command.
"""

_PROGRAMS: Final[Mapping[str, re.Pattern[str]]] = {
    "pip": re.compile(r"(?<![\w./-])pip3?(?:\.\d+)? |-m[\"', ]+pip\b"),
    "python": re.compile(r"(?:^|[\"'`;&|(]|\b(?:sudo|exec|env|time|then|do)\s)\s*python[\"'` ]", re.MULTILINE),
}
"""For each program, a pattern that finds its use in a shell line, in the list form of a command, or in a string in a
test."""

_INSTALLED: Final = {
    "pip": re.compile(r"python3-pip|ensurepip|get-pip"),
    "python": re.compile(r"\bpython-is-python3\b"),
}
"""For each of these programs, a pattern that finds the lines with which a Dockerfile installs it."""

_PYTHON_IMAGE = re.compile(r"(?:.*/)?(?:python|pypy)(?::|$|@)|securebench/python:")
_PYTHON_PACKAGE = re.compile(r"\bpython3(?:\.\d+)?(?:-\w+)?\b")
_URL = re.compile(r"[a-z+]+://|git@")
_MOUNT = re.compile(r"--mount=(\S+)")
_WHOLE: Final = "."
"""The whole context. Also used for a source that only a build can resolve, such as one with a variable."""


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


def lacking(task: TerminalTask, facts: Dockerfile, base_images: Mapping[str, str]) -> list[str]:
    """Return a report line for each program that the task uses but may lack after its base image was replaced."""
    stand_in = next((base_images[base] for base in facts.bases[-1:] if base in base_images), "")
    if not stand_in.startswith(BASE_IMAGE_PREFIX):
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


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """What an import needs to know about a Dockerfile. ``bases`` are the base images of its stages.

    ``copied`` are the sources that COPY, ADD and bind mounts of RUN use from the context, in any stage. That includes
    files that a later step removes, because they still exist in an earlier layer.
    """

    bases: tuple[str, ...]
    workdir: str
    copied: tuple[str, ...]
    has_python: bool
    user: str = ""

    def copies(self, path: str) -> bool:
        """Whether the file ``path`` of the context, or a parent directory of it, may be copied into the image."""
        parts = path.split("/")
        return any(_fits(source, parts) for source in self.copied)


def read_dockerfile(text: str) -> Dockerfile:
    """Return the facts of the last stage, and the base images and the copied sources of all stages.

    Raises :class:`ConfigError` (``dockerfile-invalid``) for a ``FROM`` that cannot be read.
    """
    images, bases = BaseImages({}), dict[str, None]()
    workdir, user, has_python = "", "", False
    for found in instructions(text):
        image, operands = images.image(found), found.operands
        if found.name == "FROM":
            bases |= {} if image is None else {image: None}
            workdir, user, has_python = "", "", bool(_PYTHON_IMAGE.match(image or ""))
        elif found.name == "WORKDIR" and operands:
            workdir = posixpath.normpath(posixpath.join(workdir or "/", operands.strip("\"'")))
        elif found.name == "USER" and operands:
            user = operands.split()[0]
        elif found.name == "RUN":
            has_python = has_python or bool(_PYTHON_PACKAGE.search(operands))
    return Dockerfile(tuple(bases), workdir, tuple(dict.fromkeys(_copied(text))), has_python, user)


def _copied(text: str) -> Iterator[str]:
    """Yield the paths in the build context that a Dockerfile copies or mounts.

    If builders could disagree about these paths, also yield the path of the whole context.
    """
    if re.search(r"^#\s*escape\s*=\s*`", text, re.IGNORECASE | re.MULTILINE):
        yield _WHOLE  # builders disagree about where this directive takes effect
    for found in instructions(text, here_documents=False):
        if set("".join(found.flags)) & set("\"'\\"):
            yield _WHOLE  # builders decide differently where a quoted flag ends
        if found.name in ("COPY", "ADD"):
            yield from _sources(found)
        elif found.name == "RUN":
            yield from _mounted(found)


def _sources(found: Instruction) -> Iterator[str]:
    """Yield the sources of a COPY or ADD that are in the context, and not in a stage, at a URL or in a heredoc.

    The operands are plain words or a JSON list.
    """
    if found.source:
        return
    operands = found.operands
    words = re.findall(r'"((?:[^"\\]|\\.)*)"', operands) if operands.startswith("[") else operands.split()
    for word in words[:-1]:
        plain = word.strip("\"'")
        if not plain.startswith("<<") and not _URL.match(plain):
            yield _in_context(plain)


def _mounted(found: Instruction) -> Iterator[str]:
    """Yield the paths in the build context that a RUN instruction bind-mounts."""
    for mount in _MOUNT.findall(" ".join(found.flags)):
        options = {key: value for key, _, value in (pair.partition("=") for pair in mount.split(","))}
        if options.get("type", "bind") == "bind" and "from" not in options:
            yield _in_context(options.get("source") or options.get("src") or _WHOLE)


def _in_context(source: str) -> str:
    """Return a source as a path or pattern relative to the context. It cannot escape the context."""
    if "$" in source or "\\" in source or "**" in source:
        return _WHOLE
    return posixpath.normpath(f"/{source}").strip("/") or _WHOLE


def _fits(source: str, parts: list[str]) -> bool:
    """Whether a source matches the path with these parts, or a parent of it. As in Docker, ``*`` matches no slash."""
    if source == _WHOLE:
        return True
    wanted = [pattern.replace("[^", "[!") for pattern in source.split("/")]
    return len(wanted) <= len(parts) and all(map(fnmatchcase, parts, wanted))
