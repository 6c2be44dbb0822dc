"""Tests that must run if a task names no expected tests, and tasks that require evidence for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from securebench.errors import FailureReason
from securebench.verifiers.repo_patch.evidence.adapters import recognise
from securebench.verifiers.repo_patch.evidence.channel import ReportedTests
from securebench.verifiers.repo_patch.evidence.collection import required
from verifiers.repo_patch.evidence.here import Here
from verifiers.repo_patch.evidence.styles import CORE, STYLES

if TYPE_CHECKING:
    from pathlib import Path

TEXT = b"""\
import unittest
from unittest import TestCase


class TestPlain:
    def test_plain(self): ...


class First(TestCase):
    def test_first(self): ...

    @unittest.skip("x")
    def test_decorated(self): ...

    def helper(self): ...


class Second(unittest.TestCase):
    def test_second(self): ...


class Inherits(First):
    def test_inherits(self): ...


class Base(TestCase):
    def test_base(self): ...


del Base


@unittest.skip("x")
class Decorated(TestCase):
    def test_decorated(self): ...


class Twice(TestCase):
    def test_once(self): ...


class Twice(TestCase):
    def test_twice(self): ...


def test_function(): ...
def test_replaced(): ...
test_replaced = None
"""
READ = {
    "pytest": {"TestPlain.test_plain", "test_function"},
    "python -m unittest": {"First.test_first", "Second.test_second"},
    "./tests/runtests.py lib.test_a": {"First.test_first", "Second.test_second"},
    "bin/test lib/test_a.py": {"test_function"},
}


@pytest.mark.parametrize("command", READ)
def test_what_cannot_be_loaded_is_read_by_the_names_of_its_runner(command: str) -> None:
    """If a file cannot be loaded, its source is searched for undecorated tests that every run of the file executes."""
    adapter = recognise(command)
    assert adapter is not None
    for reported in (None, ReportedTests(unloaded=["lib/test_a.py"], exit=1)):
        found = required(reported, {"lib/test_a.py": TEXT}, adapter, usual_names=True)
        assert {".".join((*place.classes, place.function)) for place in found.places} == READ[command]
        assert found.state == ("read" if reported is None else "partial")


@pytest.mark.parametrize(
    ("command", "special"),
    [("python -m unittest", b"def load_tests(*_): ...\n"), ("bin/test lib/test_a.py", b"disabled = True\n")],
)
def test_a_module_that_chooses_its_tests_is_not_read(command: str, special: bytes) -> None:
    """No tests are found in the source of a module that selects its tests itself: some of them may not run."""
    adapter = recognise(command)
    assert adapter is not None
    assert not required(None, {"lib/test_a.py": TEXT + special}, adapter, usual_names=True).places


def test_a_task_may_require_evidence_for_each_test(tmp_path: Path) -> None:
    """Without controls, a pass rests only on the exit code.

    A task that requires evidence for each test refuses such a pass. It accepts a pass with controls.
    """
    files = {"calc/__init__.py": "", "calc/core.py": CORE, "tests/test_new.py": STYLES["assert"][0], "conftest.py": ""}
    plain = Here(files, without=("controls",)).judge(tmp_path / "plain")
    assert (plain.reason, plain.evidence["kind"]) == (None, "exit_code")
    strict = Here(files, without=("controls",), test_by_test=True).judge(tmp_path / "strict")
    assert strict.reason is FailureReason.NO_VERDICT
    assert "'tests.require' is 'test_by_test'" in strict.message
    assert Here(files, test_by_test=True).judge(tmp_path / "controls").reason is None
