"""Numbers followed by the singular or plural of a noun."""

from __future__ import annotations

import pytest

from securebench.plurals import counted


@pytest.mark.parametrize(
    ("number", "noun", "plural", "expected"),
    [
        (0, "task", "", "0 tasks"),
        (1, "task", "", "1 task"),
        (2, "task", "", "2 tasks"),
        (1500, "task", "", "1,500 tasks"),
        (1, "trajectory", "trajectories", "1 trajectory"),
        (2, "trajectory", "trajectories", "2 trajectories"),
        (1, "more step", "", "1 more step"),
    ],
)
def test_the_noun_follows_the_number(number: int, noun: str, plural: str, expected: str) -> None:
    """The noun is singular after 1 and plural after other numbers. Large numbers have thousands separators."""
    assert counted(number, noun, plural) == expected
