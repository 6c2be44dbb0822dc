"""Normalization of texts, labels of choices, and parsing of decimal numbers."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.families.normalization import choice_labels, normalize_text, strict_decimal


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Paris", "paris"),
        ("  the \t quick\n fox ", "the quick fox"),
        ("a\u00a0b\u2028c", "a b c"),
        ('"Paris."', "paris"),
        ('"Paris".', "paris"),
        ("“Paris”", "paris"),
        ("«oui»", "oui"),
        ("5.", "5"),
        (".5", ".5"),
        ("(a).", "(a)"),
        ('"a" or "b"', '"a" or "b"'),
        ("STRASSE", "strasse"),
        ("straße", "strasse"),
        ("Pa\u200bris\u0000", "paris"),
        ("\u202eParis\ufe0f", "paris"),
    ],
)
def test_texts_that_say_the_same_meet_in_one_form(text: str, expected: str) -> None:
    """Normalization folds case and collapses white space.

    It removes invisible characters, outer quotes and a final full stop.
    """
    assert normalize_text(text) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("-5", "5"),
        ("+5", "5"),
        ("1.5", "15"),
        ("A,B", "AB"),
        ("x²", "x2"),
        ("①", "1"),
        ("½", "1/2"),
        (".", ".."),
        ("..", "..."),
        ("''", '""'),
        ("''", ""),
        ("$5", "5"),
        ("5%", "5"),
        ("a b", "ab"),
        ("p\u0430ris", "paris"),
        ("O(n)", "O n"),
        ("!x", "x"),
    ],
)
def test_e02_different_answers_stay_different(one: str, other: str) -> None:
    """E02: normalization keeps signs, points, separators, superscripts and look-alike letters."""
    assert normalize_text(one) != normalize_text(other)


@pytest.mark.parametrize(
    "text", ["", " \t\n", "\u200b", "\u200b \ufeff\u2060", "\u3164", "\u2800\u115f", "\0", "\u00ad"]
)
def test_e01_what_shows_nothing_is_empty(text: str) -> None:
    """E01: a text of only white space, zero-width or blank characters normalises to the empty text."""
    assert normalize_text(text) == ""


@given(st.text())
def test_normalisation_is_idempotent(text: str) -> None:
    """Normalising a normalised text does not change it."""
    once = normalize_text(text)
    assert normalize_text(once) == once


@given(st.text(alphabet=st.sampled_from("aA1.\"'`“”\u2018\u2019„«». \u0301\u0345\u200bß")))
def test_normalisation_is_idempotent_where_rules_meet(text: str) -> None:
    """Quotes, full stops, combining marks and blanks in any order are fully normalised by one call."""
    once = normalize_text(text)
    assert normalize_text(once) == once


def test_labels_run_from_a_to_z_and_on() -> None:
    """Choices are labelled like the columns of a spreadsheet: A to Z, then AA, AB and so on."""
    labels = choice_labels(29)
    assert labels[:3] == ("A", "B", "C")
    assert labels[25:] == ("Z", "AA", "AB", "AC")
    assert choice_labels(0) == ()


@given(st.integers(min_value=0, max_value=2000))
def test_labels_are_distinct(count: int) -> None:
    """No two choices share a label."""
    assert len(set(choice_labels(count))) == count


@pytest.mark.parametrize(("text", "value"), [("5", 5), ("-5.50", "-5.5"), (".5", "0.5"), ("5.", 5), ("1e3", 1000)])
def test_a_strict_decimal_is_read(text: str, value: str | int) -> None:
    """ASCII digits with a sign, a decimal point or a small exponent are parsed as a number."""
    assert strict_decimal(text) == Decimal(value)


@pytest.mark.parametrize(
    "text",
    ["", " 5", "5 ", "1_000", "1,000", "\u0663", "nan", "inf", "-Infinity", "0x10", "5 or 6", "1e9999", "²", "--5"],
)
def test_what_only_python_reads_is_no_decimal(text: str) -> None:
    """NaN, infinity, and numbers with spaces, separators, non-ASCII digits or huge exponents are refused."""
    assert strict_decimal(text) is None
