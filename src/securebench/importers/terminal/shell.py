"""A parser for a small, unambiguous part of the shell language: plain commands, with line continuations."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENDS = frozenset({";", "&&", ";;"})
_PUNCTUATION = ";&|<>()"


class UnreadableScriptError(ValueError):
    """A script uses unsupported syntax, at ``line``."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One simple command as words. Redirections and pipes are separate words."""

    line: int
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """The first word."""
        return self.words[0]


def commands(script: str) -> Iterator[ShellCommand]:
    """Yield the commands of a script in order. Raises :class:`UnreadableScriptError` for unsupported syntax."""
    for number, text in _logical_lines(script):
        if "`" in text or "$(" in text or "<<" in text:
            raise UnreadableScriptError(number, f"unsupported expansion or embedded command: {text.strip()[:60]}")
        words: list[str] = []
        for word in [*_words(number, text), ";"]:
            if word not in _ENDS:
                words.append(word)
            elif words:
                yield ShellCommand(number, tuple(words))
                words = []


def _logical_lines(script: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their continuations joined, and the line number of each."""
    start, joined = 1, ""
    for number, line in enumerate(script.split("\n"), start=1):
        start = start if joined else number
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        yield start, joined + line
        joined = ""
    if joined:
        yield start, joined


def _words(number: int, text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_PUNCTUATION)
    lexer.commenters = "#"
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError as error:
        raise UnreadableScriptError(number, f"{error}: {text.strip()[:60]}") from None
