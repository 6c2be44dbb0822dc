"""Names for added tests: unique, and like the other names in their file."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_WORDS_TEXT: Final = """
adapter alias basic batch blank border bounds branch buffer cache case chain child choice clean client column config
context copy count cycle dates decode default depth detail device digest edge empty encode entry error event expand
export extra field filter first format frame group handler header helper hidden image index inner input item iterate
join label last layout length level limit line link list local locale lookup loop marker match merge message method
mixed model module name nested node number object offset option order output padding parent parse partial path
pattern position prefix query queue range raw record reduce region repeat report request reset result retry route
sample scale scope section select shape shift signal simple size slice sort source split state step stream string
style suffix table tail target text token trace tree type union unit update value view width window wrap write zone
"""
WORDS: Final = tuple(_WORDS_TEXT.split())
"""Common words. They are mixed with the words of a file. If the file has no words, only common words are used."""

_PART = re.compile(r"[a-z]{3,}|[A-Z][a-z]{2,}")
_RANDOM = secrets.SystemRandom()
_OWN_WORDS: Final = 0.85
"""The probability of choosing a word of the file instead of a common one."""


class NameMaker:
    """Generates names. A name never occurs in a text that was passed to :meth:`avoid`."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._texts: list[str] = []

    def avoid(self, text: str) -> None:
        """Never generate a name that occurs in ``text``."""
        self._texts.append(text)

    def like(self, name: str, words: Sequence[str]) -> str:
        """Return a name that differs from ``name`` in one word, as names of tests in one file do.

        In most cases the new word is one of ``words``, the words of the file, so that both names fit the tested code
        equally well. If ``name`` has only one word, that word is replaced or a second one is added.
        """
        lead = re.match(r"_*(?:[Tt]est_?)?", name)
        start = lead[0] if lead else ""
        rest = name[len(start) :]
        parts = list(_PART.finditer(rest))
        while True:
            word = _RANDOM.choice(words if words and _RANDOM.random() < _OWN_WORDS else WORDS)
            part = _RANDOM.choice(parts) if parts else None
            if part is None or (len(parts) == 1 and secrets.randbelow(2)):
                made = start + self._joined(rest, word, camel="_" not in name.strip("_") and name != name.lower())
            else:
                like = word.title() if part[0][0].isupper() else word
                made = start + rest[: part.start()] + like + rest[part.end() :]
            if made not in self._given and not any(made in text for text in self._texts):
                self._given.add(made)
                return made

    @staticmethod
    def _joined(rest: str, word: str, *, camel: bool) -> str:
        """Return ``rest``, the name of a test without the prefix ``test_``, with a word added before or after it."""
        if camel:
            return rest + word.title()
        pieces = [piece for piece in (rest, word) if piece]
        return "_".join(pieces if secrets.randbelow(2) else reversed(pieces))
