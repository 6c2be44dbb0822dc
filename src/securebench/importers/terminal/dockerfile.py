"""What must be known of a task's Dockerfile before an image is built of it: nothing of it is run here."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)\s+(.*)", re.DOTALL)
_PYTHON_IMAGE = re.compile(r"(?:.*/)?(?:python|pypy)(?::|$|@)|securebench/python:")
_PYTHON_PACKAGE = re.compile(r"\bpython3(?:\.\d+)?(?:-\w+)?\b")


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """``bases`` are the images that stages begin with; ``copied`` the sources of COPY and ADD from the context."""

    bases: tuple[str, ...]
    workdir: str
    copied: tuple[str, ...]
    has_python: bool
    user: str = ""


def read_dockerfile(text: str) -> Dockerfile:
    """Return the facts of the last stage, and the bases and copies of all."""
    bases: list[str] = []
    stages: set[str] = set()
    copied: list[str] = []
    workdir, user, has_python = "", "", False
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
        elif name in ("COPY", "ADD") and "--from=" not in rest:
            copied += _sources(rest, words)
        elif name == "RUN":
            has_python = has_python or bool(_PYTHON_PACKAGE.search(rest))
    return Dockerfile(tuple(dict.fromkeys(bases)), workdir, tuple(copied), has_python, user)


def _sources(rest: str, words: list[str]) -> list[str]:
    """Return the sources of a COPY, in either of its forms, as paths in the context."""
    if rest.lstrip().startswith("["):
        words = re.findall(r'"([^"]*)"', rest)
    plain = [posixpath.normpath(word.strip("\"'")).lstrip("/") for word in words[:-1]]
    return [word or "." for word in plain]


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    joined = ""
    for line in text.split("\n"):
        if line.lstrip().startswith("#"):
            continue
        stripped = line.rstrip()
        if stripped.endswith("\\"):
            joined += stripped[:-1] + " "
            continue
        if match := _INSTRUCTION.fullmatch(joined + stripped):
            yield match[1].upper(), match[2]
        joined = ""
