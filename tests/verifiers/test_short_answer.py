"""Tests of short answers: an answer must match exactly, as a number, or as a phrase among filler words."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.errors import FailureReason
from securebench.families.normalization import normalize_text
from securebench.testing.judging.text import verdict
from securebench.verifiers.base import MAX_TEXT_BYTES
from securebench.verifiers.text.short_answer import (
    ExpectedAnswer,
    ShortAnswerVerifier,
    judge_short_answer,
)

if TYPE_CHECKING:
    from securebench.resources import JsonValue

WRONG = FailureReason.WRONG_ANSWER
AMBIGUOUS = FailureReason.AMBIGUOUS_ANSWER
CAPITAL = "What is the capital of France?"
TOWER = "In which year was the tower built?"
MASS = "How heavy is the block, in kg?"


def _reason(
    text: str | None, accepted: list[JsonValue], question: str = CAPITAL, tolerance: JsonValue = None
) -> FailureReason | None:
    hidden: dict[str, JsonValue] = {"accepted_answers": accepted}
    if tolerance is not None:
        hidden["tolerance"] = tolerance
    return verdict(ShortAnswerVerifier(), text, public={"question": question}, hidden=hidden).reason


@pytest.mark.parametrize(
    ("text", "accepted", "question"),
    [
        ("Paris", ["Paris"], CAPITAL),
        ("paris.", ["Paris"], CAPITAL),
        ("**Paris**", ["Paris"], CAPITAL),
        ("Answer: Paris", ["Lutetia", "Paris"], CAPITAL),
        ("I was not sure at first, London came to mind.\n\nThe answer is Paris.", ["Paris"], CAPITAL),
        ("It is Paris", ["Paris"], CAPITAL),
        ("I think it's Paris.", ["Paris"], CAPITAL),
        ("The capital of France is Paris", ["Paris"], CAPITAL),
        ("Paris, France", ["Paris"], CAPITAL),
        ("It was built in 1889.", ["1889"], TOWER),
        ("-5", ["-5"], CAPITAL),
        ("New   York", ["New York"], CAPITAL),
        ("New\nYork", ["New York"], CAPITAL),
        ("caf\u0065\u0301", ["caf\u00e9"], CAPITAL),
        ("not applicable", ["not applicable"], CAPITAL),
        ("left or right", ["left or right"], CAPITAL),
        ("42", [42], CAPITAL),
        ("he", ["he"], CAPITAL),
    ],
)
def test_an_accepted_answer_passes_alone_or_among_words_that_say_nothing(
    text: str, accepted: list[JsonValue], question: str
) -> None:
    """A final answer passes if it equals an accepted answer after normalisation, or adds only filler to it."""
    assert _reason(text, accepted, question) is None


@pytest.mark.parametrize("form", ["{}", "Answer: {}", "The answer is {}.", "**{}**", "\\boxed{{{}}}", "Hm.\n{}"])
@pytest.mark.parametrize(
    "answer",
    [
        "3; 5",
        "3, 5",
        "3 and 5",
        "3: 5",
        "3. 5",
        "3 (5)",
        "3 \u2014 5",
        "3; 5; 7",
        "(3; 5)",
        "x = 3; y = 5",
        "$3; $5",
        "42 (7 x 6)",
        "2 + 3 = 5; 5 + 1 = 6",
    ],
)
def test_an_accepted_answer_passes_with_any_separator(answer: str, form: str) -> None:
    """An answer that equals an accepted one passes, even if a part of it alone is a number."""
    assert _reason(form.format(answer), [answer]) is None


@pytest.mark.parametrize("answer", ["Yahoo!", "$x$", "# x", "The answer is 42", "#### 5", "3\n5"])
def test_a_text_that_equals_an_accepted_answer_passes(answer: str) -> None:
    """A text that equals an accepted answer passes, even if it has markup or a cue such as ``The answer is``."""
    assert _reason(answer, [answer]) is None
    assert _reason(answer, ["5", answer]) is None


@pytest.mark.parametrize("separator", [", ", "; ", ": "])
@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("{} because they are the roots of the polynomial", None),
        ("{} (roots of it)", AMBIGUOUS),
        ("{}, 7", AMBIGUOUS),
        ("{}; 7", AMBIGUOUS),
        ("{}. 7", AMBIGUOUS),
        ("{} or 7", AMBIGUOUS),
        ("{} (7)", AMBIGUOUS),
        ("Answer: {}\n7", AMBIGUOUS),
        ("not {}", AMBIGUOUS),
        ("3; 7\n{}", None),
        ("{}\n3; 7", WRONG),
        ("Answer: {}\nAnswer: 3; 7", WRONG),
    ],
)
def test_another_number_beside_a_list_of_numbers_is_another_answer(
    form: str, reason: FailureReason | None, separator: str
) -> None:
    """A list of numbers may be followed by a reason with ``because``, but not by another number or a note in brackets.

    A denied list fails. If a text gives two lists on separate lines, only the last one is judged.
    """
    assert _reason(form.format(f"3{separator}5"), ["3, 5", "3; 5", "3: 5"]) is reason


@pytest.mark.parametrize(
    ("text", "accepted", "passes"),
    [
        ("Apollo 11 and Apollo 12 (1969)", "Apollo 11 and Apollo 12", True),
        ("8 000 000 000 (2022)", "8 000 000 000", True),
        ("5 m 3 cm (5.03)", "5 m 3 cm", True),
        ("3/4 (0.75)", "3/4", True),
        ("3, 5 (!)", "3, 5", True),
        ("x = 3, y = 5 (6)", "x = 3, y = 5", False),
        ("x = 3; y = 5 (6)", "x = 3; y = 5", False),
        ("3 and 5 (6)", "3 and 5", False),
        ("3, 5, 7. 9", "3, 5, 7", False),
    ],
)
def test_a_note_in_figures_may_follow_words_but_not_a_list_of_numbers(text: str, accepted: str, passes: bool) -> None:
    """A number may follow a name, a measurement or one number, but not a list, because it could be part of the list."""
    assert (_reason(text, [accepted]) is None) is passes


TRAYS = "A bakery fills 7 trays with 6 rolls each, after 40 rolls were sold in 8 hours. How many rolls are there?"


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("42 (7 trays x 6 rolls)", True),
        ("42 (7 x 6)", True),
        ("42 (7 trays X 6 rolls each)", True),
        ("42. 7 x 6", True),
        ("Answer: 42\n7 trays x 6 rolls", True),
        ("42 (7 x 5)", False),
        ("42 x 6", False),
        ("6 x 7", False),
        ("42 (x 6)", False),
        ("42 x", False),
        ("4x6 or 42", False),
        ("42 or 4x6", False),
        ("42 (40 x)", False),
        ("42 (40, 7 x 6)", False),
        ("42 (40 trays 7 x 6)", False),
        ("42 (or 40 x 8 rolls)", False),
        ("42 (40 or x 8)", False),
        ("42 (40 not x 8)", False),
        ("Answer: 42\n8 x 6 = 40", False),
        ("x = 43, 6 x 7 = 42", False),
    ],
)
def test_a_product_of_numbers_of_the_question_may_follow_an_answer(text: str, passes: bool) -> None:
    """A product of numbers of the question may explain an answer. Other numbers beside ``x`` may not."""
    assert (_reason(text, [42], TRAYS) is None) is passes


@pytest.mark.parametrize(
    ("text", "accepted", "question", "reason"),
    [
        ("Paris, London, Rome", ["Paris"], CAPITAL, AMBIGUOUS),
        ("Paris London Rome", ["Paris"], CAPITAL, AMBIGUOUS),
        ("Paris or London", ["Paris"], CAPITAL, AMBIGUOUS),
        ("either Paris or London", ["Paris"], CAPITAL, AMBIGUOUS),
        ("Paris and London", ["Paris"], CAPITAL, AMBIGUOUS),
        ("Paris Paris", ["Paris"], CAPITAL, AMBIGUOUS),
        ("Paris/London", ["Paris"], CAPITAL, WRONG),
        ("Paris;London", ["Paris"], CAPITAL, WRONG),
        ("Paris, Lutetia", ["Paris", "Lutetia"], CAPITAL, AMBIGUOUS),
        ("1887 1888 1889 1890", ["1889"], TOWER, AMBIGUOUS),
        ("red blue", ["red"], "Is it red or blue?", AMBIGUOUS),
        ("neither red", ["neither"], "Is it red or blue?", AMBIGUOUS),
        ("equal red", ["equal"], "Which is more, red or blue?", AMBIGUOUS),
        ("3 5", ["3"], "Which of 3 and 5 is odd and a divisor of 9?", AMBIGUOUS),
        ("red blue", ["red"], "Red, blue: which one is warm?", AMBIGUOUS),
        ("he it we i", ["he"], "Which pronoun fits?", AMBIGUOUS),
        ("in on at", ["in"], "Which preposition fits?", AMBIGUOUS),
        ("true false", ["true"], "Is this true?", AMBIGUOUS),
        ("yes no", ["yes"], "Is this right?", AMBIGUOUS),
        ("Paris " + "the " * 30, ["Paris"], CAPITAL, AMBIGUOUS),
        ("Paris\nLondon", ["Paris"], CAPITAL, WRONG),
        ("Answer: Paris\nAnswer: London", ["Paris"], CAPITAL, WRONG),
    ],
)
def test_a_list_of_guesses_never_passes(
    text: str, accepted: list[JsonValue], question: str, reason: FailureReason
) -> None:
    """E03: a list of guesses fails, whatever separates the guesses and even if the question contains them."""
    assert _reason(text, accepted, question) is reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not Paris", AMBIGUOUS),
        ("It is not Paris", AMBIGUOUS),
        ("It isn\u2019t Paris", AMBIGUOUS),
        ("maybe Paris", AMBIGUOUS),
        ("Paris is wrong", AMBIGUOUS),
        ("anything except Paris", AMBIGUOUS),
        ("Paris?", WRONG),
    ],
)
def test_an_answer_taken_back_fails(text: str, reason: FailureReason) -> None:
    """E04: an accepted answer beside a negation or hedge fails, even if the question contains the same word."""
    assert (
        _reason(text, ["Paris"], "Which city, not Rome, is the capital of France? Is it anything except Rome?")
        is reason
    )


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("She bought 42 apples.", "How many apples did she buy?"),
        ("He paid 42 dollars", "How many dollars does he pay?"),
        ("They saw 42 birds", "How many birds have they seen?"),
        ("It flew 42 miles", "How many miles did it fly?"),
        ("She spent 42 dollars", "How many dollars does she spend?"),
    ],
)
def test_an_irregular_verb_of_the_question_may_be_in_another_form(text: str, question: str) -> None:
    """An answer may use another form of a verb of the question: ``bought`` for ``buy``."""
    assert _reason(text, ["42"], question) is None


@pytest.mark.parametrize(
    ("text", "question", "passes"),
    [
        ("Answer: 42. Wait, actually.", TOWER, False),
        ("Answer: 42 maybe", TOWER, False),
        ("42. Doubtful.", TOWER, False),
        ("42 joking", TOWER, False),
        ("\\boxed{42} oops", TOWER, False),
        ("\\boxed{42} mistakes", TOWER, True),
        ("42 mistakes", TOWER, True),
        ("\\boxed{42} mistake", "How many mistakes did he make?", True),
        ("42 guess", "How many guesses does she need?", True),
        ("\\boxed{42} second", "How long does it take?", True),
        ("42 seconds", "How long does it take?", True),
    ],
)
def test_a_word_of_doubt_after_a_number_is_not_its_unit(text: str, question: str, *, passes: bool) -> None:
    """E04: a word of doubt after a number, such as ``oops``, is not read as the number's unit.

    An exception is a word such as ``guess`` if the question asks how many guesses there are.
    """
    assert (_reason(text, ["42"], question) is None) == passes


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("5", "-5"),
        ("-5", "5"),
        (".5", "5"),
        ("5%", "5"),
        ("0.5", "5"),
        ("1,5", "15"),
        ("AB", "A,B"),
        ("x2", "x\u00b2"),
        ("\u0663", "3"),
        ("\uff15", "5"),
        ("P\u0430ris", "Paris"),
        ("Parisian", "Paris"),
        ("Par is", "Paris"),
        ("{}", "Paris"),
        ("null", "Paris"),
        ("5.0", "5"),
    ],
)
def test_what_a_reader_would_call_different_stays_different(text: str, accepted: str) -> None:
    """E02: a difference in a sign, point, separator, superscript or look-alike letter is never ignored."""
    assert _reason(text, [accepted]) is WRONG


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", FailureReason.CANDIDATE_EMPTY),
        (" \r\n", FailureReason.CANDIDATE_EMPTY),
        ("\u200b", FailureReason.CANDIDATE_EMPTY),
        (None, FailureReason.CANDIDATE_NOT_TEXT),
        ("Paris\n" * (MAX_TEXT_BYTES // 6 + 1), FailureReason.CANDIDATE_TOO_LARGE),
    ],
)
def test_what_is_no_answer_at_all_fails(text: str | None, reason: FailureReason) -> None:
    """E01, E08: empty, invisible, undecodable and oversized candidates each fail with a specific reason."""
    assert _reason(text, ["Paris"]) is reason


@pytest.mark.parametrize(
    "text", ["42", "42.0", "42.1", "41.9", "+42", "4.2e1", "Answer: 42", "It is 42.05 kg.", "**41.95**", "42."]
)
def test_a_number_within_the_tolerance_passes(text: str) -> None:
    """A decimal number passes if it differs from an accepted number by at most the tolerance."""
    assert _reason(text, [42], MASS, 0.1) is None
    assert _reason(text, ["42"], MASS, 0.1) is None


@pytest.mark.parametrize(
    "text",
    [
        "42.1000000000000000000000001",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "Infinity",
        "4_2",
        "42,0",
        "\u0664\u0662",
        "\uff14\uff12",
        "0x2a",
        "42 43",
        "41 42 43",
        "42 or 43",
        "42+0",
        "42%",
        "about 42",
        "-42",
        "\u221242",
        "1e99999",
        "4" * 101,
        "42e",
        "forty-three",
        "forty two forty",
    ],
)
def test_only_one_strict_finite_decimal_is_near(text: str) -> None:
    """E02, E03: NaN, infinities, underscores, non-ASCII digits, lists, percentages and huge numbers never pass."""
    assert _reason(text, [42], MASS, 0.1) is not None


def test_nan_is_not_near_through_a_negated_comparison() -> None:
    """NaN is not accepted as a number. With floats, `not (abs(nan - 5) > tol)` would be true."""
    assert judge_short_answer("nan", ExpectedAnswer(("5",), Fraction(1))).reason is WRONG


def test_the_tolerance_is_exact() -> None:
    """With tolerance 0, 0.3 equals 0.30, but 0.30000000000000004 does not equal 0.3."""
    assert _reason("0.3", ["0.30"], MASS, 0) is None
    assert _reason("0.30000000000000004", ["0.3"], MASS, 0) is WRONG


@pytest.mark.parametrize(("text", "reason"), [("42", None), ("42.0", None), ("4.2e1", None), ("42.01", WRONG)])
def test_json_numbers_are_compared_as_numbers(text: str, reason: FailureReason | None) -> None:
    """E02: `42` and `42.0` are equal if all accepted answers are JSON numbers, and different if one is a text."""
    assert _reason(text, [42], MASS) is reason
    assert _reason(text, ["42", 7], MASS) is (None if text == "42" else WRONG)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ('{"answer": true}', True),
        ('{"answer": "true"}', True),
        ('{"answer": "true", "explanation": "7 is odd"}', True),
        ('{"answer": true, "correct": true}', True),
        ('{"answer": "true", "correct": "false"}', False),
        ('{"answer": true, "final_answer": "false"}', False),
        ('{"answer": "false"}', False),
    ],
)
def test_an_answer_in_json_can_be_the_word_true(text: str, passes: bool) -> None:
    """The JSON value ``true`` is an answer, and not a flag, unless the object contains another answer."""
    assert (_reason(text, ["true"], "Is 7 odd? Answer true or false.") is None) is passes


def test_text_beside_a_tolerance_is_still_compared_as_text() -> None:
    """An accepted answer that is not a number is compared as text, even if the row has a tolerance."""
    assert _reason("none at all", ["none at all", "0"], MASS, 0.5) is None
    assert _reason("0.4", ["none at all", "0"], MASS, 0.5) is None


def test_neither_message_nor_metadata_holds_a_hidden_value() -> None:
    """The result of a failed answer gives the reason, but neither an accepted answer nor the tolerance."""
    result = verdict(
        ShortAnswerVerifier(),
        "canary-7c not",
        public={"question": CAPITAL},
        hidden={"accepted_answers": ["canary-7c"], "tolerance": 0.125},
    )
    assert "canary" not in f"{result}"
    assert "125" not in f"{result}"
    assert result.metadata["verifier"] == "short_answer"
    assert result.metadata["reason"] == result.reason == AMBIGUOUS


@given(st.binary(max_size=200), st.sampled_from([None, Fraction(1, 2)]))
def test_no_bytes_without_the_answer_pass(data: bytes, tolerance: Fraction | None) -> None:
    """A15: arbitrary bytes without an accepted answer, however decoded, neither pass nor raise an error."""
    expected = ExpectedAnswer(("zq", "-987654321"), tolerance, CAPITAL)
    for text in (data.decode("utf-8", "replace"), data.decode("utf-8", "surrogateescape"), data.decode("latin-1")):
        if "zq" not in normalize_text(text):
            assert judge_short_answer(text, expected).reason is not None


@given(
    st.lists(st.sampled_from(["paris", "london", "rome", "berlin"]), min_size=2, unique=True),
    st.sampled_from(" ,;/|\t"),
)
def test_no_list_of_different_guesses_passes(guesses: list[str], separator: str) -> None:
    """E03: two or more different guesses fail in any order and with any separator."""
    expected = ExpectedAnswer(("Paris",), None, CAPITAL)
    assert judge_short_answer(separator.join(guesses), expected).reason is not None
