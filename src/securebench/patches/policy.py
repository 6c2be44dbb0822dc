"""The policy on the paths that a candidate may change.

It is checked on the trees before and after the changes, never on the text of a patch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from securebench.patches.names import path_fault, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.patches.model import Delta, FileTree, FileVersion

MAX_SHOWN: Final = 20
"""Maximum number of violations that a result lists."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FIRST_NAMES: Final = _words(".github .gitlab ci securebench .git")
"""First components of paths that are denied by default, such as directories of CI configuration."""

NAMES: Final = _words("test tests __pycache__ .cargo site-packages .venv venv node_modules")
"""Components of paths that are denied by default, such as directories of tests and of installed libraries."""

FILES: Final = _words(
    """conftest.py pyproject.toml setup.py setup.cfg tox.ini tox.toml pytest.ini .pytest.ini pytest.toml .pytest.toml
    package.json .npmrc makefile gnumakefile build.rs cargo.toml go.mod go.sum sitecustomize.py usercustomize.py
    entry_points.txt .gitmodules .gitattributes
    package-lock.json npm-shrinkwrap.json pnpm-lock.yaml bun.lockb go.work.sum pipfile"""
)
"""File names that are denied by default, in lower case: configuration that controls what runs, and lock files."""

PATTERNS: Final = re.compile(r"requirements.*\.txt|noxfile\..*|jest\.config\..*|vitest\.config\..*|\.mocharc\..*")
SUFFIXES: Final = (".sh", ".bash", ".zsh", ".lock", ".pth", ".egg-info", ".dist-info", ".egg-link")
"""Suffixes of names that are denied by default: scripts, lock files, and what Python reads on its import path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPolicy:
    """A row's ``candidate_policy``: patterns of paths.

    ``*`` and ``?`` match within a name. ``**`` matches zero or more names, and at the end of a pattern one or more. A
    pattern that names a directory, or ends in ``/``, matches everything below that directory.
    """

    allow_paths: tuple[str, ...] = ()
    allow_sensitive_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Violation:
    """A changed path in printable form, and why it may not be changed."""

    path: str
    rule: str


def violations(delta: Delta, base: FileTree, policy: PathPolicy) -> tuple[Violation, ...]:
    """Return the forbidden changes in ``delta``, sorted by path.

    ``base`` is the tree before the changes. No policy allows new or changed symbolic links, or paths that
    :func:`path_fault` refuses, such as those into ``.git``.
    """
    found = ((path, _rule(path, new, base, policy)) for path, new in sorted(delta.items()))
    return tuple(Violation(shown(path), rule) for path, rule in found if rule)


def _rule(path: bytes, new: FileVersion | None, base: FileTree, policy: PathPolicy) -> str:
    if fault := path_fault(path):
        return f"the path {fault}"
    if new is not None and new.link and new != base.get(path):
        return "links may not be added or changed"
    text = path.decode("utf-8", "surrogateescape")
    if policy.allow_paths and not matches(text, policy.allow_paths):
        return "is outside the paths that the task allows"
    if matches(text, policy.allow_sensitive_paths):
        return ""
    return "affects which code runs or how it is judged" if is_sensitive(text) else ""


def is_sensitive(path: str) -> bool:
    """Return whether ``path`` is denied by default. Ignores case, as some tools and file systems do."""
    names = path.casefold().split("/")
    return (
        names[0] in FIRST_NAMES
        or not NAMES.isdisjoint(names)
        or names[-1] in FILES
        or PATTERNS.fullmatch(names[-1]) is not None
        or any(name.endswith(SUFFIXES) for name in names)
    )


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Return whether one of ``patterns`` matches ``path`` or one of its parent directories."""
    return any(_compiled(pattern).match(path) for pattern in patterns)


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    names = pattern.removesuffix("/").split("/")
    parts = ["(?:[^/]+/)*" if name == "**" else _name(name) + "/" for name in names[:-1]]
    last = ".+" if names[-1] == "**" else _name(names[-1])
    below = "" if names[-1] == "**" else r"(?:/.*)?"
    return re.compile("".join(parts) + last + below + r"\Z", re.DOTALL)


def _name(pattern: str) -> str:
    """Return the regular expression for ``pattern``, one component of a path pattern. ``**`` means ``*`` here."""
    pieces = re.split(r"(\*+|\?)", pattern)
    return "".join("[^/]*" if "*" in piece else "[^/]" if piece == "?" else re.escape(piece) for piece in pieces)
