"""A skipped or xfailed test is accepted only if it was also skipped or xfailed without the change."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from securebench.errors import FailureReason
from securebench.verifiers.repo_patch.evidence.adapters import recognise
from securebench.verifiers.repo_patch.evidence.collection import required
from verifiers.repo_patch.evidence.here import Here

if TYPE_CHECKING:
    from pathlib import Path

    from verifiers.repo_patch.evidence.here import Verdict

TESTS = """\
import pytest

from calc import core


def test_sum():
    assert core.add(2, 3) == 5


@pytest.mark.parametrize("case", core.CASES)
def test_cases(case):
    assert core.half(case) == case // 2


@pytest.mark.xfail
def test_known():
    assert core.half(7) == 3.5


@pytest.mark.skip(reason="x")
def test_skipped():
    assert core.half(7) == 3.5


def test_half():
    assert core.half(8) == 4
"""
UNITTEST = """\
import unittest

from calc import core


class T(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(core.add(2, 3), 5)

    def test_half(self):
        self.assertEqual(core.half(8), 4)

    def test_skipped(self):
        self.skipTest("x")
"""
WRONG = "CASES = [8]\ndef add(a, b): return a - b\ndef half(n): return n // 2\n"
GOOD = WRONG.replace("a - b", "a + b")
ID = "tests/test_new.py::test_"
UPWARDS = "import pytest, sys\nf = sys._getframe()\nwhile f:\n    if 'test_new' in f.f_code.co_filename: "
NEXT = "\n    f = f.f_back\n"
MARKED = UPWARDS + "f.f_globals['pytestmark'] = pytest.mark.MARK(reason='x')" + NEXT
ON_ITEM = """
def half(n):
    import pytest, sys
    f = sys._getframe(1)
    while not hasattr(f.f_locals.get('item'), 'add_marker'): f = f.f_back
    f.f_locals['item'].add_marker(pytest.mark.xfail(reason='x'))
    raise ValueError
"""
IMPERATIVE = "def add(a, b):\n    import unittest\n    raise unittest.SkipTest('x')\n"


def _files(core: str, tests: str) -> dict[str, str]:
    others = {"calc/__init__.py": "", "tests/__init__.py": "", "conftest.py": ""}
    return {**others, "calc/core.py": core, "tests/test_new.py": tests}


def _judge(root: Path, core: str, new: tuple[str, ...] = (), old: tuple[str, ...] = (), tests: str = TESTS) -> Verdict:
    """Judge a change to the module ``calc.core``, with the outcomes that the tests have without the change."""
    module = "unittest" if tests == UNITTEST else "pytest"
    command = (sys.executable, "-m", module, "tests.test_new" if module == "unittest" else "tests/test_new.py")
    before = Here(_files(WRONG, tests), command, without=("controls",)).judge(root / "before").reported
    adapter = recognise(command)
    assert adapter is not None
    before.collected = [*before.outcomes]
    needed = None if new or old else required(before, {}, adapter, usual_names=True)
    return Here(_files(core, tests), command, new, old, needed=needed, unchanged=before.outcomes).judge(root / "after")


@pytest.mark.parametrize(
    "core", [GOOD + ON_ITEM, WRONG + MARKED.replace("MARK", "xfail") + "def half(n): return None\n"]
)
def test_a_failure_is_expected_only_if_it_was_without_the_change(core: str, tmp_path: Path) -> None:
    """A ``pass_to_pass`` test fails the run if code under test marks it as xfail, on import or while the test runs."""
    verdict = _judge(tmp_path, core, (), (f"{ID}half",))
    assert (verdict.reason, verdict.evidence["missed"]) == (FailureReason.TESTS_FAILED, ["pass_to_pass/0"]), verdict


def test_a_failure_that_was_expected_still_may_be(tmp_path: Path) -> None:
    """A ``pass_to_pass`` test may be xfailed if it was xfailed without the change.

    The lists in data sets name such tests.
    """
    assert _judge(tmp_path, GOOD, (f"{ID}sum",), (f"{ID}half", f"{ID}known")).reason is None


@pytest.mark.parametrize(
    ("core", "reason"),
    [
        (WRONG + MARKED.replace("MARK", "xfail"), FailureReason.TAMPERED),  # the controls are xfailed, too
        (GOOD.replace("[8]", "[]"), FailureReason.TESTS_FAILED),
        (WRONG + IMPERATIVE, FailureReason.TESTS_FAILED),
    ],
    ids=["marked when loaded", "no parameters", "skipped by what it calls"],
)
def test_a_test_that_comes_to_nothing_did_not_pass(core: str, reason: FailureReason, tmp_path: Path) -> None:
    """In a task that names no tests, a run fails if a test is skipped or xfailed only with the change."""
    verdict = _judge(tmp_path, core)
    assert verdict.reason is reason, verdict


def test_a_test_of_unittest_that_is_skipped_did_not_pass(tmp_path: Path) -> None:
    """A unittest test that is skipped only with the change fails the run, even if other tests pass."""
    assert _judge(tmp_path, WRONG + IMPERATIVE, tests=UNITTEST).reason is FailureReason.TESTS_FAILED


@pytest.mark.parametrize("tests", [TESTS, UNITTEST], ids=["pytest", "unittest"])
def test_what_was_skipped_without_the_change_may_be(tests: str, tmp_path: Path) -> None:
    """An honest change passes although some tests are skipped or xfailed, as they are without the change."""
    verdict = _judge(tmp_path, GOOD, tests=tests)
    assert verdict.reason is None, verdict
