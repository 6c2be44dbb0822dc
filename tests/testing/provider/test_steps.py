"""Tests of how a script is split into answers."""

from __future__ import annotations

import pytest

from securebench.testing.provider import Fail, Hang, Say, Script, Shell
from securebench.testing.provider.steps import NOTHING_LEFT, Act, AnswerUsage, ModelAnswer, answer_at

ONE, TWO, WORDS, END = Shell("one"), Shell("two"), Say("words"), Say("end")


@pytest.mark.parametrize(
    ("script", "results", "acts"),
    [
        ((ONE, END), 0, (ONE,)),
        ((ONE, END), 1, (END,)),
        ((WORDS, ONE, TWO, END), 0, (WORDS, ONE)),
        ((WORDS, ONE, TWO, END), 1, (TWO,)),
        ((WORDS, ONE, TWO, END), 2, (END,)),
        ((WORDS, END), 0, (WORDS, END)),
        ((ONE,), 1, (NOTHING_LEFT,)),
        ((ONE, END), 2, (NOTHING_LEFT,)),
        ((ONE, END), 99, (NOTHING_LEFT,)),
        ((), 0, (NOTHING_LEFT,)),
    ],
)
def test_each_command_ends_an_answer(script: Script, results: int, acts: tuple[Act, ...]) -> None:
    """An answer has the texts up to the next command, and that command. After the script, it is ``NOTHING_LEFT``."""
    assert answer_at(script, results).acts == acts


def test_a_fault_belongs_to_the_answer_that_it_stands_before() -> None:
    """A fault applies only to the answer that comes after it in the script."""
    script = (ONE, Fail(500), TWO, Hang(1))
    assert [answer_at(script, results).faults for results in range(4)] == [(), (Fail(500),), (Hang(1),), ()]


def test_an_answer_has_the_usage_of_its_last_act() -> None:
    """An answer with a text and a command has the usage of the command."""
    usage = AnswerUsage(input=7)
    assert ModelAnswer((WORDS, Shell("one", usage))).usage is usage
