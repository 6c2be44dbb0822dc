"""No text passes for two different answers, whatever forms its guesses are written in and however they are joined."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securebench.verifiers.text.multiple_choice import judge_choice
from securebench.verifiers.text.short_answer import ExpectedAnswer, judge_short_answer
from securebench.verifiers.text.wording import question_words
from verifiers.answer_forms import CHOICE_FORMS, NUMBER_FORMS
from verifiers.test_answer_forms import CITIES, COUNT, choice_text, number_text

GUESSES = (11, 12, 13)
CHOICES = (["0", "4", "2", "6"], CITIES)
JOINS: tuple[str, ...] = (
    " ",
    "\n",
    "\n\n",
    ", ",
    "; ",
    ". ",
    ": ",
    " = ",
    " - ",
    " \u2014 ",
    " (",
    "/",
    " or ",
    " and ",
    " because ",
)
JOINS += (" since ", ", so ", ", as ", ", where ", " because 2*6 = ", " because 2*6 is ", " given 1+1 = ", " as 5*5 = ")
JOINS += (
    " \u2014 5*5 = ",
    ". 5*5 = ",
    " (5*5 = ",
    ": 5*5 = ",
    ", so 5*5 = ",
    ", since x = ",
    "\n5*5 = ",
    " => ",
    " \u2192 ",
)
JOINS += (
    "\nSteps:\n1. ",
    "\nAnswer: ",
    " Answer: ",
    "\n#### ",
    "\nReasoning: 5*5 = ",
    "\nHence it is ",
    " i.e. ",
    " - 1 = ",
)
JOINS += (
    " in the ",
    " out of the ",
    " of ",
    " per ",
    " more than ",
    " by 5, we get x = ",
    " using 5*5 = ",
    " when x = ",
    " are not ",
    " is ",
    " \u2248 ",
    "<<5*5=25>>",
    "\n\n**So it is ",
    "\nExplanation: ",
    "\nConfidence: ",
    ", which equals ",
    " times 1 is ",
    "\nSolution: ",
    " (i.e. ",
    " \u2705\n",
    " x ",
    " (x ",
    " (5 x 5) ",
    ". 12 x ",
    ":\nAnswer: ",
)
RIVALS = "Of the 12 birds, 11 are not red. How many more than 13 are there in 12 days, to the nearest whole number?"
"""A question that contains the guesses, and words that may stand beside a number only if the question has them."""

number_forms = sorted(form for form, passes in NUMBER_FORMS.values() if passes)
choice_forms = sorted(form for form, passes in CHOICE_FORMS.values() if passes)


def accepted_numbers(text: str, tolerance: Fraction | None, question: str = COUNT) -> list[str]:
    """Return each number from 10 to 19 for which ``text`` passes when it is the only accepted answer."""
    golds = map(str, range(10, 20))
    return [
        gold for gold in golds if judge_short_answer(text, ExpectedAnswer((gold,), tolerance, question)).reason is None
    ]


def accepted_choices(text: str, choices: list[str], question: str = COUNT) -> list[int]:
    """Return the index of each choice for which ``text`` passes when it is the right one."""
    words = question_words(question)
    return [i for i in range(len(choices)) if judge_choice(text, choices, frozenset({i}), words).reason is None]


@given(
    st.lists(st.sampled_from(number_forms), min_size=2, max_size=3),
    st.lists(st.sampled_from(JOINS), min_size=2, max_size=2),
    st.sampled_from([None, Fraction(0)]),
    st.sampled_from([COUNT, "How much does she make, in dollars?", "Is it 11 or 12?", RIVALS]),
)
def test_no_text_passes_for_two_numbers(
    forms: list[str], joins: list[str], tolerance: Fraction | None, question: str
) -> None:
    """At most one of several numbers passes, whatever their forms and however they are joined."""
    guesses = [number_text(form, number) for form, number in zip(forms, GUESSES, strict=False)]
    text = "".join(itertools.chain(*itertools.zip_longest(guesses, joins[: len(guesses) - 1], fillvalue="")))
    assert len(accepted_numbers(text, tolerance, question)) <= 1, text


@given(
    st.lists(st.sampled_from(choice_forms), min_size=2, max_size=3),
    st.lists(st.sampled_from(JOINS), min_size=2, max_size=2),
    st.sampled_from(CHOICES),
)
def test_no_text_passes_for_two_choices(forms: list[str], joins: list[str], choices: list[str]) -> None:
    """At most one of several named choices passes, whatever their forms and however they are joined."""
    guesses = [choice_text(form, right, choices) for right, form in enumerate(forms)]
    text = "".join(itertools.chain(*itertools.zip_longest(guesses, joins[: len(guesses) - 1], fillvalue="")))
    assert len(accepted_choices(text, choices)) <= 1, text


@pytest.mark.parametrize(
    ("text", "only"),
    [
        ("16 because 8*2 = 17 because 9*2 = 18", ["16"]),
        ("11 because 1*1 = 12 because 1*1 = 13 because 1*1 = 14 because 1*1 = 15", ["11"]),
        ("\\boxed{11 because 1*1 = 12}", ["11"]),
        ("#### 11 because 6*2 = 12", ["11"]),
        ("The answer is 11 because 6*2 = 12", ["11"]),
        ("She makes $11 because 6*2 = $12", ["11"]),
        ("<answer>11 because 6*2 = 12</answer>", ["11"]),
        ('{"answer": "11 because 6*2 = 12"}', ["11"]),
        ("Answer: 18 because 16 - 7 = 9 eggs", ["18"]),
        ("11 \u2014 6*2 = 12", []),
        ("11. 6*2 = 12", []),
        ("11 as 6*2 = 12", []),
        ("18 because 9 * 2 = 18", ["18"]),
    ],
)
def test_an_equation_that_explains_is_no_second_answer(text: str, only: list[str]) -> None:
    """The result of an equation that follows an answer is not accepted, unless it equals the answer."""
    assert accepted_numbers(text, Fraction(0)) == only
    assert accepted_numbers(text, None) == only


@pytest.mark.parametrize(
    "text",
    ["Answer: C because 2*2 = 4", "C, since [Q:K] = 4", "(C) because the index = 4", "Answer: 2 because [K:Q] = 4"],
)
def test_an_equation_that_explains_names_no_other_choice(text: str) -> None:
    """An answer that names a choice fails if the equation after it results in the text of another choice."""
    assert accepted_choices(text, CHOICES[0]) == []
    assert accepted_choices(text, ["0", "9", "2", "6"]) == [2]


@pytest.mark.parametrize("text", ["3/4 \u2014 2*2 = 5", "35% \u2014 2*2 = 5", "3/4. 2*2 = 5"])
def test_an_answer_that_is_no_plain_number_is_not_accepted_beside_an_equation(text: str) -> None:
    """A fraction or percentage before an equation is not accepted. At most the result of the equation is."""
    golds = ("3/4", "35%", "5")
    assert [gold for gold in golds if judge_short_answer(text, ExpectedAnswer((gold,))).reason is None] in ([], ["5"])


WORD_GUESSES = (
    ("Who wrote the novel?", ("Mary Shelley", "Bram Stoker", "Percy Shelley")),
    ("What bends light in water?", ("refraction", "reflection", "diffraction")),
    ("Which state is it in?", ("Vatican City", "Vatican", "Rome")),
    ("Is it so?", ("yes", "no")),
)
WORD_FORMS = (
    "{}",
    "It is {}.",
    "**{}**",
    "The answer is {}",
    "Answer: {}",
    "the novelist {}",
    "{} wrote it",
    "the light of {}",
    "{} (1797)",
    "because of {}",
)
WORD_JOINS = (
    *JOINS,
    ", the ",
    ", the author of ",
    ", a kind of ",
    ", also known as ",
    ", not ",
    " (not ",
    ", who was ",
    ", which is the same as ",
    " by ",
    " in ",
    " with ",
    " and called ",
    " is due to ",
    ". It is also known as ",
    " \u2014 she is ",
    "\nIt is ",
    "\n\nThis is ",
    " (that is, ",
    " is the name of ",
)


@given(
    st.sampled_from(WORD_GUESSES),
    st.lists(st.sampled_from(WORD_FORMS), min_size=3, max_size=3),
    st.lists(st.sampled_from(WORD_JOINS), min_size=2, max_size=2),
)
@settings(max_examples=400)
def test_no_text_passes_for_two_phrases(
    guesses: tuple[str, tuple[str, ...]], forms: list[str], joins: list[str]
) -> None:
    """At most one of several guesses in words passes, whatever their forms and however they are joined."""
    question, golds = guesses
    shown = [form.format(gold) for form, gold in zip(forms, golds, strict=False)]
    text = "".join(itertools.chain(*itertools.zip_longest(shown, joins[: len(shown) - 1], fillvalue="")))
    passed = [
        gold for gold in golds if judge_short_answer(text, ExpectedAnswer((gold,), None, question)).reason is None
    ]
    assert len(passed) <= 1, text
