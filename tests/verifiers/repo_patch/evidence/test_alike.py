"""Inverted copies of tests look like tests that people wrote, so that it is hard to tell which one is the copy."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from securebench.verifiers.repo_patch.evidence.inversion import inversions
from securebench.verifiers.repo_patch.evidence.source import ModuleSource
from securebench.verifiers.repo_patch.evidence.words import WORDS, NameMaker

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMES = 30
"""How often each random choice is repeated."""


def _copies(text: str) -> Iterator[ast.FunctionDef]:
    """Yield copies of the last function in ``text``: ``TIMES`` times, one for each choice of each inversion."""
    source = ModuleSource(text.encode())
    function = source.module.body[-1]
    assert isinstance(function, ast.FunctionDef)
    for _ in range(TIMES):
        for edits in [edits for found in inversions(function, source) for edits in found.choices]:
            copy = ast.parse(source.copy(source.block(function), edits)).body[0]
            assert isinstance(copy, ast.FunctionDef)
            yield copy


def _asserted(text: str) -> set[str]:
    return {ast.unparse(copy.body[-1]) for copy in _copies(text)}


PARAMETERS = """
@pytest.mark.parametrize("number, other, total", [(1, 2, 3), (5, 6, 11)])
def test_add(number, other, total):
    assert add(number, other) == EXPECTED
"""


@pytest.mark.parametrize(
    ("expected", "copies"),
    [
        ("total", "total"),  # only the values in the table are replaced
        ("other - 1", "other - N"),
        ("20 * number", "N * number"),
        ("number + other", "number + other + N"),
        ("number * 1 + other", "number * 1 + other + N"),
    ],
)
def test_other_values_of_parameters_are_expected(expected: str, copies: str) -> None:
    """A copy changes the values in the table, or the expression that the test expects.

    In the expression, it changes a number or adds one.
    """
    found = _asserted(PARAMETERS.replace("EXPECTED", expected))
    assert expected == "total" or f"assert add(number, other) == {expected}" not in found
    shown = {re.sub(r"\b\d+", "N", text) for text in found}
    assert shown == {f"assert add(number, other) == {re.sub('[0-9]+', 'N', copies)}"}


def test_true_is_expected_in_place_of_none() -> None:
    """A copy expects ``True`` in place of ``None``, which has no other value of its type. The copy must fail."""
    for before, after in (("load() == None", "load() == True"), ("load() == [None]", "load() == [True]")):
        assert _asserted(f"def test_load():\n    assert {before}\n") == {f"assert {after}"}


def _tables(text: str) -> list[list[tuple[int, ...]]]:
    return [
        ast.literal_eval(call.args[1]) for copy in _copies(text) if isinstance(call := copy.decorator_list[0], ast.Call)
    ]


def test_every_row_of_a_table_expects_another_value() -> None:
    """A copy changes the expected value in every row of a table, and no other value."""
    tables = _tables(PARAMETERS.replace("EXPECTED", "total"))
    assert len(tables) >= TIMES
    for first, second in tables:
        assert (first[:2], second[:2]) == ((1, 2), (5, 6))
        assert first[2] != 3
        assert second[2] != 11


@pytest.mark.parametrize(
    ("change", "copy"),
    [
        (("6, 11)]", "6, 11)], indirect=True"), "(total, N)"),  # fixtures compute other values from the table
        (("6, 11)]", "6, 11)], ['total']"), "(total, N)"),
        (("11)", "sum([5, 6]))"), "(total, N)"),
        (("    assert", "    assert total\n    assert"), "total * N"),  # the parameter is used again
    ],
)
def test_tables_that_may_mean_something_else_stay(change: tuple[str, str], copy: str) -> None:
    """A table is changed only if its literals reach the test as a parameter, and the test uses the parameter once."""
    text = PARAMETERS.replace("EXPECTED", "total").replace(*change)
    found = {re.sub(r"\d+", "N", text) for text in _asserted(text)}
    assert f"assert add(number, other) == {copy}" in found
    (original,) = ast.parse(text).body
    assert isinstance(original, ast.FunctionDef)
    assert {ast.unparse(copy.decorator_list[0]) for copy in _copies(text)} == {ast.unparse(original.decorator_list[0])}


def test_near_values_stay_apart() -> None:
    """In an approximate comparison, no number is added to a parameter: a slightly larger number might still pass."""
    text = PARAMETERS.replace("EXPECTED", "pytest.approx(number + 1, rel=0.1)")
    found = {re.sub(r"\d+\)$", "N)", each) for each in _asserted(text)}
    assert found == {"assert add(number, other) == (pytest.approx(number + 1, rel=0.1), N)"}


def test_texts_are_made_of_words() -> None:
    """One word of an expected string is replaced by another word, because a non-word would reveal the copy."""
    text = "# amber basin\ndef test_read():\n    assert read('cedar') == 'No Delta here: EMBER'\n"
    found = {str(ast.literal_eval(each.partition(" == ")[2])) for each in _asserted(text)}
    assert len(found) > 5
    for other in found:
        words, real = other.replace(":", "").split(), ["No", "Delta", "here", "EMBER"]
        changed = [(new, old) for new, old in zip(words, real, strict=True) if new != old]
        assert len(changed) == 1
        assert changed[0][0].lower() in {"amber", "basin", "cedar", "delta", "here", "ember", "read", *WORDS}
        assert changed[0][0].isupper() == changed[0][1].isupper()
        assert changed[0][0].istitle() == changed[0][1].istitle()


def test_truth_is_turned_round_as_people_write_it() -> None:
    """A copy adds or removes ``not``, or has the opposite operator or another expected value.

    It has no needless brackets.
    """
    assert _asserted("def test_x():\n    assert found(3)\n") == {"assert not found(3)"}
    assert _asserted("def test_x(self):\n    self.assertTrue(a() > 3)\n") == {"self.assertTrue(a() <= 3)"}
    found = _asserted("def test_x(self):\n    self.assertTrue(a() == 3)\n")
    assert all(re.fullmatch(r"self.assertTrue\(a\(\) == \d+\)", each) for each in found)
    lines = "def test_x():\n    assert not (\n        a\n        .b\n    )\n"
    assert _asserted(lines) == {"assert a.b"}


@pytest.mark.parametrize("name", ["test_add", "test_add_small_numbers", "testAddSmall", "TestAdd", "test_1", "check"])
def test_names_are_like_the_one_they_are_made_of(name: str) -> None:
    """A name that begins with ``test`` keeps this beginning, so that a runner finds the test.

    Each name differs from its original in at most one word.
    """
    names = NameMaker()
    names.avoid("def test_add_words(): pass")
    parts = re.findall("[A-Z]?[a-z]+", name)
    for _ in range(TIMES):
        made = names.like(name, ["words", "amber", "basin"])
        assert made.isidentifier()
        assert made != "test_add_words"
        assert made[:4] == name[:4] or name == "check"
        assert len(set(parts) - set(re.findall("[A-Z]?[a-z]+", made))) <= 1
        assert ("_" in made.strip("_")) >= ("_" in name)


def test_words_that_mean_something_are_not_used() -> None:
    """Words such as "slow" and "setup" are left out: a ``conftest.py`` may skip such tests, or pytest may call them."""
    source = ModuleSource(b"# slow network setup teardown skip amber\ndef test_assert(self): return None, int\n")
    assert source.words == ["amber"]
