"""Parse numbers as models write them: with currency signs, separators or units, at the end of an equation, or in words.

Numbers in words are whole and English: ``forty-two``, ``two hundred and six``, ``eight (8)``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from securebench.families.normalization import strict_decimal
from securebench.verifiers.text.questions import MAX_UNIT_WORDS, may_be_a_unit
from securebench.verifiers.text.vocabulary import CIRCUMSTANCES, COPULAS, CURRENCIES, NUMBER_WORDS, RATES
from securebench.verifiers.text.wording import is_denied, plain, words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.verifiers.text.questions import Question

_NUMBER: Final = re.compile(
    rf"""(?x) (?P<sign>[-+\u2212]?) (?:(?:us)?(?P<currency>[{CURRENCIES}]))? (?P<inner>[-\u2212]?)
    (?P<digits> [0-9]{{1,3}}(?:,[0-9]{{3}}){{1,15}}(?:\.[0-9]{{0,50}})? | [0-9]{{1,50}}(?:\.[0-9]{{0,50}})?
    | \.[0-9]{{1,50}} ) (?P<power> e[-+]?[0-9]{{1,3}} )? (?P<suffix> [%{CURRENCIES}] )?""",
    re.IGNORECASE,
)
_ATTACHED: Final = re.compile(r"(?<=\d)(?:h|hrs?|mins?|secs?|ms|[mck]m|ft|mi|[mk]g|lbs?|oz|ml|\xb0[cfk])")
"""Units that may follow a number without a space. ``h`` is the only single letter.

Other letters may be variables or magnitudes.
"""

_LOOSE_GROUP: Final = re.compile(r"(?<=\d)[\u2009\u202f\xa0](?=\d{3}(?!\d))")
_POWER_OF_TEN: Final = re.compile(
    r"(?<=\d)\s?(?:[\u00d7x*]|\\times|\\cdot)\s?10\^(?:\{([-\u2212]?\d{1,3})\}|([-\u2212]?\d{1,3}))(?![\d.^])"
)
_UNIT_POWER: Final = re.compile(r"(?<=[mftnd])\}?\^\{?([23])\}?(?![\d.])")
"""An exponent of a unit of length: ``m^2``, ``\\text{m}^2``."""

_ACCOUNTING: Final = re.compile(rf"\(\s*\\?[{CURRENCIES}][\d.,]+\s*\)")
"""An amount in parentheses, which accountants use for a loss."""

_PER_CENT: Final = re.compile(r"\bper cent\b", re.IGNORECASE)
_EQUALS: Final = re.compile(r"(?<![<>!=~:\u2248\u2260])=(?!=)")
_REASON: Final = re.compile(
    r"(?<=\S)\s+(?:(?:because|since|given|due)|(?<=,\s)(?:as|where|which)|(as|where|when|if|using|by))\b", re.IGNORECASE
)
"""The start of an explanation. An equation after it is not the answer.

The words in the capturing group, such as ``by`` and ``if``, start an explanation only after an answer.
"""

_ABOUT: Final = re.compile(r"\u2248|\\approx\b|\\sim\b|(?<![^\s$])~(?=\s?[$\d.])")
_SPOKEN_EQUALS: Final = re.compile(
    r"(?:(?<=\d)|(?<=\d[)\]]))(?: [^\W\d]{1,20})?,? (?:which )?(?:equals|is equal to|gives(?: us)?|which is) (?=[$*\d])"
    r"|(?<=\d) times (?:\d{1,20}) (?:is|are|makes) (?=[$*\d])",
    re.IGNORECASE,
)
"""An equation in words: ``7 x 6, which equals 42``, ``7 times 6 is 42``."""

_ROUNDING: Final = re.compile(
    r"(?<![\d.,])(\d[\d,]{0,30}\.\d{1,30})(?:\.{3}|\u2026)?\s?(?:\u2248|\\approx)\s?\$?(\d[\d.,]{0,30})"
)
"""A number and its rounded value: ``41.67 \u2248 42``."""

_COMPUTED: Final = re.compile(
    r"[-+*/\u00d7\u00b7\u00f7\u2212^\u03c0\u221a\xb2\xb3]|\\(?:times|cdot|div|frac|sqrt|pi)\b"
)

_SMALL: Final = re.findall(
    r"\w+",
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen""",
)
_TENS: Final = ["", "", *re.findall(r"\w+", "twenty thirty forty fifty sixty seventy eighty ninety")]
_LARGE: Final = {"million": 1_000_000, "thousand": 1_000, "hundred": 100}
_VALUES: Final = {
    **{word: value for value, word in enumerate(_SMALL)},
    **{word: 10 * value for value, word in enumerate(_TENS) if word},
}

_WORD: Final = "(?:" + "|".join([*sorted(_VALUES, key=len, reverse=True), *_LARGE]) + ")"
_RUN: Final = re.compile(rf"(?<![\w.-])(?>{_WORD}(?:(?:-|\s+(?:and\s+)?){_WORD})*)(?![\w-])", re.IGNORECASE)
"""A whole number in words. ``three-body`` is another word and does not match."""

_NO_NUMBER: Final = re.compile(
    r"\b(?:the|no|any|every|each|this|that|which) one\b|\bone (?:of|another|more)\b", re.IGNORECASE
)

_FIGURES: Final = r"\d[\d,]{0,30}"
_AND_FIGURES: Final = re.compile(rf"(?P<words>{_RUN.pattern})\s?\((?P<figures>{_FIGURES})\)", re.IGNORECASE)
_AND_WORDS: Final = re.compile(rf"(?<![\w.,])(?P<figures>{_FIGURES})\s?\((?P<words>{_RUN.pattern})\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Number:
    """A number and its notation: sign and digits without separators, currency, and whether it is a percentage."""

    value: Fraction
    written: str
    currency: str = ""
    percent: bool = False


def parse_number(word: str) -> Number | None:
    """Parse one ``word`` with an optional sign, separators and currency. Returns ``None`` if it is not a number."""
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
    """Return the only number in ``answer``.

    Returns ``None`` if there is no number or more than one, or if the words around it are not just filler and its unit.
    """
    figures = with_figures(answer) if question.is_for_a_number else answer
    figures = _UNIT_POWER.sub(lambda power: "\xb2\xb3"[int(power[1]) - 2], figures)
    exact = _ROUNDING.sub(_rounded, plain(_POWER_OF_TEN.sub(_as_exponent, _LOOSE_GROUP.sub(",", figures))))
    exact = _SPOKEN_EQUALS.sub(" = ", exact)
    result = _written_out(result_of(_ABOUT.sub(" = ", exact) if question.is_approximate else exact))
    spoken = _without_circumstances(_without_subject(_divided(list(words(result))), question), question)
    numbers = [at for at, word in enumerate(spoken) if _has_digit(word)]
    number = parse_number(spoken[numbers[0]]) if len(numbers) == 1 else None
    if number is None or _ACCOUNTING.fullmatch(result.strip()):
        return None
    before, after = spoken[: numbers[0]], spoken[numbers[0] + 1 :]
    if not number.currency and before and before[-1] in CURRENCIES:
        before, number = before[:-1], replace(number, currency=before[-1])
    if not number.currency and after and after[0] in CURRENCIES:
        after, number = after[1:], replace(number, currency=after[0])
    if before in (["minus"], ["negative"]) and not number.written.startswith(("-", "+")):
        before, number = [], replace(number, value=-number.value, written=f"-{number.written}")
    if after[:1] in (["%"], ["percent"], ["percentage"], ["pct"]):
        after, number = after[1:], replace(number, percent=True)
    if number.percent and not question.asks_for_percent:
        return None
    return number if question.says_only(before, after, number.currency) else None


def _without_subject(spoken: list[str], question: Question) -> list[str]:
    """Return ``spoken`` without a subject and verb that repeat the question: ``9 squared is 81`` becomes ``81``."""
    verb = next((at for at, word in enumerate(spoken) if word in COPULAS), 0)
    asked = {*words(question.text.replace("?", " "))}
    return spoken[verb + 1 :] if verb and any(map(_has_digit, spoken[:verb])) and {*spoken[:verb]} <= asked else spoken


def _without_circumstances(spoken: list[str], question: Question) -> list[str]:
    """Return ``spoken`` without circumstances that the question mentions.

    A circumstance is a number after ``in the``, ``out of`` or similar words. If the question mentions 40 minutes,
    ``9 points in the 40 minutes`` becomes ``9 points``.
    """
    figures = [at for at, word in enumerate(spoken) if _has_digit(word)]
    known = given_values(question) if len(figures) > 1 else set()
    for at in reversed(figures):
        number = parse_number(spoken[at])
        start = at - 1 if spoken[at - 1 : at] in (["the"], ["these"], ["those"]) else at
        if number and number.value in known and {*spoken[max(0, start - 1) : start]} & CIRCUMSTANCES:
            start -= 2 if spoken[max(0, start - 2) : start] == ["out", "of"] else 1
            end = at + 2 if " ".join(spoken[at : at + 2]) in question.text else at + 1
            rest = [*spoken[:start], *spoken[end:]]
            spoken = rest if any(map(_has_digit, rest)) else spoken
    return spoken


def is_rounded(lead: str, answer: str) -> bool:
    """Return whether ``answer`` may follow ``lead``, the text before it.

    After ``≈``, the answer must round the number before the sign up or down, as in ``2.718 ≈ 2.72``. After ``~``, the
    result is ``False``.
    """
    about = list(_ABOUT.finditer(lead))
    if not about or lead[about[-1].end() :].strip("$ "):
        return True
    return bool(
        (step := _ROUNDING.search(f"{lead}{answer}", max(0, about[-1].start() - 70))) and _rounded(step) == step[2]
    )


def _rounded(step: re.Match[str]) -> str:
    """Return the second number of ``step``, a match of ``_ROUNDING``, if it rounds the first to fewer decimals.

    Otherwise, return the whole text of the match.
    """
    exact, result = parse_number(step[1]), parse_number(step[2].rstrip(".,"))
    decimals = [len(number.partition(".")[2]) for number in (step[1], step[2].rstrip(".,"))]
    near = exact and result and abs(exact.value - result.value) * 10 ** decimals[1] < 1
    return step[2] if near and decimals[0] > decimals[1] else step[0]


def _as_exponent(match: re.Match[str]) -> str:
    return "e" + (match[1] or match[2]).replace("\u2212", "-")


def _written_out(text: str) -> str:
    """Return ``text`` with ``per cent`` as one word."""
    return _PER_CENT.sub("percent", text)


def _divided(spoken: list[str]) -> list[str]:
    """Return ``spoken`` with numbers separated from attached units: ``5km`` becomes two words."""
    return [part for word in spoken for part in _parted(word)]


def _parted(word: str) -> tuple[str, ...]:
    unit = _ATTACHED.search(word)
    return (word[: unit.start()], unit[0]) if unit and unit.end() == len(word) else (word,)


def is_unit(text: str, question: Question) -> bool:
    """Return whether ``text`` after a marked number, such as one in a box, is its unit: ``[42] dollars``."""
    unit = words(plain(text))
    fits = 0 < len(unit) <= MAX_UNIT_WORDS and all(may_be_a_unit(word) or question.counts(word) for word in unit)
    return fits and question.is_in_the_unit_asked_for(unit)


def is_same_number(given: Number, wanted: Number, tolerance: Fraction | None) -> bool:
    """Return whether the numbers differ by at most ``tolerance``. If it is ``None``, their digits must be equal.

    In that case, a ``given`` amount of money may still end in ``.00``. Amounts in two different currencies are never
    the same.
    """
    if given.currency and wanted.currency and given.currency != wanted.currency:
        return False
    if tolerance is None:
        # An amount of money has two decimals: "$18.00" is "18".
        digits = given.written.removesuffix(".00") if given.currency else given.written
        return wanted.written in {given.written, digits}
    return abs(given.value - wanted.value) <= tolerance


def ends_in_another_number(remark: Iterable[str], number: Number, question: Question) -> bool:
    """Return whether ``number`` is missing from the last sentence of ``remark`` that contains numbers.

    A calculation with only numbers of the question is ignored, as in ``42 (7 trays x 6 rolls)``.
    """
    for sentence in reversed(list(remark)):
        values = values_in(sentence)
        computed = len(values) > 1 and (_COMPUTED.search(sentence) or _is_product(words(sentence)))
        if values and not (computed and values <= given_values(question)):
            return number.value not in values
    return False


def _is_product(spoken: tuple[str, ...]) -> bool:
    """Return whether ``spoken`` has only numbers and their units, multiplied with the letter x: ``7 trays x 6``."""
    factors = [factor.split() for factor in " ".join(spoken).split(" x ")]
    return len(factors) > 1 and all(map(_is_quantity, factors))


def _is_quantity(spoken: list[str]) -> bool:
    unit = spoken[1:]
    known = all(may_be_a_unit(word) or word in RATES for word in unit)
    return bool(spoken) and parse_number(spoken[0]) is not None and len(unit) <= MAX_UNIT_WORDS and known


def given_values(question: Question) -> set[Fraction]:
    """Return the values of the numbers in ``question``."""
    return values_in(question.text.replace("?", " "))


def values_in(sentence: str) -> set[Fraction]:
    """Return the values of the numbers in ``sentence``. Numbers that are spelled out, such as ``two``, are ignored."""
    found = [parse_number(word) for word in words(_EQUALS.sub(" = ", sentence))]
    return {one.value for one in found if one is not None}


def result_of(answer: str) -> str:
    """Return the right side of the last equals sign in an equation. Other answers are returned unchanged.

    The result is 5 for ``x = 5`` and for ``2 + 3 = 5``. An equation is returned unchanged if it is denied (``it is not
    x = 5``), only explains an answer (``4 because 3 + 2 = 5``) or has two values (``x = 4, x = 5``). But for
    ``x = 4, x = 2 + 3 = 5``, which ends in a calculation, the result is 5.
    """
    signs = list(_EQUALS.finditer(answer))
    if not signs:
        return answer
    left, right = answer[: signs[-1].start()], answer[signs[-1].end() :]
    own = re.split(r"[,;]\s", left)[-1]
    middle = own.rpartition("=")[2] or own
    several = len(signs) > 1 and not _COMPUTED.search(middle) and (_has_digit(middle) or middle == own)
    return answer if several or is_denied(left, shared=False) or _is_explained(left) else right


def _is_explained(left: str) -> bool:
    """Return whether ``left``, the left side of an equation, contains an explanation, as in ``4 because 3 + 2``."""
    # Words such as "by" start an explanation only after a number: in "4 by adding 3 + 1", but not in "Divided by 2, x".
    reasons = list(_REASON.finditer(left))
    before = left[: reasons[-1].start()] if reasons else ""
    return not all(reason[1] for reason in reasons) or _has_digit(before) or bool({*words(before)} & NUMBER_WORDS)


def _has_digit(text: str) -> bool:
    return any(character.isdecimal() for character in text)


def with_figures(text: str) -> str:
    """Return ``text`` with its number in figures: ``They have eight legs`` becomes ``They have 8 legs``.

    ``eight (8)`` and ``8 (eight)`` always become ``8``. Other number words are replaced only if they form the only
    number in the text.
    """
    for both in (_AND_FIGURES, _AND_WORDS):
        text = both.sub(lambda found: _same_number(found, found["words"], found["figures"]), text)
    if any(character.isdigit() for character in text):
        return text
    runs = [] if _NO_NUMBER.search(text) else list(_RUN.finditer(text))
    value = _value_of_words(runs[0][0]) if len(runs) == 1 else None
    return text if value is None else f"{text[: runs[0].start()]}{value}{text[runs[0].end() :]}"


def _same_number(found: re.Match[str], words: str, figures: str) -> str:
    return figures if str(_value_of_words(words)) == figures.replace(",", "") else found[0]


def _value_of_words(run: str) -> int | None:
    """Return the value of a number in words, or ``None`` if it is not well formed: ``two three``, ``ten-one``."""
    words = [word for word in re.split(r"[\s-]+", run.lower()) if word != "and"]
    total = group = 0
    for word in words:
        if word == "hundred":
            group = max(group, 1) * 100
        elif word in _LARGE:
            total, group = total + max(group, 1) * _LARGE[word], 0
        else:
            group += _VALUES[word]
    spoken = _in_words(total + group)
    return total + group if words in (spoken, spoken[1:] if spoken[:1] == ["one"] else spoken) else None


def _in_words(value: int) -> list[str]:
    """Return the words of a number below a thousand million."""
    for word, size in _LARGE.items():
        if value >= size:
            return [*_in_words(value // size), word, *(_in_words(value % size) if value % size else [])]
    if value < len(_SMALL):
        return [_SMALL[value]]
    return [_TENS[value // 10], *(_in_words(value % 10) if value % 10 else [])]
