"""Tests that run pytest inside pytest with pytester, which restores ``sys.modules`` after each inner session."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from securebench.errors import FailureReason
from securebench.verifiers.repo_patch.checks import GUEST_FILES
from verifiers.repo_patch.evidence.here import Here
from verifiers.repo_patch.evidence.styles import CORE

if TYPE_CHECKING:
    from pathlib import Path

    from verifiers.repo_patch.evidence.here import Verdict

PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
STATE = """\
from calc.core import add


def test_leaves_a_name_in_unittest(pytester):
    pytester.makepyfile("import unittest\\nunittest.TestCase.left = 1\\ndef test_inner(): pass")
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


def test_state(pytester):
    pytester.makepyfile("import unittest\\ndef test_inner(): assert {wanted}hasattr(unittest.TestCase, 'left')")
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


def test_add():
    assert add(1, 2) == 3
"""
SAME_IDS = """\
from calc.core import add

INNER = "def test_wrong(): {right}\\ndef test_right(): {wrong}"


def test_wrong(pytester):
    pytester.mkdir("tests").joinpath("test_new.py").write_text(INNER)
    pytester.runpytest_inprocess("--import-mode=importlib", "tests").assert_outcomes(passed=1, failed=1)
    assert add(1, 2) == 4


def test_right(pytester):
    pytester.mkdir("tests").joinpath("test_new.py").write_text(INNER)
    pytester.runpytest_inprocess("--import-mode=importlib", "tests").assert_outcomes(passed=1, failed=1)
    assert add(1, 2) == 3
"""
NO_ASSERTIONS = "unittest.TestCase.assertEqual = lambda *values: None"


def _judge(root: Path, tests: str, core: str = CORE, wanted: str = "", without: tuple[str, ...] = ()) -> Verdict:
    files = {
        "calc/__init__.py": "",
        "calc/core.py": core,
        "tests/test_new.py": tests,
        "conftest.py": "pytest_plugins = 'pytester'",
    }
    expected = (f"tests/test_new.py::{wanted}",) if wanted else ()
    nothing = root.parent / "packages"  # without plugins: they may import unittest
    nothing.mkdir(exist_ok=True)
    return Here(files, PYTEST, fail_to_pass=expected, without=without, packages=str(nothing)).judge(root)


def _plain(root: Path) -> str:
    """Return the output of pytest without the reporter."""
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [*PYTEST, "-rA"]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("wanted", ["", "not "])
def test_inner_sessions_share_no_more_state_than_under_plain_pytest(tmp_path: Path, wanted: str) -> None:
    """A test that checks what an earlier inner session left has the same outcome with and without the reporter."""
    verdict = _judge(tmp_path / "r", STATE.replace("{wanted}", wanted), wanted="test_state")
    passed = "PASSED tests/test_new.py::test_state" in _plain(tmp_path / "r").splitlines()  # controls have longer names
    assert verdict.reason is (None if passed else FailureReason.TESTS_FAILED), verdict


@pytest.mark.long
def test_the_same_with_a_pytest_that_does_not_load_unittest(tmp_path: Path) -> None:
    """If pytest does not load unittest, each inner session loads it again, without changes of earlier sessions."""
    packages = tmp_path / "packages"
    install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(packages), "pytest==7.1.2"]
    subprocess.run(install, check=True)
    left = _judge(tmp_path / "left", STATE.replace("{wanted}", ""), wanted="test_state")
    assert left.reason is FailureReason.TESTS_FAILED, left
    assert _judge(tmp_path / "fresh", STATE.replace("{wanted}", "not "), wanted="test_state").reason is None


LOADS = """
import sys
sys.path.insert(0, sys.argv[1])
from securebench_fingerprint import fingerprinter, unload_package
assert "unittest" not in sys.modules
unloaded = {}
take = fingerprinter([], [], "/r", unloaded)
end = unload_package("unittest", unloaded)
before, snapshot = take(), dict(sys.modules)
"""
AFTER_COLLECTION = """
end(False)
for _ in range(2):  # as pytester does
    import unittest
    assert not hasattr(unittest.TestCase, "left")
    unittest.TestCase.left = 1
    assert take() == before
    sys.modules.clear()
    sys.modules.update(snapshot)
assert take() == before
import unittest.case
unittest.case.TestCase.assertEqual = print
assert take() != before
"""
IN_COLLECTION = """
import unittest.mock
module, spec = unittest.case, unittest.case.__spec__
assert spec.origin and spec.loader is module.__loader__
end(True)
assert take() == before and "unittest.loader" in sys.modules
sys.modules.update(snapshot)
assert sys.modules["unittest.case"] is module
del sys.modules["unittest.case"]
assert take() != before
"""


@pytest.mark.parametrize("text", [AFTER_COLLECTION, IN_COLLECTION], ids=["after collection", "in collection"])
def test_unittest_is_loaded_when_it_would_be_without_the_reporter(text: str) -> None:
    """Tests load new copies of unittest's modules, unless unittest was imported during collection."""
    subprocess.run([sys.executable, "-S", "-c", LOADS + text, str(GUEST_FILES)], check=True)


def test_inner_tests_with_the_ids_of_outer_tests_do_not_count(tmp_path: Path) -> None:
    """Outcomes of inner tests with the ids of outer tests are ignored: only the outer session is reported."""
    text = SAME_IDS.replace("{right}", "pass").replace("{wrong}", "assert 0")
    assert _judge(tmp_path / "right", text, wanted="test_right").reason is None
    assert _judge(tmp_path / "wrong", text, wanted="test_wrong").reason is FailureReason.TESTS_FAILED


LATE = """\
from calc.core import add


def test_add():
    value = add(1, 2)
    import unittest

    unittest.TestCase().assertEqual(value, 3)
"""
CASE = """\
from calc.core import add
import unittest


class SumTests(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(1, 2), 3)
"""
COPY = f"""
import importlib.util, sys
sys.modules.pop('unittest', None)
place = importlib.util.__file__.replace('importlib/util', 'unittest/__init__')
spec = importlib.util.spec_from_file_location('unittest', place)
finders, sys.meta_path[:] = sys.meta_path[:], [f for f in sys.meta_path if getattr(f, '__name__', '') == 'PathFinder']
unittest = importlib.util.module_from_spec(spec)
sys.modules['unittest'] = unittest
spec.loader.exec_module(unittest)
sys.meta_path[:] = finders
{NO_ASSERTIONS}
"""
REMOVE = """
for name in [name for name in sys.modules if name.partition('.')[0] == 'unittest']: del sys.modules[name]
"""


@pytest.mark.parametrize(
    ("tests", "core"),
    [
        (LATE, f"def add(a, b):\n    import unittest\n    {NO_ASSERTIONS}\n"),
        (CASE, f"import unittest\n{NO_ASSERTIONS}\ndef add(a, b): pass\n"),
        (CASE, f"{COPY}\ndef add(a, b): pass\n"),
        (CASE, f"{COPY}\ndef add(a, b):{REMOVE.replace(chr(10), ' ')}\n".replace(": for", ":\n    for")),
    ],
    ids=["imported late", "imported", "own copy", "own copy, removed"],
)
def test_a_changed_unittest_is_noticed_without_controls(tmp_path: Path, tests: str, core: str) -> None:
    """A change to unittest is detected even without controls.

    It does not matter whether the tests or the code import unittest first, or whether the code loads its own copy.
    """
    verdict = _judge(tmp_path / "r", tests, core, without=("controls",))
    assert verdict.reason is FailureReason.TAMPERED, verdict
    assert any("unittest" in name for name in verdict.evidence["changed"]), verdict
