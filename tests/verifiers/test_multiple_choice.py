"""Multiple choice is judged by the one choice that the final answer names."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.errors import FailureReason
from securebench.families.normalization import normalize_text
from securebench.testing.judging.text import verdict
from securebench.verifiers.base import MAX_TEXT_BYTES
from securebench.verifiers.text.multiple_choice import (
    MultipleChoiceVerifier,
    judge_choice,
    named_choices,
)

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.resources import JsonValue

CITIES = ["Lyon", "Paris", "Nice", "Lille"]
TRUTHS = ["True, True", "False, False", "True, False", "False, True"]
ZEROS = ["0", "1", "0,1", "0,4"]
DEGREES = ["0", "4", "2", "6"]


def _reason(text: str | None, choices: list[str], answer: JsonValue) -> FailureReason | None:
    result = verdict(
        MultipleChoiceVerifier(), text, public={"question": "Q", "choices": list(choices)}, hidden={"answer": answer}
    )
    return result.reason


@pytest.mark.parametrize(
    "text",
    [
        "B",
        "b",
        "(B)",
        "[B]",
        "B.",
        "B)",
        "B:",
        "**B**",
        "\\boxed{B}",
        "Paris",
        "paris.",
        '"Paris"',
        "B. Paris",
        "(B) Paris",
        "B: Paris",
        "B - Paris",
        "B \u2014 Paris",
        "**B.** Paris",
        "Answer: B",
        "**Answer: B**",
        "The correct answer is (B).",
        "The answer is B: Paris",
        "It is option B",
        "I think the answer is option (B) Paris.",
        "B is correct.",
        "Lyon is smaller, Nice is warmer, Lille is northern.\n\nAnswer: B",
        "A, C and D are wrong.\nB",
    ],
)
def test_one_right_choice_by_label_or_text_passes(text: str) -> None:
    """A final answer that names the right choice, by label, by text or by both, passes."""
    assert _reason(text, CITIES, "B") is None


@pytest.mark.parametrize(
    ("text", "choices", "index"),
    [
        ("True, False", TRUTHS, 2),
        ("true, false", TRUTHS, 2),
        ("True,False", TRUTHS, 2),
        ("C. True, False", TRUTHS, 2),
        ("Answer: C) True,False", TRUTHS, 2),
        ("0", ZEROS, 0),
        ("1", ZEROS, 1),
        ("0,1", ZEROS, 2),
        ("0, 1", ZEROS, 2),
        ("0,4", ZEROS, 3),
        ("D: 0, 4", ZEROS, 3),
        ("(D) 0,4", ZEROS, 3),
        ("2x^2 + 5", ["2x^2+5", "6x^2+4x+6"], 0),
        ("-5", ["5", "-5"], 1),
        ("- 5", ["5", "-5"], 1),
        ("B) -5", ["5", "-5"], 1),
        ("(0,1)", ["[0,1]", "(0,1)", "0,1"], 1),
        ("0,1", ["[0,1]", "(0,1)", "0,1"], 2),
        ("x\u00b2", ["x2", "x\u00b2"], 1),
        ("AB", ["A,B", "AB"], 1),
        ("Not a group", ["A group", "Not a group"], 1),
        ("line one\nline two", ["line one line two", "line two is it"], 0),
    ],
)
def test_choices_that_look_alike_are_told_apart(text: str, choices: list[str], index: int) -> None:
    """E02: signs, brackets, superscripts and separators distinguish choices; spaces beside them do not."""
    for wanted in range(len(choices)):
        reason = judge_choice(text, choices, frozenset({wanted})).reason
        assert reason == (None if wanted == index else FailureReason.WRONG_ANSWER)


@pytest.mark.parametrize(
    "text",
    [
        "A B C D",
        "A, B, C, D",
        "B or C",
        "B and C",
        "A/B (B or A)",
        "Answer: either B or A",
        "Paris Lyon",
        "Paris, Lyon, Nice, Lille",
        "B. Lyon",
        "Lyon (B)",
        "Answer: A Answer B",
        "B, since A is not it",
    ],
)
def test_two_choices_are_ambiguous(text: str) -> None:
    """E03, E04: lists, hedges and labels with another choice's text are ambiguous, even if each choice is accepted."""
    assert _reason(text, CITIES, ["A", "B", "C", "D"]) is FailureReason.AMBIGUOUS_ANSWER


@pytest.mark.parametrize(
    "text",
    [
        "not B",
        "Answer: not Paris",
        "B?",
        "B is wrong",
        "maybe B",
        "anything but Paris",
        "E",
        "1",
        "Par\u0456s",
        "\u0412",
        "{}",
        "null",
        "None",
        "Answer:",
        '{"answer": "1"}',
        "<answer>one</answer>",
        "Paris" * 3_000,
    ],
)
def test_what_does_not_name_a_choice_fails(text: str) -> None:
    """E01, E04, E08: a denied or doubted choice, an index, a look-alike letter or an empty answer names no choice."""
    assert _reason(text, CITIES, "B") is FailureReason.WRONG_ANSWER


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", FailureReason.CANDIDATE_EMPTY),
        (" \n\t", FailureReason.CANDIDATE_EMPTY),
        ("\u200b\u2060\ufeff", FailureReason.CANDIDATE_EMPTY),
        ("\x00", FailureReason.CANDIDATE_EMPTY),
        (None, FailureReason.CANDIDATE_NOT_TEXT),
        ("x" * MAX_TEXT_BYTES + "\nB", FailureReason.CANDIDATE_TOO_LARGE),
    ],
)
def test_what_is_no_answer_at_all_fails_before_it_is_read(text: str | None, reason: FailureReason) -> None:
    """E01, E08: candidates that are empty, invisible, not text or too large fail with a matching reason."""
    assert _reason(text, CITIES, "B") is reason


@pytest.mark.parametrize(
    ("answer", "choices", "expected"),
    [
        ("B", CITIES, {1}),
        ("b", CITIES, {1}),
        ("Paris", CITIES, {1}),
        (1, CITIES, {1}),
        (["B", "Nice", 3], CITIES, {1, 2, 3}),
        (0, DEGREES, {0}),
        ("0", DEGREES, {0}),
        (1, DEGREES, {1}),
        ("4", DEGREES, {1}),
        ("6", DEGREES, {3}),
        (True, CITIES, set()),
        (4, CITIES, set()),
        (-1, CITIES, set()),
        ("", CITIES, set()),
        ("Berlin", CITIES, set()),
    ],
)
def test_a_number_is_an_index_and_a_string_a_label_or_text(
    answer: JsonValue, choices: list[str], expected: set[int]
) -> None:
    """E07: in a pack, a number is the index of a choice, a string is its label or text, and a boolean is no answer."""
    named = {index for index in range(len(choices)) if _reason("ABCD"[index], choices, answer) is None}
    assert named == expected


def test_a_candidate_gives_no_index() -> None:
    """E07: a number in a candidate can match the text of a choice. It is never an index."""
    assert named_choices("1", CITIES) == frozenset()
    assert named_choices("1", ZEROS) == {1}


def test_every_label_has_its_choice() -> None:
    """Labels continue with AA after Z, so the thirtieth choice has the label AD."""
    choices = [f"choice number {n}" for n in range(30)]
    assert named_choices("AD", choices) == {29}
    assert named_choices("d", choices) == {3}


def test_the_words_of_a_choice_are_never_filler() -> None:
    """E03: if the filler word `right` is a choice, `left right` names two choices."""
    assert judge_choice("left right", ["left", "right"], frozenset({0})).reason is FailureReason.AMBIGUOUS_ANSWER
    assert judge_choice("it is right", ["left", "right"], frozenset({1})).reason is None


def test_the_metadata_names_verifier_version_phase_and_reason_and_no_answer() -> None:
    """The metadata name verifier, version, phase, reason and rule. Neither they nor the message contain the answer."""
    result = verdict(
        MultipleChoiceVerifier(),
        "Answer: C",
        public={"question": "Q", "choices": ["one", "two", "canary-5e1f"]},
        hidden={"answer": "two"},
    )
    assert result.metadata == {
        "verifier": "multiple_choice",
        "version": "4",
        "phase": "comparison",
        "reason": "wrong_answer",
        "rule": "choice",
    }
    assert result.message == "the response does not give an accepted answer"
    assert (result.passed, result.score, result.stdout, result.stderr) == (False, 0.0, "", "")


class _Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return (pytest.fail, ("the candidate was unpickled",))


@pytest.mark.parametrize(
    "text",
    [
        pickle.dumps(_Bomb(), protocol=0).decode(),
        "!!python/object/apply:pytest.fail ['loaded']",
        "__import__('pytest').fail('evaluated')",
        "{0.__class__}",
        "%s%n",
        "$(touch planted)",
    ],
)
def test_a_candidate_is_never_evaluated_or_deserialised(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A20, A21: a pickle, YAML tag, expression, format or shell string is just a wrong answer. It creates no file."""
    monkeypatch.chdir(tmp_path)
    assert _reason(text, CITIES, "B") is FailureReason.WRONG_ANSWER
    assert list(tmp_path.iterdir()) == []


@given(st.text(st.characters(), max_size=300))
def test_no_text_without_the_answer_passes(text: str) -> None:
    """A15: no text without the answer passes or raises an error, not even a text with surrogates."""
    if "q" not in normalize_text(text):
        choices = ["x", "y", *(f"z{n}" for n in range(14)), "qqq"]
        assert judge_choice(text, choices, frozenset({16})).reason is not None
        assert _reason(text, choices, "Q") is not None


@given(st.binary(max_size=300))
def test_no_bytes_without_the_answer_pass(data: bytes) -> None:
    """A15: arbitrary bytes without the answer, in any decoding, raise no error and do not pass."""
    for text in (data.decode("utf-8", "replace"), data.decode("utf-8", "surrogateescape"), data.decode("latin-1")):
        if "q" not in normalize_text(text):
            choices = [*(f"z{n}" for n in range(16)), "qqq"]
            assert _reason(text, choices, "qqq") is not None
