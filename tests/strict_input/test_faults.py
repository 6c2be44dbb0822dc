"""Faults, problems and the text of their messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from securebench.errors import ConfigError
from securebench.strict_input.faults import (
    MAX_PROBLEMS,
    Fault,
    Position,
    Problems,
    did_you_mean,
    name_of,
    pointer,
    shown,
)
from securebench.strict_input.files import FileSource


def test_a_pointer_is_escaped() -> None:
    """Pointers follow RFC 6901, and terminal control sequences in them are escaped."""
    assert pointer(("a/b", 0, "c~d", "\x1b[31m")) == "/a~1b/0/c~0d/\\x1b[31m"


def test_a_name_is_written_as_people_write_it() -> None:
    """Indexes are written in brackets, and keys are separated by dots."""
    assert name_of(("eval", "tests", 2, "code")) == "eval.tests[2].code"


@pytest.mark.parametrize(("text", "quoted"), [("x", "'x'"), ("\x1b[2J", "'\\x1b[2J'"), ("\ud800", "'\\ud800'")])
def test_shown_text_is_harmless(text: str, quoted: str) -> None:
    """Control characters and surrogates are escaped in messages."""
    assert shown(text) == quoted


def test_shown_text_is_short() -> None:
    """A long value is shortened in messages."""
    assert len(shown("x" * 10_000)) < 100


def test_a_near_word_is_suggested_and_else_all_are_listed() -> None:
    """For a typo, the closest known word is suggested. For any other word, all known words are listed."""
    assert did_you_mean("qestion", ["question", "choices"]) == "did you mean 'question'?"
    assert did_you_mean("zzz", ["question", "choices"]) == "expected one of: choices, question"
    assert did_you_mean("zzz", []) == ""


def test_problems_are_capped_counted_and_in_the_order_of_lines() -> None:
    """At most ``MAX_PROBLEMS`` problems are reported, sorted by line. A last entry counts those that are left out."""
    problems = Problems()
    for line in range(MAX_PROBLEMS + 5, 0, -1):
        problems.add(Fault("x", "y", position=Position(line)), FileSource(Path("f")))
    with pytest.raises(ConfigError) as caught:
        problems.raise_if_any()
    lines = [problem.location.line or 0 for problem in caught.value.problems if problem.location]
    assert lines == sorted(lines)
    assert len(lines) == MAX_PROBLEMS
    assert caught.value.problems[-1].code == "more-problems"
    assert caught.value.problems[-1].message.startswith("5 more")


def test_no_problems_raise_nothing() -> None:
    """An empty list of problems does not raise an error."""
    Problems().raise_if_any()
