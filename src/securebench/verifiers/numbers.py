"""Numbers as models write them: with a currency sign, thousands separators, a unit, or at the end of an equation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from securebench.families.normalization import strict_decimal
from securebench.verifiers.final_answer import words
from securebench.verifiers.markup import plain
from securebench.verifiers.remarks import is_denied
from securebench.verifiers.vocabulary import HEDGES, NEGATIONS, NOT_UNITS, NUMBER_FILLERS, SCALES

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_UNIT_WORDS: Final = 3
"""Words of a unit after a number: ``square feet``, ``fluid ounces``."""

_NUMBER: Final = re.compile(
    r"""(?x) (?P<sign>[-+\u2212]?) (?P<currency>[$\u20ac\u00a3\u00a5]?) (?P<inner>[-\u2212]?)
    (?P<digits> [0-9]{1,3}(?:,[0-9]{3}){1,15}(?:\.[0-9]{0,50})? | [0-9]{1,50}(?:\.[0-9]{0,50})? | \.[0-9]{1,50} )
    (?P<power> e[-+]?[0-9]{1,3} )? (?P<suffix> %|\$|\u20ac )?"""
)
_UNIT: Final = re.compile(r"[^\W\d_]+(?:[/\u00b7*^-][^\W\d_]+){0,3}[\u00b2\u00b3]?|\u00b0[cfk]?")
_PERCENT: Final = re.compile(r"\bpercentages?\b|\b(?:what|which|many|in|as a|the) (?:percent\b|%)")
_MEASURE: Final = re.compile(r"\bhow (?:long|old|far|tall|high|deep|wide|heavy|fast|much time)\b")
_IRREGULAR: Final = MappingProxyType({"feet": "foot", "inches": "inch", "pennies": "penny", "centuries": "century"})
_CURRENCIES: Final = "$\u20ac\u00a3\u00a5"
_EQUALS: Final = re.compile(r"(?<![<>!=~:\u2248\u2260])=(?!=)")
_REASON: Final = re.compile(r"(?<=\S)\s+(?:because|since|as|given|due|where|when|if|using|by)\b", re.IGNORECASE)
"""Where an explanation begins: an equation after it is none of the answer's."""

_COMPUTED: Final = re.compile(r"[-+*/\u00d7\u00b7\u00f7\u2212^]")
_ASKED: Final = re.compile(r"\b(?:how many|in|number of)\s+(?:whole |full |total )?([^\W\d_]+(?:/[^\W\d_]+)?)")


@dataclass(frozen=True, slots=True)
class Number:
    """A number, and how it is written: its sign and digits without separators, its currency, whether in percent."""

    value: Fraction
    written: str
    currency: str = ""
    percent: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """What a question says of the number that it asks for: its words, and the text in which units are looked for."""

    words: frozenset[str]
    text: str

    @property
    def asks_for_percent(self) -> bool:
        """Whether the answer is a percentage."""
        return bool(_PERCENT.search(self.text))


def parse_number(word: str) -> Number | None:
    """Return the number that one ``word`` is, with its sign, separators and currency; ``None`` if it is none."""
    match = _NUMBER.fullmatch(word)
    if match is None or (match["sign"] and match["inner"]):
        return None
    sign = "-" if "-" in (given := (match["sign"] + match["inner"]).replace("\u2212", "-")) else ""
    suffix = match["suffix"] or ""
    if match["currency"] and (suffix or (given and match["power"])):
        return None
    written = sign + match["digits"].replace(",", "").removesuffix(".") + (match["power"] or "")
    decimal = strict_decimal(written)
    if decimal is None:
        return None
    currency = match["currency"] or suffix.replace("%", "")
    return Number(Fraction(decimal), written, currency, percent=suffix == "%")


def read_number(answer: str, question: Question) -> Number | None:
    """Return the one number that ``answer`` gives, among words that say nothing and before the words of a unit."""
    spoken = list(words(result_of(plain(answer))))
    numbers = [at for at, word in enumerate(spoken) if any(character.isdigit() for character in word)]
    number = parse_number(spoken[numbers[0]]) if len(numbers) == 1 else None
    if number is None:
        return None
    before, after = spoken[: numbers[0]], spoken[numbers[0] + 1 :]
    if before[-1:] == ["$"] and not number.currency:
        before, number = before[:-1], Number(number.value, number.written, "$", number.percent)
    if after[:1] in (["%"], ["percent"], ["percentage"]):
        after, number = after[1:], Number(number.value, number.written, number.currency, percent=True)
    if number.percent and not question.asks_for_percent:
        return None
    signs = set(_CURRENCIES) & set(question.text)
    if signs and number.currency and number.currency not in signs:
        return None
    silent = NUMBER_FILLERS if question.words & HEDGES else NUMBER_FILLERS | question.words - NEGATIONS - NOT_UNITS
    unit = [word for word in after if word not in silent]
    fits = set(before) <= silent and len(unit) <= MAX_UNIT_WORDS and all(map(_may_be_a_unit, unit))
    return number if fits and _is_in_the_unit_asked_for([*after, *before], question) else None


def is_unit(text: str, question: Question) -> bool:
    """Whether ``text`` after a marked number, such as a box, is the unit that it is in, as in ``[42] dollars``."""
    unit = words(text)
    fits = 0 < len(unit) <= MAX_UNIT_WORDS and all(map(_may_be_a_unit, unit))
    return fits and _is_in_the_unit_asked_for(list(unit), question)


def is_same_number(given: Number, wanted: Number, tolerance: Fraction | None) -> bool:
    """Whether ``given`` is ``wanted``: within ``tolerance``, and without one written with the same digits."""
    if given.currency and wanted.currency and given.currency != wanted.currency:
        return False
    if tolerance is None:
        return given.written == wanted.written
    return abs(given.value - wanted.value) <= tolerance


def ends_in_another_number(remark: Iterable[str], number: Number) -> bool:
    """Whether the last of the sentences of a remark gives numbers, and ``number`` is not among them."""
    for sentence in reversed(list(remark)):
        found = [parse_number(word) for word in words(_EQUALS.sub(" = ", sentence))]
        values = {one.value for one in found if one is not None}
        return bool(values) and number.value not in values
    return False


def result_of(answer: str) -> str:
    """Return what stands after the last equals sign of an equation, and any other answer as it is.

    ``x = 5`` and ``2 + 3 = 5`` give 5. ``x = 4, x = 5`` gives two values, unless the last one is computed. In
    ``4 because 3 + 2 = 5`` the equation explains another answer.
    """
    signs = list(_EQUALS.finditer(answer))
    if not signs:
        return answer
    left, right = answer[: signs[-1].start()], answer[signs[-1].end() :]
    own = re.split(r"[,;]\s", left)[-1]
    several = len(signs) > 1 and not _COMPUTED.search(own.rpartition("=")[2] or own)
    return answer if several or is_denied(left) or _REASON.search(left) else right


def _may_be_a_unit(word: str) -> bool:
    return bool(_UNIT.fullmatch(word)) and word not in NOT_UNITS | NEGATIONS | HEDGES


def _is_in_the_unit_asked_for(spoken: list[str], question: Question) -> bool:
    """Whether no word beside the number is of another scale than the question's: cents where it asks for dollars."""
    asked = {_singular(word) for word in _ASKED.findall(question.text)}
    mentioned = {_singular(word) for word in question.words} | ({"dollar"} if "$" in question.text else set())
    rates = {word for word in asked if "/" in word}
    for word in map(_singular, spoken):
        if "/" in word and rates and word not in rates:
            return False
        for scale in (scale for scale in SCALES if word in scale):
            by_context = "dollar" in scale or _MEASURE.search(question.text)
            wanted = asked & scale or (mentioned & scale if by_context else frozenset())
            if wanted and word not in wanted:
                return False
    return True


def _singular(word: str) -> str:
    return _IRREGULAR.get(word) or (word if word in {"s", "ms"} else word.removesuffix("s"))
