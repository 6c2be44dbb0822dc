"""What must be known of a task's Dockerfile before an image is built of it: nothing of it is run here."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)\s+(.*)", re.DOTALL)
_PYTHON_IMAGE = re.compile(r"(?:.*/)?(?:python|pypy)(?::|$|@)|securebench/python:")
_PYTHON_PACKAGE = re.compile(r"\bpython3(?:\.\d+)?(?:-\w+)?\b")
_FLAGS = re.compile(r"\s*((?:--\S+\s+)*)(.*)", re.DOTALL)
_URL = re.compile(r"[a-z+]+://|git@")
_MOUNT = re.compile(r"--mount=(\S+)")
_WHOLE: Final = "."
"""The whole context: also what is said of a source that only a build can tell, such as one with a variable."""


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """``bases`` are the images that stages begin with.

    ``copied`` are what COPY, ADD and bind mounts of RUN take from the context, in any stage: a file that a later step
    removes stays in the layer that brought it, so it counts.
    """

    bases: tuple[str, ...]
    workdir: str
    copied: tuple[str, ...]
    has_python: bool
    user: str = ""

    def copies(self, path: str) -> bool:
        """Whether the file ``path`` of the context may come into the image: itself, or a directory above it."""
        parts = path.split("/")
        return any(_fits(source, parts) for source in self.copied)


def read_dockerfile(text: str) -> Dockerfile:
    """Return the facts of the last stage, and the bases and copies of all."""
    bases: list[str] = []
    stages: set[str] = set()
    copied: list[str] = []
    workdir, user, has_python = "", "", False
    if re.search(r"^#\s*escape\s*=\s*`", text, re.IGNORECASE | re.MULTILINE):
        copied.append(_WHOLE)  # lines are joined by other rules than those below
    for name, rest in _instructions(text):
        words = [word for word in rest.split() if not word.startswith("--")]
        if name == "FROM" and words:
            if words[0] not in stages:
                bases.append(words[0])
            if len(words) > 2 and words[1].upper() == "AS":  # noqa: PLR2004 - FROM image AS name
                stages.add(words[2])
            workdir, user, has_python = "", "", bool(_PYTHON_IMAGE.match(words[0]))
        elif name == "WORKDIR" and words:
            workdir = posixpath.normpath(posixpath.join(workdir or "/", rest.strip().strip("\"'")))
        elif name == "USER" and words:
            user = words[0]
        elif name in ("COPY", "ADD"):
            copied += _sources(rest)
        elif name == "RUN":
            copied += _mounted(rest)
            has_python = has_python or bool(_PYTHON_PACKAGE.search(rest))
    return Dockerfile(tuple(dict.fromkeys(bases)), workdir, tuple(copied), has_python, user)


def _sources(rest: str) -> list[str]:
    """Return what a COPY or ADD, in either of its forms, takes from the context: not from a stage, URL or heredoc."""
    match = _FLAGS.fullmatch(rest)
    assert match is not None  # any text does
    flags, operands = match[1].split(), match[2].strip()
    if any(flag.startswith("--from=") for flag in flags):
        return []
    words = re.findall(r'"((?:[^"\\]|\\.)*)"', operands) if operands.startswith("[") else operands.split()
    plain = [word.strip("\"'") for word in words[:-1]]
    return [_in_context(word) for word in plain if not word.startswith("<<") and not _URL.match(word)]


def _mounted(rest: str) -> list[str]:
    """Return what the bind mounts of a RUN show of the context."""
    found = []
    for mount in _MOUNT.findall(rest):
        options = {key: value for key, _, value in (pair.partition("=") for pair in mount.split(","))}
        if options.get("type", "bind") == "bind" and "from" not in options:
            found.append(_in_context(options.get("source") or options.get("src") or _WHOLE))
    return found


def _in_context(source: str) -> str:
    """Return a source as a path, or pattern, relative to the context. It cannot lead out of that."""
    if "$" in source or "\\" in source or "**" in source:
        return _WHOLE
    return posixpath.normpath(f"/{source}").strip("/") or _WHOLE


def _fits(source: str, parts: list[str]) -> bool:
    """Whether a source is ``parts``, or a directory above it. A ``*`` ends at a slash, as it does in Docker."""
    if source == _WHOLE:
        return True
    wanted = [pattern.replace("[^", "[!") for pattern in source.split("/")]
    return len(wanted) <= len(parts) and all(map(fnmatchcase, parts, wanted))


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    joined = ""
    for line in text.split("\n"):
        if line.lstrip().startswith("#") or (joined and not line.strip()):
            continue  # neither a comment nor an empty line ends an instruction that goes on
        stripped = line.rstrip()
        if stripped.endswith("\\"):
            joined += stripped[:-1] + " "
            continue
        if match := _INSTRUCTION.fullmatch(joined + stripped):
            yield _triggered(match[1].upper(), match[2])
        joined = ""


def _triggered(name: str, rest: str) -> tuple[str, str]:
    """Return the instruction that an ONBUILD holds for images made of this one; any other as it is."""
    match = _INSTRUCTION.fullmatch(rest) if name == "ONBUILD" else None
    return (match[1].upper(), match[2]) if match else (name, rest)
