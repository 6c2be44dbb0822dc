"""Each answer in ``written_answers.txt``, worded as models write answers, is accepted or refused as the file says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from securebench.verifiers.text.multiple_choice import judge_choice
from securebench.verifiers.text.numbers import with_figures
from securebench.verifiers.text.phrases import Phrase
from securebench.verifiers.text.short_answer import ExpectedAnswer, judge_short_answer
from securebench.verifiers.text.wording import question_words

_LIST = Path(__file__).with_name("written_answers.txt")
_MARKS = frozenset("+-~")


@dataclass
class _Question:
    text: str
    accepted: list[str] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)
    label: str = ""
    answers: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of a mark (``+``, ``-`` or ``~``) and an answer."""

    def accepts(self, written: str) -> bool:
        """Return whether ``written`` passes."""
        if self.choices:
            right = frozenset({"ABCDEFGH".index(self.label)})
            return judge_choice(written, self.choices, right, question_words(self.text)).reason is None
        return judge_short_answer(written, ExpectedAnswer(tuple(self.accepted), question=self.text)).reason is None


def _questions() -> list[_Question]:
    found: list[_Question] = []
    for line in _LIST.read_text().splitlines()[9:]:
        mark, _, text = line.partition(" ")
        text = text.replace("\u23ce", "\n")
        if mark == "?":
            found.append(_Question(text))
        elif mark == "=":
            found[-1].accepted.append(text)
        elif mark == "*":
            found[-1].choices.append(text)
        elif mark == "!":
            found[-1].label = text
        elif mark in _MARKS:
            found[-1].answers.append((mark, text))
    return found


@pytest.mark.parametrize("question", _questions(), ids=lambda question: question.text)
def test_written_answers(question: _Question) -> None:
    """Answers marked ``+`` are accepted, and answers marked ``-`` or ``~`` are refused."""
    assert question.answers
    passed = {written for _, written in question.answers if question.accepts(written)}
    assert [written for mark, written in question.answers if (mark == "+") is not (written in passed)] == []


def _gives(accepted: str, question: str, written: str) -> bool:
    return Phrase(accepted, question_words(question)).is_given_by(written)


@pytest.mark.parametrize(
    ("accepted", "written"),
    [
        ("Mary Shelley", "Mary Shelley, the Bram Stoker"),
        ("Mary Shelley", "Mary Shelley, who knew Percy Shelley"),
        ("Mary Shelley", "Mary Shelley (Bram)"),
        ("Mary Shelley", "Mary Shelley, not Really"),
        ("Mary Shelley", "Mary Shelley, not BRAM"),
        ("Mary Shelley", "Mary Shelley, not"),
        ("Mary Shelley", "mary shelley, the bram stoker"),
        ("Mary Shelley", "the sculptor of Mary Shelley"),
        ("Mary Shelley", "Mary Shelley and called Bram"),
        ("Mary Shelley", "Mary Shelley, who was wrongly credited"),
        ("Mary Shelley", "Mary Shelley, who? Bram"),
        ("Mexico", "Mexico City"),
        ("Victoria", "Lake Victoria"),
        ("refraction", "refraction, the reflection"),
        ("refraction", "refraction, called reflection"),
        ("refraction", "refraction (reflection)"),
        ("refraction", "refraction and called reflection"),
        ("refraction", "refraction with reflection"),
        ("refraction", "refraction with total reflection"),
        ("refraction", "the Raman refraction"),
        ("vitamin D", "vitamin D (B12)"),
        ("in", "in the"),
        ("yes", "yes, it is false"),
        ("no", "No, it is"),
        ("no", "No, it really is"),
        ("no", "No, it is truly"),
    ],
)
def test_what_could_be_another_answer_is_no_description(accepted: str, written: str) -> None:
    """Words beside an accepted answer are not ignored if they could be another answer, or doubt or deny it."""
    assert not _gives(accepted, "What is it?", written)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("They have eight legs.", "They have 8 legs."),
        ("forty-two (42)", "42"),
        ("42 (forty-two)", "42"),
        ("forty-two (24)", "forty-two (24)"),
        ("one hundred twenty-three thousand four hundred and five", "123405"),
        ("nine million", "9000000"),
        ("two three", "two three"),
        ("twenty twelve", "twenty twelve"),
        ("eight eyes and six legs", "eight eyes and six legs"),
        ("forty two of them", "42 of them"),
        ("the one", "the one"),
        ("three-body", "three-body"),
        ("forty two-year plans", "forty two-year plans"),
        ("forty-two of 50", "forty-two of 50"),
    ],
)
def test_numbers_in_words(text: str, expected: str) -> None:
    """A number in words is replaced by figures if the text has no different number.

    If the text has the same number in figures, only the figures are kept. Words that may not be meant as a number, as
    in ``the one`` or ``three-body``, are unchanged.
    """
    assert with_figures(text) == expected
