"""Find what a question reveals about the number that it asks for: its unit, and words that are filler in an answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from securebench.families.normalization import normalize_text
from securebench.verifiers.text.vocabulary import (
    APPROXIMATIONS,
    COMPARISONS,
    COPULAS,
    CURRENCIES,
    DISBELIEF,
    DOUBTS,
    HEDGES,
    IRREGULAR,
    NEGATIONS,
    NOT_UNITS,
    NUMBER_FILLERS,
    NUMBER_WORDS,
    OPERATIONS,
    PERIODS,
    RATES,
    SCALES,
    SHARED_WORDS,
    UNIT_NAMES,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_UNIT_WORDS: Final = 3
"""The maximum number of words in the unit after a number: ``square feet``, ``fluid ounces``."""

_LETTERS: Final = re.compile(r"[^\W\d_]+")
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+")
_UNIT: Final = re.compile(r"[^\W\d_]+(?:[/\u00b7*^-][^\W\d_]+){0,3}[\u00b2\u00b3]?|\u00b0[cfk]?")
_PERCENT: Final = re.compile(r"\bpercentages?\b|\b(?:what|which|many|in|as a|the) (?:percent\b|%)")
_MEASURE: Final = re.compile(r"\bhow (?:long|old|far|tall|high|deep|wide|heavy|fast|much time)\b")
_ASKED: Final = re.compile(
    r"\b(?:how many|in|number of)\s+(?:whole |full |total |square |cubic )?([^\W\d_]+(?:/[^\W\d_]+)?)"
)
_YEAR: Final = re.compile(r"\byear\b|\bwhen\b")
_ROUNDED: Final = re.compile(r"\b(?:round(?:ed)?|nearest|approximate(?:ly)?|about how|roughly|estimated?|decimals?)\b")
_MONEY: Final = next(scale for scale in SCALES if "dollar" in scale)
_POWERS: Final = frozenset({"square", "cubic", "sq", "cu"})
_DOUBTFUL: Final = (DISBELIEF | (DOUBTS - SHARED_WORDS)) - HEDGES
"""Words of doubt. After a number, such a word is a unit (``1 mistake``) only if the question contains the word."""
_NEVER_UNITS: Final = NOT_UNITS | NEGATIONS | HEDGES | _DOUBTFUL
"""Words that are not the unit of a number before them, unless :meth:`Question.counts` accepts them."""

_SUFFIX: Final = re.compile(r"(?:'s|ing|ies|ed|es|s|e|y)$")
_SHORTEST_STEM: Final = 3


@dataclass(frozen=True)
class Question:
    """The question of a task, and facts about its accepted answers.

    Together, they decide which words an answer may contain besides a number.
    """

    raw: str
    rounded: bool = False
    """Whether an accepted answer is not an integer, or has a tolerance."""
    percent: bool = False
    """Whether an accepted answer has a percent sign."""
    is_for_a_number: bool = False
    """Whether an accepted answer is a number. Only then are number words read as numbers."""

    @cached_property
    def text(self) -> str:
        """The normalized question."""
        return normalize_text(self.raw).replace("\u2019", "'")

    @cached_property
    def words(self) -> frozenset[str]:
        """The words in the question. A word is a sequence of letters."""
        return frozenset(_LETTERS.findall(self.text))

    @cached_property
    def asking(self) -> tuple[str, ...]:
        """The words of the sentence that asks: the last sentence with a question mark, or else the last sentence."""
        sentences = _SENTENCE.split(self.text)
        asking = [sentence for sentence in sentences if sentence.endswith("?")]
        return tuple(_LETTERS.findall((asking or sentences)[-1]))

    @cached_property
    def asks_for_percent(self) -> bool:
        """Whether the answer is a percentage."""
        return self.percent or bool(_PERCENT.search(self.text))

    @cached_property
    def is_approximate(self) -> bool:
        """Whether ``approximately 3.14`` is as good an answer as ``3.14``, because the answer is a rounded value."""
        return self.rounded or bool(_ROUNDED.search(self.text))

    @cached_property
    def _dated(self) -> bool:
        return bool(_YEAR.search(self.text))

    @cached_property
    def _periods(self) -> frozenset[str]:
        """The periods for the adjectives in the question, such as ``month`` for ``monthly``."""
        return frozenset(PERIODS[word] for word in self.words if word in PERIODS)

    @cached_property
    def _stems(self) -> frozenset[str]:
        """The stems of words that an answer may repeat: none if the question offers a choice (``5 or 6?``)."""
        return frozenset() if self.words & HEDGES else stems(self.words - NEGATIONS - NOT_UNITS)

    @cached_property
    def _asked(self) -> frozenset[str]:
        """The words in :attr:`asking` that change the meaning of a number, such as ``more``.

        An answer may repeat these words. It must not use other words of this kind.
        """
        if self.words & HEDGES:
            return frozenset()
        asked = frozenset(word for word in NOT_UNITS - NUMBER_WORDS - OPERATIONS if {word, f"{word}s"} & {*self.asking})
        return asked | {"than"} if asked & COMPARISONS else asked

    def is_silent(self, word: str) -> bool:
        """Return whether ``word`` adds nothing to a number: it is filler, or any form of a word of the question."""
        if word in NUMBER_FILLERS or (self.asks_for_percent and word in {"percent", "percentage"}):
            return True
        if self.is_approximate and word in APPROXIMATIONS:
            return True
        parts = _LETTERS.findall(word.removesuffix("'s"))
        return word not in NOT_UNITS | NEGATIONS and bool(parts) and all(stem(part) in self._stems for part in parts)

    def counts(self, word: str) -> bool:
        """Return whether ``word`` can express doubt and is in the question, in any form: ``mistake``, ``mistakes``."""
        return word in _DOUBTFUL and self.is_silent(word)

    def says_only(self, before: list[str], after: list[str], currency: str = "") -> bool:
        """Return whether the words around a number are filler or its unit. ``currency`` is its currency sign."""
        if before and unit_name(before[-1]) in _MONEY:
            *before, currency = before
        if before[-1:] == ["by"] and (self._dated or "by" not in self.asking):
            return False  # "Dividing by 4" is a step.
        if COPULAS & {*before}:
            # Before "is", the sentence names the subject of the question: "the remainder is", "pi is".
            end = max(at for at, word in enumerate(before) if word in COPULAS)
            before = [word for at, word in enumerate(before) if at > end or word not in self._asked - COMPARISONS]
        before = [word for at, word in enumerate(before) if not self._is_for_each(word, before[at + 1 :])]
        tail = self._without_rates(after)
        unit = [word for at, word in enumerate(tail) if not self._is_silent_after(word, tail[at + 1 :])]
        units = 0 if self.asks_for_percent else MAX_UNIT_WORDS
        verb = next((at for at, word in enumerate(tail) if word in COPULAS), len(tail))
        return (
            all(map(self.is_silent, before))
            and len(unit) <= units
            and all(map(may_be_a_unit, unit))
            and not set(tail[verb:]) & set(unit)
            and not self._is_another_rate(after)
            and not self._counts_containers(after)
            and self.is_in_the_unit_asked_for([*tail, *before, *([currency] if currency else [])])
        )

    def _is_silent_after(self, word: str, rest: list[str]) -> bool:
        """Return whether ``word`` can be ignored in the text after a number.

        For example, ``not`` in ``40 are not red`` can be ignored if the question also has ``not red``.
        """
        dated = self._dated and word in {"ad", "ce"}
        repeated = word in NEGATIONS and (word, *rest[:1]) in {*pairwise(self.asking)}
        return dated or repeated or word in self._asked or self.is_silent(word)

    def _is_for_each(self, word: str, rest: list[str]) -> bool:
        """Return whether ``word`` and the next word repeat the question's rate: ``each ticket`` for ``per ticket``."""
        return word in RATES and any((rate, *rest[:1]) in {*pairwise(self.asking)} for rate in RATES)

    def _without_rates(self, after: list[str]) -> list[str]:
        """Return ``after`` without the question's rates, such as ``per week`` if the question has ``a week``."""
        asked = {unit_name(right) for left, right in pairwise(self.asking) if left in RATES} | self._periods
        rates = {at for at, (left, right) in enumerate(pairwise(after)) if left in RATES and unit_name(right) in asked}
        return [word for at, word in enumerate(after) if not {at, at - 1} & rates]

    def _counts_containers(self, after: list[str]) -> bool:
        """Return whether a number counts groups of the things that the question asks for: ``8 pairs of legs``."""
        asked = {unit_name(word) for word in _ASKED.findall(self.text)}
        places = (at for at, word in enumerate(after[1:], 1) if word == "of" and after[at - 1] not in self.words)
        return any(unit_name(word) in asked for at in places for word in after[at:])

    def _is_another_rate(self, after: list[str]) -> bool:
        """Return whether ``after`` has a rate whose period is not in the question: ``18 a week`` for a daily rate."""
        times = ({unit_name(word) for word in self.words} & SCALES[0]) | self._periods
        return any(left in RATES and unit_name(right) in SCALES[0] - times for left, right in pairwise(after))

    def is_in_the_unit_asked_for(self, spoken: Iterable[str]) -> bool:
        """Return whether the words beside a number (``spoken``) fit the unit that the question asks for.

        For example, cents do not fit a question that asks for dollars.
        """
        spoken = list(spoken)
        asked = {unit_name(word) for word in _ASKED.findall(self.text)}
        mentioned = {unit_name(word) for word in self.words if len(word) > 1} | {
            unit_name(sign) for sign in CURRENCIES if sign in self.text
        }
        rates = {word for word in asked if "/" in word}
        measured = any(asked & scale for scale in SCALES)
        if measured and ({*spoken} & _POWERS - self.words or spoken[-1:] == ["in"]):
            return False
        for word in map(unit_name, spoken):
            if "/" in word and word not in rates and (rates or _is_rate_of(word, asked)):
                return False
            for scale in (scale for scale in SCALES if word in scale):
                by_context = scale & {"dollar", "celsius"} or _MEASURE.search(self.text)
                wanted = asked & scale or (mentioned & scale if by_context else frozenset())
                only_weight = "dollar" in scale and wanted == {"pound"} and "\u00a3" not in self.text
                if wanted and word not in wanted and not only_weight:
                    return False
        return "mm" not in spoken or "millimeter" in mentioned


def stem(word: str) -> str:
    """Return an approximate common stem of inflected forms: ``stop`` and ``stopped``, ``buy`` and ``bought``.

    An irregular form is first replaced by its verb. If the stem would be shorter than :data:`_SHORTEST_STEM` letters,
    nothing is cut off.
    """
    whole = IRREGULAR.get(word, word)
    base = _SUFFIX.sub("", whole).rstrip("eiy")
    if len(base) < _SHORTEST_STEM:
        return whole
    return base[:-1] if len(base) > _SHORTEST_STEM and base[-1] == base[-2] else base


@lru_cache(maxsize=64)
def stems(words: frozenset[str]) -> frozenset[str]:
    """Return the :func:`stem` of each word."""
    return frozenset(map(stem, words))


def may_be_a_unit(word: str) -> bool:
    """Return whether ``word`` after a number may be part of its unit."""
    return bool(_UNIT.fullmatch(word)) and word not in _NEVER_UNITS


def unit_name(word: str) -> str:
    """Return the singular name of a unit, as in :data:`SCALES`."""
    if any(word in scale for scale in SCALES):
        return word
    return UNIT_NAMES.get(word) or UNIT_NAMES.get(word.removesuffix("s")) or word.removesuffix("s")


def _is_rate_of(unit: str, asked: set[str]) -> bool:
    """Return whether ``unit`` is a rate of the unit that the question asks for: ``km/h`` if it asks for kilometers."""
    name = unit_name(unit.partition("/")[0])
    return any(name in scale and asked & scale for scale in SCALES)
