"""The guest programs that run tests of unittest and SymPy report real outcomes, and not what a runner claims."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from securebench.verifiers.repo_patch.checks import GUEST_FILES as GUEST
from securebench.verifiers.repo_patch.evidence.channel import read_channel

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.verifiers.repo_patch.evidence.channel import ReportedTests

MARK = "ab" * 16
TESTS = """\
import os, sys, threading, unittest
os.write(1, b"printed")
class A(unittest.TestCase):
    def test_ok(self): self.assertEqual(1, 1)
    def test_described(self):
        '''
        What it does,
        in two lines.'''
    def test_bad(self): self.assertEqual(1, 2)
    def test_raises(self): raise ValueError
    def test_exits(self): sys.exit(0)
    def test_skips(self): self.skipTest("x")
    @unittest.expectedFailure
    def test_known(self): self.assertEqual(1, 2)
    @unittest.expectedFailure
    def test_fixed(self): pass
    def test_parts(self):
        for number in range(3):
            with self.subTest(number=number): self.assertEqual(number, 1)
    def test_forks(self):
        if os.fork() == 0: os._exit(0)
    def inner_bad(self): self.assertEqual(1, 2)
    def test_runs_another(self):
        A("inner_bad").run(unittest.TestResult())
        A("inner_bad").run()
    def test_runs_one_in_a_thread(self):
        thread = threading.Thread(target=lambda: A("inner_bad").run(unittest.TestResult()))
        thread.start()
        thread.join()
    def test_cleans_up(self): self.addCleanup(lambda: 1 / 0)
class SetUp(unittest.TestCase):
    @classmethod
    def setUpClass(cls): raise ValueError
    def test_never(self): pass
class TearDown(unittest.TestCase):
    @classmethod
    def tearDownClass(cls): raise ValueError
    def test_late(self): pass
class Claimed(unittest.TestCase):
    def __call__(self, result=None):
        result.startTest(self)
        result.addSuccess(self)
        result.stopTest(self)
    def test_claimed(self): self.fail()
class Around(unittest.TestCase):
    def __call__(self, result=None):
        super().__call__(result)
        result.addError(self, (ValueError, ValueError("x"), None))
    def test_around(self): pass
class Async(unittest.IsolatedAsyncioTestCase):
    async def test_good(self): self.assertEqual(1, 1)
    async def test_wrong(self): self.assertEqual(1, 2)
"""
OUTCOMES = {
    "A::test_ok": "passed",
    "A::test_described": "passed",
    "A::test_bad": "failed",
    "A::test_raises": "error",
    "A::test_exits": "error",
    "A::test_skips": "skipped",
    "A::test_known": "skipped",
    "A::test_fixed": "failed",
    "A::test_parts": "failed",
    "A::test_forks": "passed",
    "A::test_runs_another": "passed",
    "A::test_runs_one_in_a_thread": "passed",
    "A::test_cleans_up": "error",
    "TearDown::test_late": "passed",
    "Around::test_around": "error",
    "Async::test_good": "passed",
    "Async::test_wrong": "failed",
}
SYMPY = """\
import functools
from os import write
write(1, b"printed")
class XFail(Exception): pass
class Skipped(Exception): pass
def marked(function):
    @functools.wraps(function)
    def wrapper():
        try: function()
        except Exception: raise XFail
    return wrapper
def slow(function):
    function._slow = True
    return function
def test_ok(): assert 1
def test_bad(): assert 0
def test_raises(): raise ValueError
def test_exits(): raise SystemExit(0)
def test_skips(): raise Skipped
@marked
def test_known(): assert 0
@slow
def test_slow(): assert 0
def test_generates():
    yield lambda number: None, 1
def helper(): assert 0
test_imported = write
"""
SYMPY_OUTCOMES = {
    "test_ok": "passed",
    "test_bad": "failed",
    "test_raises": "error",
    "test_exits": "error",
    "test_skips": "skipped",
    "test_known": "skipped",
    "test_slow": "skipped",
    "test_generates": "passed",
}


def _reported(root: Path, *arguments: str, exit_code: int = 1, collect: bool = False) -> ReportedTests:
    """Run a guest program like the command of a task, and return what it reports."""
    order = {"mark": MARK, "keep": [], "protected": [], "libraries": [], "repository": str(root), "collect": collect}
    done = subprocess.run(
        [sys.executable, str(GUEST / arguments[0]), *arguments[1:]],
        check=False,
        cwd=root,
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
        input=json.dumps(order).encode() + b"\n",
        capture_output=True,
    )
    assert b"printed" not in done.stdout
    assert done.returncode == exit_code, done.stderr
    reported = read_channel(done.stdout, MARK)
    assert reported.exit == exit_code
    return reported


@pytest.mark.parametrize("arguments", [[], ["-f", "test_a"], ["discover", "-q"]], ids=" ".join)
def test_each_test_of_unittest_is_reported(arguments: list[str], tmp_path: Path) -> None:
    """Each test that ran is reported with its worst outcome.

    If a test runs another one, directly or in a thread, only the outer test is reported. A pass that
    only the ``__call__`` of a class claims is not reported.
    """
    (tmp_path / "test_a.py").write_text(TESTS)
    reported = _reported(tmp_path, "securebench_unittest.py", "module", *arguments)
    assert reported.outcomes == {f"test_a::{name}": outcome for name, outcome in OUTCOMES.items()}
    assert reported.descriptions["test_a::A::test_described"] == "What it does,"
    assert reported.unloaded == ["setUpClass (test_a.SetUp)", "tearDownClass (test_a.TearDown)"]


@pytest.mark.parametrize("name", [path.name for path in GUEST.glob("*.py")])
def test_guests_are_written_for_old_pythons(name: str) -> None:
    """Guest programs have the syntax of Python 3.6, because they run with the Python of a task's image."""
    ast.parse((GUEST / name).read_text(encoding="utf-8"), feature_version=(3, 6))


def test_a_module_that_cannot_be_loaded_fails(tmp_path: Path) -> None:
    """A module that cannot be loaded is reported like in unittest: as one test with an error."""
    (tmp_path / "test_b.py").write_text("import nothing_of_that_name\n")
    reported = _reported(tmp_path, "securebench_unittest.py", "module")
    assert list(reported.outcomes.values()) == ["error"]


def test_a_script_runs_as_the_program_it_is(tmp_path: Path) -> None:
    """A script runs as ``__main__``, with its arguments and imports from its directory. Its exit code is reported."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/test_a.py").write_text(
        "import unittest\nclass A(unittest.TestCase):\n    def test_x(self): pass\n"
    )
    script = "import sys, unittest\nassert sys.argv == ['inner/run.py', '-x'] and __name__ == '__main__'\n"
    script += "unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromName('test_a'))\nsys.exit(3)\n"
    (tmp_path / "inner/run.py").write_text(script)
    reported = _reported(tmp_path, "securebench_unittest.py", "script", "inner/run.py", "-x", exit_code=3)
    assert reported.outcomes == {"test_a::A::test_x": "passed"}


def test_nothing_of_the_directory_is_loaded_before_unittest(tmp_path: Path) -> None:
    """Modules in the working directory with names of Python's or SecureBench's own modules are not imported."""
    for name in ("unittest", "threading", "types", "json", "securebench_channel", "contextlib"):
        (tmp_path / f"{name}.py").write_text("import os; os._exit(0)\n")
    (tmp_path / "test_a.py").write_text(TESTS)
    assert _reported(tmp_path, "securebench_unittest.py", "module").outcomes["test_a::A::test_ok"] == "passed"


@pytest.mark.parametrize("arguments", [["discover"], ["test_a", "test_b"]], ids=" ".join)
def test_tests_of_unittest_are_collected_and_not_run(arguments: list[str], tmp_path: Path) -> None:
    """Collection runs no test and no set-up. A module that cannot be loaded is reported by its file."""
    (tmp_path / "test_a.py").write_text(TESTS)
    (tmp_path / "test_b.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "test_c.py").write_text("import unittest\nraise unittest.SkipTest('not here')\n")
    code = 0 if sys.version_info < (3, 12) else 5  # the exit code of unittest if no test ran
    reported = _reported(tmp_path, "securebench_unittest.py", "module", *arguments, exit_code=code, collect=True)
    others = {"SetUp::test_never", "Claimed::test_claimed"}
    assert set(reported.collected) == {f"test_a::{name}" for name in OUTCOMES.keys() | others}
    assert (reported.outcomes, reported.unloaded) == ({}, ["test_b.py"])


def _sympy(tmp_path: Path) -> None:
    """Create a package ``sympy`` with the tests."""
    for name, text in {"__init__": "", "core/__init__": "", "core/cache": "def clear_cache(): pass\n"}.items():
        (tmp_path / f"sympy/{name}.py").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"sympy/{name}.py").write_text(text)
    (tmp_path / "sympy/tests").mkdir()
    (tmp_path / "sympy/tests/test_a.py").write_text(SYMPY)
    (tmp_path / "sympy/tests/test_b.py").write_text("disabled = True\ndef test_x(): assert 0\n")
    (tmp_path / "sympy/tests/test_c.py").write_text("def test_x(:\n")


def test_functions_of_sympy_are_collected_and_not_run(tmp_path: Path) -> None:
    """Collection reports exactly the functions that would run, and runs none of them."""
    _sympy(tmp_path)
    reported = _reported(tmp_path, "securebench_sympy.py", "-C", "--verbose", collect=True)
    assert set(reported.collected) == {f"sympy/tests/test_a.py::{name}" for name in SYMPY_OUTCOMES}
    assert (reported.outcomes, reported.unloaded) == ({}, ["sympy/tests/test_c.py"])


def test_functions_of_sympy_are_reported(tmp_path: Path) -> None:
    """Test functions that the file itself defines are reported. An exception named ``XFail`` is a skip, and no pass."""
    _sympy(tmp_path)
    reported = _reported(tmp_path, "securebench_sympy.py", "-C", "--verbose", "sympy/tests/test_a.py", "test_[bc].py")
    assert reported.outcomes == {f"sympy/tests/test_a.py::{name}": each for name, each in SYMPY_OUTCOMES.items()}
    assert reported.unloaded == ["sympy/tests/test_c.py"]


def test_a_library_with_lazy_objects_is_fingerprinted(tmp_path: Path) -> None:
    """A fingerprint loads no lazy objects: Django has no settings before a project's own program names them."""
    text = "class Lazy:\n    __class__ = property(lambda self: 1 / 0)\nsettings = Lazy()\ndef assert_it(): pass\n"
    (tmp_path / "lazy.py").write_text(text)
    code = f"import sys; sys.path[:0] = [{str(GUEST)!r}, {str(tmp_path)!r}]\n"
    code += "from securebench_fingerprint import fingerprinter\n"
    code += "assert 'lazy:assert_it' in fingerprinter([], ['lazy'], '/nowhere')()\n"
    subprocess.run([sys.executable, "-I", "-c", code], check=True)


SHORT_CHANGE = """\
import unittest
from securebench_fingerprint import fingerprinter, watcher
take, said = fingerprinter([], [], "/nowhere"), []
choose, look = watcher(take, take(), lambda kind, name: said.append((kind, name)))
choose([(number, str(number)) for number in range(200)])
real, code = unittest.TestCase.assertEqual, unittest.TestCase.assertIn.__code__
for number in range(200):
    if number == 77:
        unittest.TestCase.assertEqual = lambda *values: None
    if number == 99:
        unittest.TestCase.assertIn.__code__ = (lambda self, member, container, msg=None: None).__code__
    look(number)
    unittest.TestCase.assertEqual, unittest.TestCase.assertIn.__code__ = real, code
assert said == [("changed", "unittest.case:TestCase." + name) for name in ("assertEqual", "assertIn")], said
"""


def test_a_change_for_one_test_of_many_is_noticed() -> None:
    """A function or its code that is replaced before one test, and restored before the next, is noticed."""
    code = f"import sys; sys.path[:0] = [{str(GUEST)!r}]\n{SHORT_CHANGE}"
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
