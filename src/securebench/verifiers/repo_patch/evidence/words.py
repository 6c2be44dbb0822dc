"""Names for tests of ours: like those of the file that they lie in, and never the same twice."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_WORDS_TEXT: Final = """
adapter alias basic batch blank border bounds branch buffer cache case chain child choice clean client column
config context copy count cycle dates decode default depth detail device digest edge empty encode entry error
event expand export extra field filter first format frame group handler header helper hidden image index inner
input item iterate join label last layout length level limit line link list local locale lookup loop marker
match merge message method mixed model module name nested node number object offset option order output
padding parent parse partial path pattern position prefix query queue range raw record reduce region remote
render repeat report request reset result retry route sample scale scope section select shape shift signal
simple size slice sort source split state step stream string style suffix table tail target text token trace
tree type union unit update value view width window wrap write zone
"""
_WORDS: Final = tuple(_WORDS_TEXT.split())
_PART = re.compile(r"[a-z]{3,}|[A-Z][a-z]{2,}")
_RANDOM = secrets.SystemRandom()


class Names:
    """Makes names. None is in a text that was passed to :meth:`avoid`."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._texts: list[str] = []

    def avoid(self, text: str) -> None:
        """Never return a name that is in ``text``."""
        self._texts.append(text)

    def like(self, name: str, others: Iterable[str]) -> str:
        """Return a name in the style of ``name``, of words that are in ``others``, and of some that are not."""
        known = [part.lower() for other in others for part in _PART.findall(other) if part.lower() != "test"]
        lead = re.match(r"_*(?:test_?)?", name)
        start = lead[0] if lead else ""
        camel = "_" not in name.strip("_") and name != name.lower()
        while True:
            chosen = [_RANDOM.choice(known if known and _RANDOM.random() < 0.5 else _WORDS) for _ in range(2)]  # noqa: PLR2004 - half of them
            chosen += [_RANDOM.choice(_WORDS)] if secrets.randbelow(2) else []
            made = start + ("".join(word.title() for word in chosen) if camel else "_".join(chosen))
            if made not in self._given and not any(made in text for text in self._texts):
                self._given.add(made)
                return made
