"""How the final answer is read from a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds import processor_seconds
from securebench.verifiers.text.final_answer import MAX_ANSWER_CHARACTERS, MAX_PARTS, readings
from securebench.verifiers.text.wording import boxes, plain, position, unwrapped, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Paris", ("Paris",)),
        ("Answer: Paris", ("Paris",)),
        ("ANSWER = 5", ("5",)),
        ("The answer is Paris", ("Paris",)),
        ("The answer is: Paris", ("Paris",)),
        ("**Answer:** Paris", ("Paris",)),
        ("**Answer: Paris**", ("Paris**",)),
        ("Final answer: **Paris**.", ("Paris",)),
        ("The answer is $\\boxed{5}$", ("5",)),
        ("#### 42", ("42",)),
        ("> Paris", ("Paris",)),
        ("- 5", ("- 5",)),
        ("> 5", ("> 5",)),
        (">= 5", (">= 5",)),
        ("* B", ("B",)),
        ("\\[\n42\n\\]", ("42",)),
        ("Answer - B", ("B",)),
        ("Answer - 5", ("Answer - 5",)),
        ('{"answer": 42.50}', ("42.50",)),
        ('{"reasoning": "no", "final_answer": "B"}', ("B",)),
        ('{"value": 42}', ('{"value": 42}',)),
        ("<answer>\n42\n</answer>", ("42",)),
        ("The answer is \\boxed{\\frac{1}{2}}.", ("\\frac{1}{2}",)),
        ("Answer:\nParis", ("Paris", "Answer:", "Answer:\nParis")),
        ("Let me think.\r\nAnswer: Paris\r\n\r\n", ("Paris",)),
        ("```\nParis\n```", ("Paris",)),
        ("Thinking about it.\nParis", ("Paris", "Thinking about it.", "Thinking about it.\nParis")),
    ],
)
def test_the_final_answer_is_what_follows_the_last_cue_or_the_last_line(text: str, expected: tuple[str, ...]) -> None:
    """E08: a final answer is marked or follows the last cue.

    Without a mark or cue, the last line, the first line and the whole text are tried, in this order.
    """
    assert tuple(unwrapped(reading.answer) for reading in readings(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Answer: A\nAnswer: B", "B"),
        ("Answer: A. No, wait. Answer: B", "B"),
        ('Answer: A\n{"answer": "B"}', "B"),
        ("Answer: A\n<answer>B</answer>", "B"),
        ("Answer: A\nNow for the second part of the reasoning.\nSo the final answer is B", "B"),
        ("Answer: A\n```\nAnswer: B\n```", "B"),
    ],
)
def test_of_many_answers_only_the_one_on_the_last_line_is_read(text: str, expected: str) -> None:
    """E08: if a text has several answers, the last one is read."""
    assert unwrapped(readings(text)[0].answer) == expected


@pytest.mark.parametrize("text", ["", " \n\t\r\n", "\u200b\n\u2060", "```\n```", "~~~"])
def test_a_text_without_a_visible_line_has_no_final_answer(text: str) -> None:
    """E01: white space, invisible characters and code fences alone are not an answer."""
    assert readings(text) == ()


def test_a_final_answer_beyond_the_cap_is_none() -> None:
    """E08: a line with more than :data:`MAX_ANSWER_CHARACTERS` characters is not an answer."""
    assert readings("x" * MAX_ANSWER_CHARACTERS)
    assert readings("x" * (MAX_ANSWER_CHARACTERS + 1)) == ()


@pytest.mark.parametrize(
    "text",
    [
        "answer" + " " * 200_000,
        "answer*" * 30_000,
        "Answer: " * 30_000,
        "**" * 100_000,
        "Answer: x\n" * 20_000,
        "\\boxed{" * 30_000,
        "\\boxed{x}" * 20_000,
        "<answer>" * 30_000,
        "#### x\n" * 30_000,
        "{" * 200_000 + "}",
        '{"answer":' * 20_000 + "1" + "}" * 20_000,
        "$x" * 100_000,
        "\\text{" * 30_000,
        "# " * 100_000,
        "> " * 100_000,
        " , because" * 20_000,
        "x. " * 60_000,
    ],
)
def test_reading_is_linear(text: str) -> None:
    """E09: long texts of repeated markers are read within two seconds of processor time."""
    with processor_seconds(2):
        for reading in readings(text):
            list(reading.parts())


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("**B**", "B"),
        ("**B.**", "B."),
        ("**B**.", "B"),
        ("`x`", "x"),
        ("$4$", "4"),
        ("\\boxed{\\text{B}}", "B"),
        ("__B__", "B"),
        ("**", "**"),
        ("$5", "$5"),
        ("*" * 40 + "B" + "*" * 40, "*" * 24 + "B" + "*" * 24),
    ],
)
def test_marks_around_the_whole_answer_are_taken_off(answer: str, expected: str) -> None:
    """Up to eight layers of emphasis, code marks and LaTeX boxes around an answer are removed."""
    assert unwrapped(answer) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\textbf{(B)}", "(B)"),
        ("\\mathrm{\\text{B}}", "B"),
        ("$x$ and $y$", " x  and  y "),
        ("$5 and $6", "$5 and $6"),
        ("\\$5", "$5"),
        ("1{,}234", "1,234"),
        ("5\\%", "5%"),
        ("\\frac{1}{2}", "\\frac{1}{2}"),
    ],
)
def test_latex_is_read_as_it_looks(text: str, expected: str) -> None:
    """LaTeX fonts, delimiters and escapes are removed. Commands with a meaning, such as a fraction, are kept."""
    assert plain(text) == expected


def test_the_braces_of_a_box_must_match() -> None:
    """A box whose braces do not match is ignored."""
    assert [content for _, _, content in boxes("\\boxed{a{b}c} \\boxed{d} \\boxed{e")] == ["a{b}c", "d"]


def test_two_answers_in_one_marked_form_contradict_each_other() -> None:
    """Two boxes, tags or JSON answers contradict each other unless they have the same answer."""
    for text in ("\\boxed{1} \\boxed{2}", "<answer>1</answer><answer>2</answer>", '{"answer": 1, "answer": 2}'):
        assert [reading.contradicted for reading in readings(text)] == [True]
    assert not readings("\\boxed{1}, that is \\boxed{\\text{1}}")[0].contradicted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is (Paris), “really”.", ("it", "is", "paris", "really")),
        ("-5 .5 5% 5, 5.", ("-5", ".5", "5%", "5", "5")),
        ("isn\u2019t", ("isn't",)),
        ("( , )", ("(", ",", ")")),
        ("", ()),
    ],
)
def test_words_keep_their_signs_points_and_units(text: str, expected: tuple[str, ...]) -> None:
    """E02: a word keeps its sign, decimal point and unit. Punctuation around it is removed."""
    assert words(text) == expected


@pytest.mark.parametrize(
    ("part", "expected"), [(("b",), 1), (("b", "c"), 3), (("c", "d"), -1), ((), -1), (("a", "b", "b", "c", "x"), -1)]
)
def test_a_phrase_is_found_word_for_word(part: tuple[str, ...], expected: int) -> None:
    """A phrase is found where all its words follow each other in order. An empty phrase is not found."""
    assert position(part, ("a", "b", "b", "b", "c")) == expected


_LINES = st.sampled_from(["Answer: 5", "The answer is 6", "so it is 7", "because 8", "Answer: 9; " + "x: " * 20, "\n"])


@given(st.text() | st.lists(_LINES, max_size=6).map("\n".join))
def test_reading_never_raises(text: str) -> None:
    """A15: reading a random text raises no error, and returns a bounded number of readings and parts."""
    assert len(readings(text)) <= 4
    assert all(len(list(reading.parts())) <= MAX_PARTS + 1 for reading in readings(text))
    assert len(words(text)) <= len(text)
