"""Read facts from a task's Dockerfile without building it."""

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
"""The whole context. Also used for a source that only a build can resolve, such as one with a variable."""


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """``bases`` are the base images of the stages.

    ``copied`` are the sources that COPY, ADD and bind mounts of RUN use from the context, in any stage. A file that a
    later step removes still exists in an earlier layer, so it counts.
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
    """Return the facts of the last stage, and the bases and copies of all stages."""
    bases: list[str] = []
    stages: set[str] = set()
    copied: list[str] = []
    workdir, user, has_python = "", "", False
    if re.search(r"^#\s*escape\s*=\s*`", text, re.IGNORECASE | re.MULTILINE):
        copied.append(_WHOLE)  # another escape character: its line continuations are not parsed here
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
    """Return the sources of a COPY or ADD, in either form, that are in the context (no stage, URL or heredoc)."""
    match = _FLAGS.fullmatch(rest)
    assert match is not None  # the pattern matches any text
    flags, operands = match[1].split(), match[2].strip()
    if any(flag.startswith("--from=") for flag in flags):
        return []
    words = re.findall(r'"((?:[^"\\]|\\.)*)"', operands) if operands.startswith("[") else operands.split()
    plain = [word.strip("\"'") for word in words[:-1]]
    return [_in_context(word) for word in plain if not word.startswith("<<") and not _URL.match(word)]


def _mounted(rest: str) -> list[str]:
    """Return the sources in the context that a RUN bind-mounts."""
    found = []
    for mount in _MOUNT.findall(rest):
        options = {key: value for key, _, value in (pair.partition("=") for pair in mount.split(","))}
        if options.get("type", "bind") == "bind" and "from" not in options:
            found.append(_in_context(options.get("source") or options.get("src") or _WHOLE))
    return found


def _in_context(source: str) -> str:
    """Return a source as a path or pattern relative to the context. It cannot escape the context."""
    if "$" in source or "\\" in source or "**" in source:
        return _WHOLE
    return posixpath.normpath(f"/{source}").strip("/") or _WHOLE


def _fits(source: str, parts: list[str]) -> bool:
    """Whether a source matches ``parts`` or a parent directory. A ``*`` does not match a slash, as in Docker."""
    if source == _WHOLE:
        return True
    wanted = [pattern.replace("[^", "[!") for pattern in source.split("/")]
    return len(wanted) <= len(parts) and all(map(fnmatchcase, parts, wanted))


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    joined = ""
    for line in text.split("\n"):
        if line.lstrip().startswith("#") or (joined and not line.strip()):
            continue  # a comment or an empty line does not end a continued instruction
        stripped = line.rstrip()
        if stripped.endswith("\\"):
            joined += stripped[:-1] + " "
            continue
        if match := _INSTRUCTION.fullmatch(joined + stripped):
            yield _triggered(match[1].upper(), match[2])
        joined = ""


def _triggered(name: str, rest: str) -> tuple[str, str]:
    """Return the instruction inside an ONBUILD, which runs in derived builds; any other unchanged."""
    match = _INSTRUCTION.fullmatch(rest) if name == "ONBUILD" else None
    return (match[1].upper(), match[2]) if match else (name, rest)
