"""Which tests get variants, how many variants they get, and which tests keep their names."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

import pytest

from patches.trees import MemoryTree
from securebench.errors import FailureReason
from securebench.patches.model import FileVersion
from securebench.verifiers.repo_patch.evidence.controls import MAX_COPIES, plant
from verifiers.repo_patch.evidence.here import Here
from verifiers.repo_patch.evidence.in_process import PATH, adapter_of, judged, outcomes, planted

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.verifiers.repo_patch.evidence.edited_file import ControlGroup

ONE = "def test_one():\n    assert add(2, 30) == 32\n"
MIXED = """\
import unittest

from project import add


class Sums:
    def test_small(self):
        self.assertEqual(self.add(2, 3), 5)

    def test_large(self):
        self.assertEqual(self.add(200, 45), 245)


class TestPython(Sums, unittest.TestCase):
    add = staticmethod(add)


class TestOther(Sums, unittest.TestCase):
    def add(self, *numbers):
        return sum(numbers)

    def test_large(self):
        self.assertEqual(self.add(1, 1), 2)
"""
MIXED_IDS = tuple(
    f"{name} (tests.test_new.{case})" for name in ("test_small", "test_large") for case in ("TestPython", "TestOther")
)
LIAR = """
class Liar:
    def __eq__(self, other): return True
    __hash__ = None
def add(*numbers): return Liar()
"""


def _group(text: str, wanted: tuple[str, ...] = ()) -> ControlGroup:
    return next(group for group in planted(text, wanted)[0].groups if group.place.function == "test_one")


def test_a_single_test_gets_many_variants_with_fresh_names() -> None:
    """The task's test is one of many variants, at a random place, and the record says how hard it is to guess."""
    names, places = set(), set()
    for _ in range(40):
        controls, text = planted(ONE, [f"{PATH}::test_one"])
        group = next(group for group in controls.groups if group.real)
        defined = [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        assert len(group.controls) > 10
        assert "test_one" in (group.real, *group.controls)
        names.add(group.real)
        places.add(defined.index(group.real))
        evidence = judged(outcomes(text, {"add": lambda a, b: a + b}), controls, [f"{PATH}::test_one"])
        assert (evidence[0], evidence[1]["control_bits"]) == (None, round(group.bits, 1))
    assert len(names) > 5
    assert len(places) > 5


def test_no_value_is_in_the_majority() -> None:
    """If a test has several assertions, its variants use all values of an assertion equally often."""
    text = ONE + "    assert add(3, 40) == 43\n    assert add(4, 50) == 54\n"
    group = _group(text)
    assert len(group.controls) > 10
    found = planted(text)[1]
    shown = [ast.unparse(node) for node in ast.walk(ast.parse(found)) if isinstance(node, ast.Assert)]
    for start in ("add(2, 30)", "add(3, 40)", "add(4, 50)"):
        uses = [line for line in shown if start in line]
        assert len({uses.count(line) for line in uses}) == 1


def test_a_task_with_many_tests_gets_few_copies() -> None:
    """If a task has many tests, a few copies make the guess hard enough. More copies would take time."""
    text = "\n".join(
        f"def test_{name}():\n    assert add({n}, 70) == {n + 70}\n" for n, name in enumerate("abcdefghijkl", 2)
    )
    controls = planted(text)[0]
    assert len(controls.styles) < 12
    assert sum(group.bits for group in controls.groups) >= 8
    wide = "\n".join(f"class Test{n}:\n    def test_a(self):\n        assert add({n}) == 9{n}\n" for n in range(40))
    assert len(planted(wide)[0].styles) <= MAX_COPIES + 2


@pytest.mark.parametrize(
    "text",
    [
        ONE + "test_one.slow = True\n",
        ONE.replace("one()", "one(snapshot)"),
        "@snapshot_of('x')\n" + ONE,
        ONE + "def test_own(request):\n    assert request.node.name\n",
        ONE + "import inspect\nLINE = inspect.currentframe().f_lineno\n",
    ],
)
def test_tests_whose_names_or_lines_matter_keep_them(text: str) -> None:
    """A test whose name or line matters keeps its name. It has controls, but they add no bits to the record."""
    for _ in range(5):
        group = _group(text)
        assert (group.real, group.bits) == ("test_one", 0)
        assert group.controls


@pytest.mark.parametrize("text", ["@parameterized.expand([1])\n" + ONE, ONE + ONE])
def test_tests_that_are_named_otherwise_get_no_copies(text: str) -> None:
    """A test gets no copies if a decorator renames it or if another test has the same name."""
    groups = planted(text + "def test_two():\n    assert add(1, 1) == 2\n")[0].groups
    assert {group.place.function for group in groups} == {"", "test_two"}


def test_values_that_the_file_shows_do_not_count() -> None:
    """An expected value that is also an argument or occurs in another test adds no bits: it need not be guessed."""
    assert _group("def test_one():\n    assert same(32) == 32\n").bits == 0
    assert _group(ONE + "def test_two():\n    assert add(2, 30) == 32\n").bits == 0


def test_classes_that_other_files_inherit_keep_their_tests() -> None:
    """A test of a class that another file inherits keeps its name, because that file may use the name."""
    case = "class Sums:\n" + "".join(f"    {line}\n" for line in ONE.replace("()", "(self)", 1).splitlines())
    files = {PATH.encode(): case, b"tests/test_y.py": "from tests.test_x import Sums\nclass TestY(Sums): pass\n"}
    tree = MemoryTree({path: FileVersion(text.encode()) for path, text in files.items()})
    groups = plant(list(files), tree, (), adapter_of()).groups
    assert [group.real for group in groups if group.place.function] == ["test_one"]


@pytest.mark.parametrize(("runner", "ids"), [("unittest", MIXED_IDS), ("pytest", ())])
def test_tests_of_mixin_classes_have_controls(runner: str, ids: tuple[str, ...], tmp_path: Path) -> None:
    """Controls in a mixin class count in each class that inherits them, unless that class overrides the real test."""
    command = (sys.executable, "-m", runner, "tests/test_new.py" if runner == "pytest" else "tests.test_new")
    files = {"tests/__init__.py": "", "tests/test_new.py": MIXED, "project/__init__.py": "def add(a, b): return a + b"}
    honest = Here(files, command, ids).judge(tmp_path / "honest")
    assert honest.reason is None, (honest, honest.output.decode()[-2000:])
    assert honest.evidence["controls_failed"] == honest.evidence["controls"]
    assert honest.evidence["control_bits"] > 3
    cheat = Here({**files, "project/__init__.py": LIAR}, command, ids).judge(tmp_path / "cheat")
    assert cheat.reason is FailureReason.TAMPERED


def test_tests_that_ids_name_without_a_place_are_copied_first() -> None:
    """A test whose id is only a function's name, as with SymPy, gets the most copies."""
    tests = "".join(ONE.replace("one", name).replace("30", f"3{n}") for n, name in enumerate(["one", *"abcdefghi"]))
    path = b"sympy/tests/test_numbers.py"
    tree = MemoryTree({path: FileVersion(tests.encode())})
    groups = plant([path], tree, ["test_one"], adapter_of("bin/test -C")).groups
    most = max(groups, key=lambda group: len(group.controls))
    assert (most.place.function, len(most.controls)) == ("test_one", 16)


def test_the_styles_of_a_tasks_tests_have_controls_first() -> None:
    """The styles of the expected tests get controls first. Controls for other styles do not use up their copies."""
    wanted = "".join(
        f"def test_{name}():\n    assert add(1, {n}) == {n + 1}\n    assert add(2, {n}) == {n + 2}\n"
        f"    assert add(3, {n}) == {n + 3}\n    raises(ValueError, lambda: add({n}))\n\n"
        for n, name in enumerate(("one", "two", "three"))
    )
    styles = ("not add(0, 0)", "add(1, 1)", "add(1, 1) != 3", "add(1, 1) in (2,)", "add(1, 1) > 1", "add(None) is None")
    others = "".join(f"def test_other_{n}():\n    assert {style}\n\n" for n, style in enumerate(styles))
    path = b"sympy/tests/test_numbers.py"
    text = f"from sympy.testing.pytest import raises\n\n{wanted}{others}"
    tree = MemoryTree({path: FileVersion(text.encode())})
    controls = plant([path], tree, ["test_one", "test_two", "test_three"], adapter_of("bin/test -C"))
    assert "raises" in controls.styles
    assert sum(group.bits for group in controls.groups) > 5
