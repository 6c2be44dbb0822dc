"""Short answer: the final answer is an accepted one, or says an accepted one and nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, cast

from securebench.errors import FailureReason
from securebench.families.normalization import normalize_text, strict_decimal
from securebench.verifiers.final_answer import position, readings, words
from securebench.verifiers.text import Judgement, TextVerifier
from securebench.verifiers.vocabulary import FILLERS, FUNCTION_WORDS, HEDGES, NEGATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from securebench.resources import JsonValue, ResourceBundle

MAX_SHORT_WORDS: Final = 24
"""A final answer of more words beside the accepted one is a discussion, not an answer."""

_LETTERS: Final = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Expected:
    """What is accepted: texts, the largest difference of two numbers (``None``: as texts), the question's words."""

    accepted: tuple[str, ...]
    tolerance: Fraction | None = None
    question: frozenset[str] = frozenset()


class ShortAnswerVerifier(TextVerifier):
    """Judges by ``accepted_answers`` and ``tolerance`` (hidden); ``question`` (public) tells filler from guesses.

    Accepted answers that are all JSON numbers are compared as numbers, without a tolerance exactly.
    """

    family = "short_answer"
    version = "1"

    def judge(self, text: str, resources: ResourceBundle) -> Judgement:
        """Judge the final answer of ``text``."""
        question = resources["question"].value if "question" in resources else ""
        accepted = cast("list[JsonValue]", resources["accepted_answers"].value)
        tolerance = resources["tolerance"].value if "tolerance" in resources else None
        if tolerance is None and all(isinstance(answer, (int, float)) for answer in accepted):
            tolerance = 0
        return judge_short_answer(
            text,
            Expected(
                accepted=tuple(str(answer) for answer in accepted),
                tolerance=None if tolerance is None else _exact(str(tolerance)),
                question=question_words(str(question)),
            ),
        )


def judge_short_answer(text: str, expected: Expected) -> Judgement:
    """Judge ``text`` by its final answer: exactly, then as a number, then as words among words that say nothing."""
    found = readings(text)
    if any(_is_exact(answer, expected) for answer in found):
        return Judgement.passing("exact")
    spoken = words(found[0]) if found else ()
    if expected.tolerance is not None and _is_near(spoken, expected):
        return Judgement.passing("number")
    standing = [accepted for accepted in _phrases(expected) if position(accepted, spoken) >= 0]
    if any(_is_all_that_is_said(accepted, spoken, expected) for accepted in standing):
        return Judgement.passing("words")
    return Judgement(FailureReason.AMBIGUOUS_ANSWER if standing else FailureReason.WRONG_ANSWER, "none")


def question_words(question: str) -> frozenset[str]:
    """Return the words of ``question`` that are letters alone."""
    return frozenset(_LETTERS.findall(normalize_text(question)))


def _is_exact(answer: str, expected: Expected) -> bool:
    key = normalize_text(answer)
    return bool(key) and any(normalize_text(accepted) == key for accepted in expected.accepted)


def _is_near(spoken: tuple[str, ...], expected: Expected) -> bool:
    """Whether ``spoken`` gives one number and no other content, and it is close enough to an accepted one."""
    fillers = _fillers((), expected)
    content = [word for word in spoken if word not in fillers]
    given = _exact(content[0]) if len(content) == 1 else None
    return given is not None and any(_is_within(given, number, expected.tolerance) for number in _numbers(expected))


def _is_within(given: Fraction, wanted: Fraction, tolerance: Fraction | None) -> bool:
    return tolerance is not None and abs(given - wanted) <= tolerance


def _numbers(expected: Expected) -> Iterator[Fraction]:
    found = (_exact(normalize_text(accepted)) for accepted in expected.accepted)
    return (number for number in found if number is not None)


def _exact(text: str) -> Fraction | None:
    """Return the number that ``text`` is, as a fraction: differences of fractions are never rounded."""
    number = strict_decimal(text)
    return None if number is None else Fraction(number)


def _phrases(expected: Expected) -> Iterable[tuple[str, ...]]:
    return (words(accepted) for accepted in expected.accepted)


def _is_all_that_is_said(accepted: tuple[str, ...], spoken: tuple[str, ...], expected: Expected) -> bool:
    """Whether everything beside one ``accepted`` phrase says nothing: so that a list of guesses never passes."""
    at = position(accepted, spoken)
    rest = spoken[:at] + spoken[at + len(accepted) :]
    return len(rest) <= MAX_SHORT_WORDS and set(rest) <= _fillers(accepted, expected)


def _fillers(accepted: tuple[str, ...], expected: Expected) -> frozenset[str]:
    """Return the words that say nothing beside ``accepted``: the usual ones, and the question's own.

    An answer of function words has none. A question lends none when it offers a choice (``red or blue?``) or holds a
    word of the answer, and never a number or a negation.
    """
    content = set(accepted) - FUNCTION_WORDS
    if accepted and not content:
        return frozenset()
    if expected.question & (HEDGES | content):
        return FILLERS
    return FILLERS | expected.question - NEGATIONS
