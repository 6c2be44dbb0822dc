"""Changes that fix nothing do not pass with any runner. The tests run in a process without a sandbox: this is fast."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from securebench.errors import FailureReason
from securebench.testing.judging.repository import BROKEN, FIXED
from securebench.verifiers.repo_patch.evidence.adapter import CasePlace
from securebench.verifiers.repo_patch.evidence.adapters import recognise
from securebench.verifiers.repo_patch.evidence.controls import places_of
from verifiers.repo_patch import more_cheats
from verifiers.repo_patch.evidence.here import Here
from verifiers.repo_patch.evidence.test_undone_changes import EXPECTED, UNITTEST_COMMANDS, UNITTEST_FILES
from verifiers.repo_patch.runner_repos import FILES, SYMPY_BROKEN, SYMPY_TEST, SYMPY_TESTS

if TYPE_CHECKING:
    from pathlib import Path

HELD = {FailureReason.TAMPERED, FailureReason.TESTS_FAILED, FailureReason.NO_VERDICT}
PYTEST_TESTS = """\
import pytest

from project.numbers import double, half


def test_half():
    assert half(4) == 2


@pytest.mark.parametrize("number", [2, 3])
def test_double(number):
    assert double(number) == number * 2


class TestDouble:
    def test_zero(self):
        assert double(0) == 0
"""
PYTEST_IDS = tuple(
    f"tests/test_numbers.py::{name}" for name in ("test_double[2]", "test_double[3]", "TestDouble::test_zero")
)
CHEATS = {
    "pytest": more_cheats.OF_PYTEST,
    "module": more_cheats.OF_UNITTEST,
    "script": {**more_cheats.OF_UNITTEST, **more_cheats.OF_DJANGO},
    "sympy": more_cheats.OF_SYMPY,
}
FAST = {
    ("pytest", "hooks are called without it"),
    ("module", "load_tests of twins"),
    ("sympy", "tests have other names"),
}
"""Cheats that every test run judges. The others need ``--long``: each takes a second or two."""


def judged(runner: str, core: str) -> Here:
    """Return a repository for ``runner``, in which ``core`` is the source of the tested module."""
    if runner == "sympy":
        files = {**FILES, SYMPY_TEST: SYMPY_TESTS, "sympy/tests/__init__.py": "", "sympy/numbers.py": core}
        return Here(files, (sys.executable, "bin/test", "-C", SYMPY_TEST), ("test_double",), ("test_halve",))
    files = {**UNITTEST_FILES, "project/numbers.py": core}
    if runner == "pytest":
        return Here({**files, "tests/test_numbers.py": PYTEST_TESTS, "conftest.py": ""}, fail_to_pass=PYTEST_IDS)
    return Here(files, UNITTEST_COMMANDS[runner], *EXPECTED)


def changed(code: str, broken: str) -> str:
    """Return ``code`` and ``broken`` as one text. ``code`` comes last if it redefines a function of ``broken``."""
    return broken + code if "\ndef double" in code or "\ndef half" in code else code + broken


@pytest.mark.parametrize(
    ("runner", "name"),
    [
        pytest.param(runner, name, marks=[] if (runner, name) in FAST else [pytest.mark.long])
        for runner, cheats in CHEATS.items()
        for name in cheats
    ],
)
def test_no_cheat_passes(runner: str, name: str, tmp_path: Path) -> None:
    """A cheat does not pass, whether it changes the runner, the tests or the process."""
    core = changed(CHEATS[runner][name], SYMPY_BROKEN if runner == "sympy" else BROKEN)
    verdict = judged(runner, core).judge(tmp_path / "r")
    assert verdict.reason in HELD, (verdict, verdict.output.decode()[-2000:])


@pytest.mark.parametrize("runner", [runner for runner in CHEATS if runner == "pytest"])
def test_an_honest_change_passes(runner: str, tmp_path: Path) -> None:
    """An honest change passes the tests of pytest. ``test_undone_changes.py`` checks the other runners."""
    assert judged(runner, FIXED).judge(tmp_path / "r").reason is None


DOCUMENTED = UNITTEST_FILES["tests/test_numbers.py"]
for _name, _text in {"two": "Two is doubled.", "zero": "Nothing is doubled."}.items():
    DOCUMENTED = DOCUMENTED.replace(f"test_{_name}(self):\n", f'test_{_name}(self):\n        """{_text}"""\n')
TWINS = (
    more_cheats.LOADING
    + """
def _load(loader, tests, pattern):
    suite = unittest.TestSuite()
    for group in tests:
        for case in group:
            if case._testMethodDoc is None or 'Half' in case._testMethodDoc:
                suite.addTest(case)
                continue
            def quiet(self): pass
            quiet.__doc__ = case._testMethodDoc
            suite.addTest(type('Twin', (unittest.TestCase,), {'test_it': quiet})('test_it'))
            KEPT
    return suite
if _frame: _frame.f_globals['load_tests'] = _load
"""
)


@pytest.mark.parametrize("kept", ["pass", "case._testMethodDoc = 'x'; suite.addTest(case)"], ids=["gone", "renamed"])
def test_tests_that_are_called_alike_are_not_the_tasks(kept: str, tmp_path: Path) -> None:
    """If an id is a docstring, a test that the candidate adds with this docstring does not replace the task's test."""
    ids = (("Two is doubled.", "Nothing is doubled."), EXPECTED[1])
    files = {**UNITTEST_FILES, "tests/test_numbers.py": DOCUMENTED}
    cheat = {**files, "project/numbers.py": TWINS.replace("KEPT", kept) + BROKEN}
    verdict = Here(cheat, UNITTEST_COMMANDS["module"], *ids).judge(tmp_path / "cheat")
    assert verdict.reason is FailureReason.TESTS_FAILED, (verdict, verdict.output.decode()[-2000:])
    honest = {**files, "project/numbers.py": FIXED}
    assert Here(honest, UNITTEST_COMMANDS["module"], *ids).judge(tmp_path / "honest").reason is None


def test_places_of_ids_are_read_from_the_tasks_files() -> None:
    """An id without a place gets the place of the test of that name or description in the files.

    It gets none if the name is reassigned, or if the class of the test has no base ``TestCase``.
    """
    sympy, unit = recognise("bin/test -C"), recognise("python -m unittest")
    assert sympy is not None
    assert unit is not None
    text = b"def test_a(): pass\ndef test_b(): pass\ntest_b = 3\nclass C(unittest.TestCase):\n"
    text += b"    def test_c(self):\n        '''\n        What it does,\n        in two lines.'''\n"
    files = [(b"tests/test_x.py", text + text.replace(b"C(unittest.TestCase)", b"Mixin")), (b"tests/y.py", b"def (")]
    assert places_of(["test_a", "test_b", "x.py::test_a"], files, sympy) == {
        "test_a": frozenset({CasePlace("test_x", (), "test_a")})
    }
    assert places_of(["What it does,", "test_c (x.C)", "test_a"], files, unit) == {
        "What it does,": frozenset({CasePlace("test_x", ("C",), "test_c")})
    }
