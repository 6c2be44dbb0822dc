"""Short answer: the final answer is an accepted answer, or a sentence that gives an accepted answer and no other."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

from securebench.errors import FailureReason
from securebench.families.normalization import normalize_text
from securebench.verifiers.base import TextVerdict, TextVerifier
from securebench.verifiers.text.final_answer import AnswerReading, readings
from securebench.verifiers.text.numbers import (
    Number,
    ends_in_another_number,
    is_rounded,
    is_same_number,
    is_unit,
    parse_number,
    read_number,
    result_of,
)
from securebench.verifiers.text.phrases import Phrase
from securebench.verifiers.text.questions import Question
from securebench.verifiers.text.wording import (
    explains,
    is_denied,
    is_second_thought,
    is_too_long,
    is_working,
    plain,
    position,
    question_words,
    sentences,
    unwrapped,
    words,
)

if TYPE_CHECKING:
    from securebench.resources import JsonValue, ResourceBundle

MAX_RIVAL_WORDS: Final = 3
"""If a response has several cues, such as ``Answer:``, the last one counts. A text of up to this many words after an
earlier cue can be another answer. A longer text is reasoning, unless it gives a number."""

_LATEX_FRACTION: Final = re.compile(r"(?<![\d}])\\[dt]?frac\{(\d{1,20})\}\{(\d{1,20})\}(?!\d)")
_LOOSE_SLASH: Final = re.compile(r"(?<=\d) ?[/\u2044] ?(?=\d)")
_VULGAR: Final = re.compile("(?<![\\d\xbc-\xbe\u2150-\u215e] )(?<![\\d\xbc-\xbe\u2150-\u215e])[\xbc-\xbe\u2150-\u215e]")
_FRACTION: Final = re.compile(r"-?\d{1,20}/\d{1,20}")


@dataclass(frozen=True)
class ExpectedAnswer:
    """The accepted texts, the largest accepted difference between numbers, and the question.

    Without a ``tolerance``, the digits of numbers must be equal.
    """

    accepted: tuple[str, ...]
    tolerance: Fraction | None = None
    question: str = ""

    @property
    def words(self) -> frozenset[str]:
        """The words in the question. A word is a sequence of letters."""
        return frozenset(word for word in question_words(self.question) if word.isalpha())

    @cached_property
    def phrases(self) -> tuple[Phrase, ...]:
        """The accepted answers that are not numbers."""
        lent = question_words(self.question)
        return tuple(Phrase(one, lent) for one in self.accepted if parse_number(normalize_text(one)) is None)

    @cached_property
    def asked(self) -> Question:
        """The question, with what the accepted answers reveal about the number it asks for."""
        numbers = [one for one in map(parse_number, map(normalize_text, self.accepted)) if one]
        rounded = bool(self.tolerance) or any(one.value.denominator > 1 for one in numbers)
        percent = any(one.percent for one in numbers)
        return Question(self.question, rounded=rounded, percent=percent, is_for_a_number=bool(numbers))


class ShortAnswerVerifier(TextVerifier):
    """Judges by ``accepted_answers`` and ``tolerance`` (hidden). Words of ``question`` (public) may surround an answer.

    If all accepted answers are JSON numbers, the default tolerance is 0: values are compared, not digits.
    """

    family = "short_answer"
    version = "4"

    def judge(self, text: str, resources: ResourceBundle) -> TextVerdict:
        """Judge the final answer of ``text``."""
        question = resources["question"].value if "question" in resources else ""
        accepted = cast("list[JsonValue]", resources["accepted_answers"].value)
        tolerance = resources["tolerance"].value if "tolerance" in resources else None
        if tolerance is None and all(isinstance(answer, (int, float)) for answer in accepted):
            tolerance = 0
        return judge_short_answer(
            text,
            ExpectedAnswer(
                accepted=tuple(str(answer) for answer in accepted),
                tolerance=None if tolerance is None else Fraction(str(tolerance)),
                question=str(question),
            ),
        )


def judge_short_answer(text: str, expected: ExpectedAnswer) -> TextVerdict:
    """Judge the final answer of ``text``: first by an exact match, then as a number, then as words, ignoring filler."""
    if _is_exact(text, expected):
        return TextVerdict.passing("exact")
    found = readings(text)
    if any(reading.contradicted for reading in found):
        return TextVerdict(FailureReason.AMBIGUOUS_ANSWER, "none")
    for reading in found:
        if reading.whole or reading.is_first:
            continue  # a whole text is compared below; the lines after a first line could be another answer
        if verdict := _judge_reading(reading, expected):
            return verdict
        if _settles(reading, expected):
            break
    if any(reading.whole and _is_exact(reading.answer, expected) for reading in found):
        return TextVerdict.passing("exact")
    spoken = words(plain(found[0].answer)) if found else ()
    standing = any(position(words(accepted), spoken) >= 0 for accepted in expected.accepted)
    return TextVerdict(FailureReason.AMBIGUOUS_ANSWER if standing else FailureReason.WRONG_ANSWER, "none")


def _judge_reading(reading: AnswerReading, expected: ExpectedAnswer) -> TextVerdict | None:
    """Return a verdict if the line ``reading`` gives an accepted answer or several different numbers, else ``None``."""
    parts = tuple(reading.parts())
    if _is_exact(reading.answer, expected) or _is_exact(parts[0].answer, expected):
        return _unless_taken_back(parts[0], "exact", expected)
    numbers = [read_number(part.answer, expected.asked) for part in parts]
    if len({number.written for number in numbers if number}) > 1:
        return TextVerdict(FailureReason.AMBIGUOUS_ANSWER, "none")
    for place, (part, number) in enumerate(zip(parts, numbers, strict=True)):
        is_list = any(numbers[1:place]) and _is_exact(part.answer, expected)
        if any(numbers) and number is None and not is_list:
            # One split of the line gives a number, so a split without a number does not give the answer, unless the
            # number is only the start of an accepted answer: "3; 5".
            continue
        if rule := _rule(part.answer, expected):
            return _unless_taken_back(part, rule, expected)
    return None


def _rule(answer: str, expected: ExpectedAnswer) -> str:
    """Return the name of the rule that accepts ``answer``, or an empty string."""
    if _is_exact(answer, expected):
        return "exact"
    if _number(answer, expected) is not None:
        return "number"
    fraction = _fraction_key(unwrapped(result_of(_with_slashes(plain(answer)))))
    if _FRACTION.fullmatch(fraction) and _is_exact(fraction, expected):
        return "exact"
    return "words" if any(phrase.is_given_by(_with_slashes(answer)) for phrase in expected.phrases) else ""


def _is_exact(answer: str, expected: ExpectedAnswer) -> bool:
    key = _fraction_key(answer)
    return bool(key) and any(_fraction_key(accepted) == key for accepted in expected.accepted)


def _fraction_key(text: str) -> str:
    """Return ``text`` normalized, with each fraction of two integers in the form ``3/4``."""
    return normalize_text(_with_slashes(text))


def _with_slashes(text: str) -> str:
    """Return ``text`` with each fraction of two integers in the form ``3/4``."""
    written = _LATEX_FRACTION.sub(r"\1/\2", text)
    return _LOOSE_SLASH.sub("/", _VULGAR.sub(lambda sign: unicodedata.normalize("NFKC", sign[0]), written))


def _number(answer: str, expected: ExpectedAnswer) -> Number | None:
    """Return the number in ``answer`` if it is an accepted number, else ``None``."""
    given = read_number(answer, expected.asked)
    wanted = (parse_number(normalize_text(accepted)) for accepted in expected.accepted)
    return given if given and any(one and is_same_number(given, one, expected.tolerance) for one in wanted) else None


def _settles(reading: AnswerReading, expected: ExpectedAnswer) -> bool:
    """Return whether ``reading`` is an answer at all. If only numbers are accepted, it needs a digit or number word."""
    if not all(parse_number(normalize_text(accepted)) for accepted in expected.accepted):
        return True
    has_digit = any(character.isdigit() for character in reading.answer)
    return has_digit or any(read_number(part.answer, expected.asked) for part in reading.parts())


def _unless_taken_back(part: AnswerReading, rule: str, expected: ExpectedAnswer) -> TextVerdict:
    """Return a pass by ``rule``, unless the text around the answer ``part`` takes it back."""
    taken_back = _is_taken_back(part, expected)
    return TextVerdict(FailureReason.AMBIGUOUS_ANSWER, "none") if taken_back else TextVerdict.passing(rule)


def _is_taken_back(part: AnswerReading, expected: ExpectedAnswer) -> bool:
    listed = [number for number in map(parse_number, map(normalize_text, part.listed)) if number]
    if any(number.value != mine.value for number in listed if (mine := _number(part.answer, expected))):
        return True
    if is_denied(part.lead) or is_too_long(part.remark) or any(_is_rival(one, expected) for one in part.rivals):
        return True
    if not expected.asked.is_approximate and not is_rounded(part.lead, part.answer):
        return True
    number = _number(part.answer, expected)
    unit, line_end, rest = part.remark.partition("\n")
    if number is None or not is_unit(unit, expected.asked):
        rest = unit + line_end + rest
    said = list(sentences(rest))
    remark = [one for one in said if not _rule(one, expected)]
    if number is not None:
        # A calculation ends in the same number as the answer. Another answer does not.
        aside, remark = [one for one in said if not explains(one)], [one for one in remark if not is_working(one)]
        return ends_in_another_number(aside, number, expected.asked) or any(
            is_second_thought(one, expected.words) for one in remark
        )
    phrases = [phrase for phrase in expected.phrases if phrase.is_given_by(part.answer)]
    return any(
        is_second_thought(one, expected.words) and not any(each.is_described_by(one, part.answer) for each in phrases)
        for one in remark
    )


def _is_rival(answer: str, expected: ExpectedAnswer) -> bool:
    """Return whether the text after an earlier cue is an answer that is not accepted."""
    parts = [part.answer for part in AnswerReading(answer).parts()]
    if any(_rule(part, expected) for part in parts):
        return False
    return any(read_number(part, expected.asked) or len(words(part)) <= MAX_RIVAL_WORDS for part in parts)
