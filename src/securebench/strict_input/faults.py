"""Faults, located by their path inside a document, and problems, located by their position in a file."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from securebench.errors import ConfigError, PathPolicyError, Problem, SourceLocation
from securebench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

Path: TypeAlias = tuple[str | int, ...]
"""The path to a value inside a document: keys and zero-based indexes."""

MAX_PROBLEMS = 100
"""The maximum number of problems that are reported in full. The rest are only counted."""

_SHOWN = 60
_PATH_POLICY = frozenset({"path-unsafe", "mount-collision"})


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a text: 1-based line, and 1-based column in characters if it is known."""

    line: int
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the value at ``path`` or, if ``at_key`` is true, of the value's key.

    If ``position`` is ``None``, :meth:`Document.locate` determines the position.
    """

    code: str
    message: str
    path: Path = ()
    hint: str = ""
    at_key: bool = False
    position: Position | None = None

    def below(self, prefix: Path) -> Fault:
        """Return this fault with ``prefix`` put before its path."""
        return Fault(self.code, self.message, prefix + self.path, self.hint, self.at_key, self.position)


class Document(Protocol):
    """A document that knows the positions of its values."""

    def locate(self, fault: Fault) -> SourceLocation:
        """Return the location of ``fault``, as exact as possible. Never raises."""


@dataclass(slots=True)
class Problems:
    """The problems found so far, in order."""

    found: list[Problem] = field(default_factory=list)
    not_shown: int = 0

    def __bool__(self) -> bool:
        return bool(self.found)

    @property
    def full(self) -> bool:
        """Whether further problems are only counted."""
        return len(self.found) >= MAX_PROBLEMS

    def add(self, fault: Fault, source: Document) -> None:
        """Add one fault. Its location is only looked up if it will be reported."""
        if not self.full:
            self.found.append(Problem(fault.code, fault.message, source.locate(fault), fault.hint))
        else:
            self.not_shown += 1

    def extend(self, faults: Iterable[Fault], source: Document) -> None:
        """Add several faults of one source."""
        for fault in faults:
            self.add(fault, source)

    def raise_if_any(self) -> None:
        """Raise one :class:`ConfigError` with all problems, if there are any.

        It is a :class:`PathPolicyError` if one of them is an unsafe or colliding path.
        """
        if not self.found:
            return
        self.found.sort(key=_line)
        more = f"{counted(self.not_shown, 'more problem')} not shown"
        rest = [Problem("more-problems", more, hint="fix the problems above and check again")] if self.not_shown else []
        broken = any(problem.code in _PATH_POLICY for problem in self.found)
        raise (PathPolicyError if broken else ConfigError)(problems=[*self.found, *rest])


def _line(problem: Problem) -> tuple[str, int]:
    location = problem.location or SourceLocation("")
    return location.file, location.line or 0


def pointer(path: Path) -> str:
    """Return ``path`` as a JSON pointer (RFC 6901)."""
    return "".join("/" + escaped(str(part)).replace("~", "~0").replace("/", "~1") for part in path)


def name_of(path: Path) -> str:
    """Return ``path`` in readable form: ``choices[2]``, ``tests.code``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{escaped(part)}" for part in path)
    return text.removeprefix(".")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown word: the closest of ``known`` or, if none is close, all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(word[:_SHOWN].lower(), names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"expected one of: {', '.join(names)}" if names else ""


def similar(word: str, known: Collection[str], most: int = 5) -> list[str]:
    """Return up to ``most`` names in ``known`` that contain ``word``, ignoring case. If none does, return similar ones.

    ``word`` is also compared with what follows the last slash of a name, because the ids of a pack often begin alike.
    """
    if inside := sorted(name for name in known if word and word.lower() in name.lower()):
        return inside[:most]
    names = {name.rpartition("/")[2]: name for name in known} | {name: name for name in known}
    near = difflib.get_close_matches(word[:_SHOWN], names, n=most, cutoff=0.6)
    return list(dict.fromkeys(names[name] for name in near))


def shown(text: str) -> str:
    """Return ``text`` quoted for a message: escaped and shortened."""
    return f"'{escaped(text)}'"


def escaped(text: str) -> str:
    """Return ``text`` for a message: shortened, and without terminal control sequences."""
    clipped = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return clipped if clipped.isprintable() else clipped.encode("unicode_escape").decode("ascii")
