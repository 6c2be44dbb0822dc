"""Controls do no harm to the tests beside them, and do not show which of two tests they are."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from patches.trees import MemoryTree
from securebench.patches.model import FileVersion
from securebench.verifiers.repo_patch.evidence.controls import plant
from securebench.verifiers.repo_patch.evidence.inversion import _other_number
from securebench.verifiers.repo_patch.evidence.recognise import recognise
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


@pytest.mark.parametrize("name", HONEST)
def test_honest_tests_pass_beside_controls(name: str, tmp_path: Path) -> None:
    """Whatever is copied from them, and wherever."""
    files = {"calc/__init__.py": "", "calc/core.py": CORE, "conftest.py": "", "tests/test_new.py": BEGIN + HONEST[name]}
    command = (sys.executable, "-m", "pytest", "-q", "tests")
    for number in range(2):
        verdict = Here(files, command).judge(tmp_path / str(number))
        assert verdict.reason is None, verdict


def test_no_copy_leaves_a_state_behind() -> None:
    """A test whose end resets something is not copied, unless it does so in any case."""
    adapter = recognise("pytest")
    assert adapter is not None
    text = BEGIN + HONEST["state that a test resets"]
    tree = MemoryTree({b"tests/test_new.py": FileVersion(text.encode())})
    planted = plant([b"tests/test_new.py"], tree, (), adapter)
    assert {control.original for control in planted.by_function.values()} == {"test_default", "test_sum", ""}
    safe = text.replace(
        '    assert mode() == "fancy"\n    configure',
        "    try:\n        assert mode() == 'fancy'\n    finally:\n        configure",
    )
    tree = MemoryTree({b"tests/test_new.py": FileVersion(safe.encode())})
    planted = plant([b"tests/test_new.py"], tree, (), adapter)
    assert "test_fancy" in {control.original for control in planted.by_function.values()}


@pytest.mark.parametrize("text", ["0", "1", "5", "10", "45", "100", "145", "1200", "2.5", "0.15", "10.0"])
def test_another_number_could_as_well_be_the_first(text: str) -> None:
    """It has the same digits and zeros, comes from either side, and could have been turned into the other."""
    value = ast.literal_eval(text)
    found = Counter(_other_number(value) for _ in range(200))
    for other in found:
        assert other is not None
        assert abs(ast.literal_eval(other) - value) >= 2
        assert len(other) == len(text)
    if text in ("5", "45", "2.5"):
        assert {ast.literal_eval(other or "") > value for other in found} == {True, False}
        assert all(text in {_other_number(ast.literal_eval(other or "")) for _ in range(2000)} for other in found)
