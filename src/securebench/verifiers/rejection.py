"""Find a phrase in a text in any confusable spelling, or with other characters between its letters."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

from securebench.families.skeleton import skeleton
from securebench.verifiers.final_answer import position, words
from securebench.verifiers.markup import rendered

if TYPE_CHECKING:
    from collections.abc import Iterable

_PIECE: Final = re.compile(r"[^\W_]+")
_DIGITS: Final = tuple(str.maketrans({"0": "o", "1": one}) for one in "li")
"""Digits read as the letters that they resemble: ``L0ndon``. A one is read as both ``l`` and ``i``."""

_CAPITAL_I: Final = str.maketrans(dict.fromkeys("I\u0399\u0406\u04c0\u0196\u2c92\uff29", "l"))
"""Capital letters that resemble a small ``l``: ``PoIand``."""


def says_any(phrases: Iterable[str], text: str) -> bool:
    """Whether one of ``phrases`` occurs in ``text``, either as written or as a web page would show it.

    A phrase of letters only is found between any punctuation, split by punctuation (``Lon-don``), and spelled out
    (``L o n d o n``). Any other phrase has to match word for word, because ``-5`` and ``5`` differ only in punctuation.
    """
    wanted = {skeleton(phrase) for phrase in phrases}
    spelled = {phrase for phrase in wanted if all(part.isalpha() for part in phrase.split())}
    views = {text, rendered(text)}
    if exact := [words(phrase) for phrase in wanted - spelled]:
        spoken = [words(skeleton(" ".join(view.split()))) for view in views]
        if any(position(phrase, said) >= 0 for phrase in exact for said in spoken):
            return True
    if not spelled:
        return False
    looks = {skeleton(view) for view in views | {view.translate(_CAPITAL_I) for view in views}}
    spellings = [_Spelling.of(letters) for look in looks for letters in _with_letters(look)]
    return any(spelling.holds(phrase.split()) for spelling in spellings for phrase in spelled)


def _with_letters(look: str) -> set[str]:
    """Return the variants of ``look`` with digits inside words replaced by letters."""
    if "0" not in look and "1" not in look:
        return {look}
    return {
        _PIECE.sub(lambda piece: piece[0] if piece[0].isdigit() else piece[0].translate(digits), look)  # noqa: B023
        for digits in _DIGITS
    }


@dataclass(frozen=True, slots=True)
class _Spelling:
    """The letters of a text without spaces and punctuation."""

    letters: str
    bounds: frozenset[int]
    """Where words begin and end in :attr:`letters`. A match must begin and end at a bound."""
    gaps: tuple[int, ...]
    """Where one word cannot continue: at a space, unless single letters are spelled out on both sides."""

    @classmethod
    def of(cls, look: str) -> _Spelling:
        pieces = list(_PIECE.finditer(look))
        ends = list(accumulate(len(piece[0]) for piece in pieces))
        gaps = (end for end, (left, right) in zip(ends, pairwise(pieces), strict=False) if not _goes_on(left, right))
        return cls("".join(piece[0] for piece in pieces), frozenset({0, *ends}), tuple(gaps))

    def holds(self, wanted: list[str]) -> bool:
        """Whether the ``wanted`` words occur in sequence as whole words."""
        phrase = "".join(wanted)
        ends = set(accumulate(map(len, wanted)))
        at = self.letters.find(phrase)
        while at >= 0:
            if at in self.bounds and at + len(phrase) in self.bounds:
                inside = range(bisect_right(self.gaps, at), bisect_left(self.gaps, at + len(phrase)))
                if all(self.gaps[gap] - at in ends for gap in inside):
                    return True
            at = self.letters.find(phrase, at + 1)
        return False


def _goes_on(left: re.Match[str], right: re.Match[str]) -> bool:
    """Whether one word may continue from ``left`` to ``right``: across punctuation, or letter by letter."""
    between = left.string[left.end() : right.start()]
    return " " not in between or (len(left[0]) == len(right[0]) == 1)
