"""A task whose tests use unittest, on the small repository."""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING, Any

from securebench.testing.judging.repository import OLD_TESTS, RepositoryJob

if TYPE_CHECKING:
    from collections.abc import Mapping

UNITTESTS = '''\
import unittest

from project.numbers import double, half


class TestHalf(unittest.TestCase):
    def test_half(self):
        """Half of a number,
        however large."""
        self.assertEqual(half(4), 2)


class TestDouble(unittest.TestCase):
    def setUp(self):
        self.number = 2

    def test_two(self):
        self.assertEqual(double(self.number), 4)
        self.assertTrue(double(self.number) > 3)

    def test_zero(self):
        self.assertEqual(double(0), 0)

    def test_text(self):
        with self.assertRaises(TypeError):
            half("x")

    @unittest.skip("not here")
    def test_skipped(self):
        self.assertEqual(double(1), 2)
'''
_CASE = "tests.test_numbers.TestDouble"
FAIL_TO_PASS = [f"test_two ({_CASE})", f"test_zero ({_CASE}.test_zero)"]
PASS_TO_PASS = ["Half of a number,", f"test_text ({_CASE})"]
UNITTEST_COMMANDS = [
    ["python3", "-m", "unittest", "tests.test_numbers"],
    ["python3", "-m", "unittest", "tests/test_numbers.py"],
    ["python3", "-m", "unittest", "discover", "-s", "tests"],
    ["python3", "-m", "unittest", "-v", "-f", "tests.test_numbers.TestDouble", "tests.test_numbers.TestHalf"],
]


def patch(files: Mapping[str, tuple[str, str]]) -> str:
    """Return a patch that changes each file from its first text to its second. An empty first text adds the file."""
    pieces = []
    for name, (before, after) in files.items():
        lines = unified_diff(
            before.splitlines(keepends=True),
            after.splitlines(keepends=True),
            f"a/{name}" if before else "/dev/null",
            f"b/{name}",
        )
        new = "" if before else "new file mode 100644\n"
        pieces.append(f"diff --git a/{name} b/{name}\n{new}{''.join(lines)}")
    return "".join(pieces)


def unittest_job(image: str, **changes: Any) -> RepositoryJob:
    """Return a task whose tests use unittest. ``changes`` are fields of :class:`RepositoryJob`."""
    given: dict[str, Any] = {
        "command": UNITTEST_COMMANDS[0],
        "test_patch": patch({"tests/test_numbers.py": (OLD_TESTS, UNITTESTS)}),
        "expect": {"fail_to_pass": FAIL_TO_PASS, "pass_to_pass": PASS_TO_PASS},
    }
    return RepositoryJob(image=image, **{**given, **changes})
