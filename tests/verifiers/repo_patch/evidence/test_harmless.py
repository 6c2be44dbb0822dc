"""Controls do not disturb the tests beside them and do not reveal which variant is the task's own test."""

from __future__ import annotations

import ast
import math
import random
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from patches.trees import MemoryTree
from securebench.patches.model import FileVersion
from securebench.verifiers.repo_patch.evidence.adapters import recognise
from securebench.verifiers.repo_patch.evidence.controls import plant
from securebench.verifiers.repo_patch.evidence.source import ModuleSource
from securebench.verifiers.repo_patch.evidence.values import Values
from selected import variants
from verifiers.repo_patch.evidence.here import Here

if TYPE_CHECKING:
    from pathlib import Path

CORE = """\
_mode = ["plain"]
def configure(mode): _mode[0] = mode
def mode(): return _mode[0]
def add(a, b): return a + b
"""
BEGIN = "import pytest, unittest\nfrom calc.core import add, configure, mode\n\n"
HONEST = {
    "class with parameters": """
@pytest.mark.parametrize("n", [1, 2])
class TestP:
    def test_n(self, n):
        assert add(n, n) == n + n

def test_o():
    assert add(2, 2) == 4
""",
    "module with parameters": """
pytestmark = [pytest.mark.parametrize("n", [1, 2])]

def test_n(n):
    assert add(n, 7) == n + 7
""",
    "state that a test resets": """
def test_fancy():
    configure("fancy")
    assert mode() == "fancy"
    configure("plain")

def test_default():
    assert mode() == "plain"

def test_sum():
    total = add(2, 2)
    assert total == 4
""",
    "class that counts its tests": """
class TestC(unittest.TestCase):
    count = 0
    def test_a(self):
        type(self).count += 1
        self.assertEqual(add(1, 1), 2)

    @classmethod
    def tearDownClass(cls):
        assert cls.count == 1

def test_o():
    assert add(2, 2) == 4
""",
    "module that lists its names": """
def test_a():
    assert add(2, 2) == 4

def test_names():
    assert [name for name in globals() if name.startswith("test_")] == ["test_a", "test_names"]
""",
}


@pytest.mark.parametrize("name", variants(HONEST, {"state that a test resets", "class with parameters"}.__contains__))
def test_honest_tests_pass_beside_controls(name: str, tmp_path: Path) -> None:
    """Tests that share state, have parameters or inspect their own module pass beside controls."""
    files = {"calc/__init__.py": "", "calc/core.py": CORE, "conftest.py": "", "tests/test_new.py": BEGIN + HONEST[name]}
    command = (sys.executable, "-m", "pytest", "-q", "tests")
    for number in range(2):
        verdict = Here(files, command).judge(tmp_path / str(number))
        assert verdict.reason is None, verdict


def test_no_copy_leaves_a_state_behind() -> None:
    """A test that resets state at its end is not copied, unless it does so in a ``finally`` block."""
    adapter = recognise("pytest")
    assert adapter is not None
    text = BEGIN + HONEST["state that a test resets"]
    tree = MemoryTree({b"tests/test_new.py": FileVersion(text.encode())})
    planted = plant([b"tests/test_new.py"], tree, (), adapter)
    assert {group.place.function for group in planted.groups} == {"test_default", "test_sum", ""}
    safe = text.replace(
        '    assert mode() == "fancy"\n    configure',
        "    try:\n        assert mode() == 'fancy'\n    finally:\n        configure",
    )
    tree = MemoryTree({b"tests/test_new.py": FileVersion(safe.encode())})
    planted = plant([b"tests/test_new.py"], tree, (), adapter)
    assert "test_fancy" in {group.place.function for group in planted.groups}


@pytest.mark.parametrize("text", ["0", "1", "5", "10", "45", "100", "145", "1200", "2.5", "0.15", "10.0", "10" * 9])
@pytest.mark.parametrize("apart", [False, True])
def test_other_numbers_could_as_well_be_the_first(text: str, apart: bool) -> None:
    """Alternatives to a number end in as many zeros as the number does. 0 is an exception.

    For three of the numbers, some alternatives are smaller and some are larger. With ``apart``, the difference is at
    least 2. Each number is also an alternative to one of its alternatives.
    """
    value = ast.literal_eval(text)
    values = Values(ModuleSource(b"def test_x(): pass"))
    found = Counter(other for _ in range(50) for other in values.others(value, text, apart=apart))
    assert text not in found
    numbers = [ast.literal_eval(other) for other in found]
    if value:
        assert {len(other) - len(other.rstrip("0")) for other in found if other != "0"} == {
            len(text) - len(text.rstrip("0"))
        }
    assert all(abs(number - value) >= 2 for number in numbers) or not apart
    if text in ("45", "145", "2.5"):
        assert {number > value for number in numbers} == {True, False}
    again = [
        values.others(number, other, apart=apart)
        for other, number in zip(found, numbers, strict=True)
        for _ in range(9)
    ]
    assert any(text in others for others in again)


def test_no_rank_tells_which_number_is_the_first() -> None:
    """Sorted with three alternatives, the task's own number has each of the four ranks about equally often."""
    values = Values(ModuleSource(b"def test_x(): pass"))
    ranks: Counter[int] = Counter()
    for _ in range(800):
        value = round(math.exp(random.uniform(math.log(2), math.log(2000)))) - 2
        if value % 10:
            ranks[sum(int(other) < value for other in values.others(value, str(value))[:3])] += 1
    assert sum(ranks.values()) > 600
    assert all(110 <= ranks[rank] <= 270 for rank in range(4)), ranks
