"""Of a test and its copy, nothing in their code says which of them is the copy."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from securebench.verifiers.repo_patch.evidence.inversion import inversions
from securebench.verifiers.repo_patch.evidence.source import ModuleSource
from securebench.verifiers.repo_patch.evidence.words import NameMaker

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMES = 30
"""How often what is drawn at random is drawn."""


def _copies(text: str) -> Iterator[ast.FunctionDef]:
    """Yield the last function in ``text`` with each of its inversions."""
    source = ModuleSource(text.encode())
    function = source.module.body[-1]
    assert isinstance(function, ast.FunctionDef)
    for _ in range(TIMES):
        for found in inversions(function, source):
            copy = ast.parse(source.copy(source.block(function), found.edits)).body[0]
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
        ("total", {"number", "other"}),
        ("number + other", {"number - other"}),
        ("other - 1", {"other + 1"}),
        ("number * other", {"number * other + "}),
    ],
)
def test_parameters_are_expected_as_others_are(expected: str, copies: set[str]) -> None:
    """Another parameter with other values, or another sign: a factor and a summand would show the copy."""
    found = _asserted(PARAMETERS.replace("EXPECTED", expected))
    assert {re.sub(r"\+ \d\d?$", "+ ", text) if "*" in expected else text for text in found} == {
        f"assert add(number, other) == {copy}" for copy in copies
    }


@pytest.mark.parametrize(
    ("rows", "option", "copy"),
    [
        ("[(1, 2, 2), (5, 6, 11)]", "", "number"),  # the other one is the same in a row
        ("[(1, 2, 1), (5, 6, 6)]", "", "total * 2"),
        ("[(1, 2, 3), (5, 6, 11)]", ", indirect=True", "(total, N)"),  # fixtures make something of them
        ("[(1, 2, 3), (5, 6, 11)]", ", ['total']", "(total, N)"),
    ],
)
def test_other_parameters_are_certain(rows: str, option: str, copy: str) -> None:
    """One that may have the same value in some row is never expected instead."""
    text = PARAMETERS.replace("[(1, 2, 3), (5, 6, 11)]", rows + option).replace("EXPECTED", "total")
    found = {re.sub(r"\d+\)$", "N)", text) for text in _asserted(text)}
    assert found == {f"assert add(number, other) == {copy}"}


def test_near_values_stay_apart() -> None:
    """Where nearness is enough, another sign or parameter is no certain failure."""
    text = PARAMETERS.replace("EXPECTED", "pytest.approx(number + 1, rel=0.1)")
    assert all(re.search(r"approx\(number \+ 1 \+ \d+", each) for each in _asserted(text))


def test_texts_are_made_of_words_of_the_file() -> None:
    """A letter that makes a word none would show the copy."""
    text = "# amber basin\ndef test_read():\n    assert read('cedar') == 'No Delta here: EMBER'\n"
    found = {str(ast.literal_eval(each.partition(" == ")[2])) for each in _asserted(text)}
    assert len(found) > 5
    for other in found:
        words, real = other.replace(":", "").split(), ["No", "Delta", "here", "EMBER"]
        changed = [(new, old) for new, old in zip(words, real, strict=True) if new != old]
        assert len(changed) == 1
        assert changed[0][0].lower() in {"amber", "basin", "cedar", "delta", "here", "ember", "read"}
        assert changed[0][0].isupper() == changed[0][1].isupper()
        assert changed[0][0].istitle() == changed[0][1].istitle()


def test_truth_is_turned_round_as_people_write_it() -> None:
    """A comparison is compared the other way, and nothing has brackets that needs none."""
    assert _asserted("def test_x():\n    assert found(3)\n") == {"assert not found(3)"}
    assert _asserted("def test_x(self):\n    self.assertTrue(a() > 3)\n") == {"self.assertTrue(a() <= 3)"}
    found = _asserted("def test_x(self):\n    self.assertTrue(a() == 3)\n")
    assert all(re.fullmatch(r"self.assertTrue\(a\(\) == \d\)", each) for each in found)
    lines = "def test_x():\n    assert not (\n        a\n        .b\n    )\n"
    assert _asserted(lines) == {"assert a.b"}


@pytest.mark.parametrize("name", ["test_add", "test_add_small_numbers", "testAddSmall", "TestAdd", "test_1", "check"])
def test_names_are_like_the_one_they_are_made_of(name: str) -> None:
    """They begin as it does, so a runner finds them, and have all of its words but one, or one more."""
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
    """Somebody's ``conftest.py`` may skip what has them in its name, and pytest calls some."""
    source = ModuleSource(b"# slow network setup teardown skip amber\ndef test_assert(self): return None, int\n")
    assert source.words == ["amber"]
