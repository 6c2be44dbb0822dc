"""Numbers as models write them: with a currency sign, thousands separators, a unit, or at the end of an equation."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from securebench.families.normalization import strict_decimal
from securebench.verifiers.final_answer import words
from securebench.verifiers.markup import plain
from securebench.verifiers.remarks import is_denied
from securebench.verifiers.vocabulary import HEDGES, NEGATIONS, NOT_UNITS, NUMBER_FILLERS, SCALES, UNIT_NAMES

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
_ATTACHED: Final = re.compile(r"(?<=\d)(?:h|hrs?|mins?|secs?|ms|[mck]m|ft|mi|[mk]g|lbs?|oz|ml|\xb0[cfk])")
"""Units that may follow a number without a space. No single letter that could be a variable or a magnitude."""

_LOOSE_GROUP: Final = re.compile(r"(?<=\d)[\u2009\u202f\xa0](?=\d{3}(?!\d))")
_POWER_OF_TEN: Final = re.compile(
    r"(?<=\d)\s?(?:[\u00d7x*]|\\times|\\cdot)\s?10\^(?:\{([-\u2212]?\d{1,3})\}|([-\u2212]?\d{1,3}))(?![\d.^])"
)
_ACCOUNTING: Final = re.compile(r"\(\s*\\?[$\u20ac\u00a3\u00a5][\d.,]+\s*\)")
"""An amount in parentheses is a loss."""

_PER_CENT: Final = re.compile(r"\bper cent\b", re.IGNORECASE)
_POWERS: Final = frozenset({"square", "cubic", "sq", "cu"})
_YEAR: Final = re.compile(r"\byear\b|\bwhen\b")
_RATE: Final = frozenset({"a", "an", "every"})
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
    result = _written_out(result_of(plain(_POWER_OF_TEN.sub(_as_exponent, _LOOSE_GROUP.sub(",", answer)))))
    spoken = _divided(list(words(result)))
    numbers = [at for at, word in enumerate(spoken) if any(character.isdigit() for character in word)]
    number = parse_number(spoken[numbers[0]]) if len(numbers) == 1 else None
    if number is None or _ACCOUNTING.fullmatch(result.strip()):
        return None
    before, after = spoken[: numbers[0]], spoken[numbers[0] + 1 :]
    if before[-1:] == ["$"] and not number.currency:
        before, number = before[:-1], replace(number, currency="$")
    if before in (["minus"], ["negative"]) and not number.written.startswith(("-", "+")):
        before, number = [], replace(number, value=-number.value, written=f"-{number.written}")
    if after[:1] in (["%"], ["percent"], ["percentage"]):
        after, number = after[1:], replace(number, percent=True)
    signs = set(_CURRENCIES) & set(question.text)
    if (number.percent and not question.asks_for_percent) or (signs and number.currency not in {"", *signs}):
        return None
    return number if _says_only(before, after, question) else None


def _says_only(before: list[str], after: list[str], question: Question) -> bool:
    """Whether what stands around a number says nothing, or is its unit."""
    silent = NUMBER_FILLERS if question.words & HEDGES else NUMBER_FILLERS | question.words - NEGATIONS - NOT_UNITS
    dated = bool(_YEAR.search(question.text))
    unit = [word for word in after if word not in silent and not (dated and word in {"ad", "ce"})]
    if dated and before[-1:] == ["by"]:
        return False
    if question.asks_for_percent:
        silent, unit_words = silent | {"percent", "percentage"}, 0
    else:
        unit_words = MAX_UNIT_WORDS
    fits = set(before) <= silent and len(unit) <= unit_words and all(map(_may_be_a_unit, unit))
    return fits and not _is_another_rate(after, question) and _is_in_the_unit_asked_for([*after, *before], question)


def _is_another_rate(after: list[str], question: Question) -> bool:
    """Whether a number is for another time than the question's: ``18 a week`` where it asks for an amount per day."""
    times = {unit_name(word) for word in question.words} & SCALES[0]
    return any(left in _RATE and unit_name(right) in SCALES[0] - times for left, right in pairwise(after))


def _as_exponent(match: re.Match[str]) -> str:
    return "e" + (match[1] or match[2]).replace("\u2212", "-")


def _written_out(text: str) -> str:
    """Return ``text`` with ``per cent`` as one word."""
    return _PER_CENT.sub("percent", text)


def _divided(spoken: list[str]) -> list[str]:
    """Return ``spoken`` with a number and the unit attached to it as two words: ``5km``."""
    return [part for word in spoken for part in _parted(word)]


def _parted(word: str) -> tuple[str, ...]:
    unit = _ATTACHED.search(word)
    return (word[: unit.start()], unit[0]) if unit and unit.end() == len(word) else (word,)


def is_unit(text: str, question: Question) -> bool:
    """Whether ``text`` after a marked number, such as a box, is the unit that it is in, as in ``[42] dollars``."""
    unit = words(plain(text))
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
    """Whether the last sentence of a remark that gives numbers does not give ``number``."""
    for sentence in reversed(list(remark)):
        if values := values_in(sentence):
            return number.value not in values
    return False


def values_in(sentence: str) -> set[Fraction]:
    """Return the values of the numbers that are words of a ``sentence``."""
    found = [parse_number(word) for word in words(_EQUALS.sub(" = ", sentence))]
    return {one.value for one in found if one is not None}


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
    asked = {unit_name(word) for word in _ASKED.findall(question.text)}
    mentioned = {unit_name(word) for word in question.words if len(word) > 1} | (
        {"dollar"} if "$" in question.text else set()
    )
    rates = {word for word in asked if "/" in word}
    measured = any(asked & scale for scale in SCALES)
    if measured and ({*spoken} & _POWERS - question.words or spoken[-1:] == ["in"]):
        return False
    for word in map(unit_name, spoken):
        if "/" in word and word not in rates and (rates or _is_rate_of(word, asked)):
            return False
        for scale in (scale for scale in SCALES if word in scale):
            by_context = scale & {"dollar", "celsius"} or _MEASURE.search(question.text)
            wanted = asked & scale or (mentioned & scale if by_context else frozenset())
            only_weight = "dollar" in scale and wanted == {"pound"}
            if wanted and word not in wanted and not only_weight:
                return False
    return "mm" not in spoken or "millimeter" in mentioned


def _is_rate_of(unit: str, asked: set[str]) -> bool:
    """Whether ``unit`` is a rate of what the question asks for: ``km/h`` where it asks for kilometres."""
    name = unit_name(unit.partition("/")[0])
    return any(name in scale and asked & scale for scale in SCALES)


def unit_name(word: str) -> str:
    """Return the name of a unit in the singular, as :data:`SCALES` has it."""
    if any(word in scale for scale in SCALES):
        return word
    return UNIT_NAMES.get(word) or UNIT_NAMES.get(word.removesuffix("s")) or word.removesuffix("s")
