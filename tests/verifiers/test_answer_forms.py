"""Every form of :mod:`verifiers.answer_forms`, on our own questions and, if available, on those of GSM8K and MMLU."""

from __future__ import annotations

import csv
import json
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.authors_data import data_folder
from bounds import processor_seconds
from securebench.verifiers.text.multiple_choice import judge_choice
from securebench.verifiers.text.short_answer import ExpectedAnswer, judge_short_answer
from securebench.verifiers.text.wording import question_words
from verifiers.answer_forms import (
    CHOICE_FORMS,
    LAST_LINES,
    NUMBER_FORMS,
    RIGHT_CHOICES,
    RIGHT_NUMBERS,
    RIGHT_PRICES,
    TEXT_FORMS,
    UNIT_CASES,
    WORKING_FORMS,
    WRONG_CHOICES,
    WRONG_NUMBERS,
    WRONG_PRICES,
    WRONG_WORDS,
)

COUNT = "How many are there in all?"
CAPITAL = "What is the capital of France?"
CITIES = ["Lyon", "Paris", "Nice", "Lille"]
OTHER_UNITS = re.compile(r"(?i)how old|how (?:many|long)\b.*\b(?:year|month|week|day|minute|second)|in seconds")
"""Questions that ask for another unit of time than hours."""

UNIT_FORMS = frozenset({"percent", "unit of money", "things", "unit of time", "unit in signs", "JSON with a unit"})

OTHER_LENGTHS = re.compile(
    r"(?i)how fast|\b(?:how (?:far|many|long|tall)|in|what)\b.*\b(?:meters|feet|miles|inches|centimeters|yards|mph)\b"
)
"""Questions that ask for a length, or for a speed in another unit than m/s."""

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "text-answers.md"


def number_text(form: str, number: int) -> str:
    """Return a text in a form of :data:`NUMBER_FORMS` with ``number`` as the right answer."""
    return form.format(n=number, separated=f"{number:,}", more=number + 1, negated=-number or -1)


def choice_text(form: str, right: int, choices: list[str]) -> str:
    """Return a text in a form of :data:`CHOICE_FORMS` with the choice ``right`` as the right answer."""
    other = (right + 1) % len(choices)
    names = {"label": "ABCD"[right], "small": "abcd"[right], "text": choices[right]}
    return form.format(**names, other="ABCD"[other], other_text=choices[other])


@pytest.mark.parametrize("accepted", ["42", "1234"])
@pytest.mark.parametrize("name", NUMBER_FORMS)
def test_numbers(name: str, accepted: str) -> None:
    """Each form of a number is accepted or not, as the table says."""
    form, passes = NUMBER_FORMS[name]
    text = number_text(form, int(accepted))
    result = judge_short_answer(text, ExpectedAnswer((accepted,), tolerance=Fraction(0), question=COUNT))
    assert (result.reason is None) is passes, text


@pytest.mark.parametrize("name", TEXT_FORMS)
def test_texts(name: str) -> None:
    """Each form of a word is accepted or not, as the table says."""
    text, passes = TEXT_FORMS[name]
    assert (judge_short_answer(text, ExpectedAnswer(("Paris",), question=CAPITAL)).reason is None) is passes


@pytest.mark.parametrize("right", range(4))
@pytest.mark.parametrize("name", CHOICE_FORMS)
def test_choices(name: str, right: int) -> None:
    """Each form of a choice is accepted or not, as the table says."""
    form, passes = CHOICE_FORMS[name]
    text = choice_text(form, right, CITIES)
    result = judge_choice(text, CITIES, frozenset({right}), question_words(CAPITAL))
    assert (result.reason is None) is passes, text


def _apples(text: str) -> bool:
    expected = ExpectedAnswer(("42",), Fraction(0), "How many apples does Tom have left?")
    return judge_short_answer(text, expected).reason is None


def _price(text: str) -> bool:
    question = "A shop sells pens at $3 each and has 20% off on Fridays. How much does Ann pay for 14 pens?"
    return judge_short_answer(text, ExpectedAnswer(("42",), Fraction(0), question)).reason is None


def _city(text: str) -> bool:
    return judge_choice(text, CITIES, frozenset({1}), question_words(CAPITAL)).reason is None


def test_other_wordings_of_a_right_answer_pass() -> None:
    """Right answers in wordings that are not in the tables of forms pass, too."""
    assert [text for text in RIGHT_NUMBERS if not _apples(text)] == []
    assert [text for text in RIGHT_PRICES if not _price(text)] == []
    assert [text for text in RIGHT_CHOICES if not _city(text)] == []


def test_other_lists_hedges_and_second_answers_fail() -> None:
    """E03, E04: lists of answers, hedges and second answers, written to deceive the verifiers, fail."""
    assert [text for text in WRONG_NUMBERS if _apples(text)] == []
    assert [text for text in WRONG_PRICES if _price(text)] == []
    assert [text for text in WRONG_CHOICES if _city(text)] == []
    wrong = (
        text
        for text in WRONG_WORDS
        if judge_short_answer(text, ExpectedAnswer(("Paris",), question=CAPITAL)).reason is None
    )
    assert list(wrong) == []


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9), st.sampled_from(sorted(NUMBER_FORMS)))
def test_no_form_of_another_number_is_accepted(wanted: int, given_number: int, name: str) -> None:
    """E02: a text that does not contain the accepted number never passes, in any form."""
    form = NUMBER_FORMS[name][0]
    near = {given_number, given_number + 1, -given_number, given_number * 10, 1, 2, 7}
    if wanted not in near:
        for tolerance in (None, Fraction(0)):
            expected = ExpectedAnswer((str(wanted),), tolerance, COUNT)
            assert judge_short_answer(number_text(form, given_number), expected).reason is not None


def test_the_page_has_the_table() -> None:
    """The documentation lists exactly the forms that are tested here."""
    assert forms_page() in PAGE.read_text(encoding="utf-8")


def forms_page() -> str:
    """Return the table of forms as Markdown."""
    shown = {"n": "42", "separated": "1,234", "more": "43", "negated": "-42", "label": "B", "small": "b"}
    shown |= {"other": "C", "text": "Paris", "other_text": "Nice"}
    tables = (("Numbers (accepted: 42)", NUMBER_FORMS), ("Choices (right: B, Paris)", CHOICE_FORMS))
    sections = []
    for title, forms in (*tables, ("Words (accepted: Paris)", TEXT_FORMS)):
        filled = [(form if forms is TEXT_FORMS else form.format(**shown), passes) for form, passes in forms.values()]
        rows = [f"| {_quoted(text)} | {'yes' if passes else 'no'} |" for text, passes in filled]
        sections.append("\n".join([f"### {title}", "", "| Text | Accepted |", "|---|---|", *rows, ""]))
    return "\n".join(sections)


def _quoted(text: str) -> str:
    fence = "``" if "`" in text else "`"
    space = " " if "`" in text else ""
    return fence + space + text.replace("\n", "⏎") + space + fence


@pytest.mark.parametrize(("question", "accepted", "right", "wrong"), UNIT_CASES)
def test_units(question: str, accepted: str, right: list[str], wrong: list[str]) -> None:
    """An amount in the question's unit passes under each name of the unit. An amount in another unit fails."""
    expected = ExpectedAnswer((accepted,), Fraction(0), question)
    assert [text for text in right if judge_short_answer(text, expected).reason is not None] == []
    assert [text for text in wrong if judge_short_answer(text, expected).reason is None] == []


@pytest.mark.parametrize(("question", "accepted", "right", "wrong"), LAST_LINES)
def test_last_lines(question: str, accepted: str, right: list[str], wrong: list[str]) -> None:
    """In a last line with several numbers, the answer is found by the equation or by the words of the question."""
    expected = ExpectedAnswer((accepted,), Fraction(0), question)
    assert [text for text in right if judge_short_answer(text, expected).reason is not None] == []
    assert [text for text in wrong if judge_short_answer(text, expected).reason is None] == []


def test_gsm8k_last_lines(gsm8k: list[tuple[str, str, str]]) -> None:
    """Nearly all last lines of the authors' solutions pass, with or without annotations.

    A line never passes if the accepted answer is another number in the line.
    """
    for annotation in ("", r"<<.*?>>"):
        passed = 0
        for question, gold, solution in gsm8k:
            line = re.sub(annotation, "", solution.rpartition("####")[0].strip().splitlines()[-1])
            passed += judge_short_answer(line, ExpectedAnswer((gold,), Fraction(0), question)).reason is None
            others = {number for number in re.findall(r"\d+", line) if number != gold.replace(",", "")}
            for other in others:
                assert judge_short_answer(line, ExpectedAnswer((other,), Fraction(0), question)).reason is not None
        assert passed >= 96


@pytest.mark.parametrize("form", WORKING_FORMS)
def test_gsm8k_answer_before_its_working(gsm8k: list[tuple[str, str, str]], form: str) -> None:
    """The gold answer with the authors' working below it nearly always passes. Another answer above it never does."""
    passed = 0
    for question, gold, solution in gsm8k:
        working = re.sub(r"<<.*?>>", "", solution.rpartition("####")[0].strip())
        expected = ExpectedAnswer((gold,), Fraction(0), question)
        passed += judge_short_answer(form.format(n=gold, working=working), expected).reason is None
        other = f"{int(gold.replace(',', '')) + 1}"
        assert judge_short_answer(form.format(n=other, working=working), expected).reason is not None
    assert passed >= 98


@pytest.mark.parametrize(
    "part", ["Answer: 1\n", "1.1 \u2248 1 ", "1 times 1 is ", "by 1 = ", "<<1>>1", "would you like "]
)
def test_hostile_texts_take_time_in_proportion(part: str) -> None:
    """E09: texts of repeated cues, roundings, equations or calculations are judged in ten processor seconds."""
    with processor_seconds(10):
        for size in (9_900, 250_000):
            text = part * (size // len(part))
            judge_short_answer(text, ExpectedAnswer(("42",), Fraction(0), f"{COUNT} 1 by 1, or 42?"))
            judge_choice(text, CITIES, frozenset({1}))


@pytest.fixture(scope="module")
def gsm8k() -> list[tuple[str, str, str]]:
    """Return question, gold answer and worked solution of rows of GSM8K."""
    path = data_folder() / "gsm8k" / "test-first100.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [(row["question"], row["answer"].rpartition("#### ")[2].strip(), row["answer"]) for row in rows]


@pytest.mark.parametrize("name", [name for name in NUMBER_FORMS if name != "attached unit"])
def test_gsm8k(gsm8k: list[tuple[str, str, str]], name: str) -> None:
    """Each form of the gold answer is accepted or not, as the table says.

    A form is skipped if its unit does not fit the question, or if it is approximate and the question is about rounding.
    If a question asks for a percentage, ``percent`` is the only form with a unit that passes. No question has a unit
    that can be attached to a number.
    """
    form, passes = NUMBER_FORMS[name]
    for question, gold, _ in gsm8k:
        if name == "unit of time" and OTHER_UNITS.search(question):
            continue
        if name in {"about before a box", "rounded", "approximately"} and "round" in question:
            continue
        if name == "unit in signs" and OTHER_LENGTHS.search(question):
            continue
        text = number_text(form, int(gold.replace(",", "")))
        in_percent = "percentage" in question
        wanted = name == "percent" if in_percent and name in UNIT_FORMS else passes
        accepted = judge_short_answer(text, ExpectedAnswer((gold,), Fraction(0), question)).reason is None
        assert accepted is wanted, (question, text)


def test_gsm8k_solutions(gsm8k: list[tuple[str, str, str]]) -> None:
    """The authors' own worked solutions pass, whether the pack gives the gold answer as a number or as a text."""
    for question, gold, solution in gsm8k:
        for tolerance in (None, Fraction(0)):
            assert judge_short_answer(solution, ExpectedAnswer((gold,), tolerance, question)).reason is None


@pytest.mark.parametrize("name", CHOICE_FORMS)
def test_mmlu(name: str) -> None:
    """For each question of the file, a form of the right choice is accepted or not, as the table says."""
    form, passes = CHOICE_FORMS[name]
    with (data_folder() / "mmlu" / "abstract_algebra_test.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    for question, *choices, letter in rows:
        right = "ABCD".index(letter)
        text = choice_text(form, right, choices)
        accepted = judge_choice(text, choices, frozenset({right}), question_words(question)).reason is None
        assert accepted is passes, (question, choices, text)
