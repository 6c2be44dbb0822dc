"""The little of a shell script that can be read for certain: plain commands, a line or several each."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENDS = frozenset({";", "&&", ";;"})
_PUNCTUATION = ";&|<>()"


class UnreadableScriptError(ValueError):
    """A script has a form that is not recognised. ``line`` is where."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One simple command, as words: redirections and pipes stand in it as words of their own."""

    line: int
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its first word."""
        return self.words[0]


def commands(script: str) -> Iterator[ShellCommand]:
    """Yield the commands of a script in order. Raises :class:`UnreadableScriptError` for what is not plain."""
    for number, text in _logical_lines(script):
        if "`" in text or "$(" in text or "<<" in text:
            raise UnreadableScriptError(number, f"it computes or embeds something: {text.strip()[:60]}")
        words: list[str] = []
        for word in [*_words(number, text), ";"]:
            if word not in _ENDS:
                words.append(word)
            elif words:
                yield ShellCommand(number, tuple(words))
                words = []


def _logical_lines(script: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their continuations joined, and where each begins."""
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
