"""The pytest plugin that reports each test's outcome, on a channel that receives nothing that tests print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from securebench.verifiers.repo_patch.checks import GUEST_FILES as GUEST
from securebench.verifiers.repo_patch.evidence.channel import read_channel
from securebench.verifiers.repo_patch.evidence.controls import digest

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.verifiers.repo_patch.evidence.channel import ReportedTests

MARK = "ab" * 16
TESTS = """\
import os, pytest, unittest
os.write(1, b"printed")
print("also printed")
def test_ok(): os.system("echo from a program")
def test_bad(): assert 0
@pytest.mark.xfail
def test_known(): assert 0
@pytest.mark.xfail
def test_mended(): pass
def test_claims_to_be_known(): pytest.xfail("x")
def test_skips(): pytest.skip("x")
class T(unittest.TestCase):
    def test_right(self): self.assertEqual(1, 1)
    def test_wrong(self): self.assertEqual(1, 2)
    @unittest.expectedFailure
    def test_known(self): self.assertEqual(1, 2)
@pytest.fixture
def broken(): raise ValueError
def test_set_up(broken): pass
@pytest.fixture
def late():
    yield
    raise ValueError
def test_tear_down(late): pass
def test_forks():
    if os.fork() == 0:
        os._exit(0)
def test_edge_width(): assert 0
class T(T):
    def test_edge_line(self): self.fail()
"""
OUTCOMES = {
    "test_a.py::test_ok": "passed",
    "test_a.py::test_bad": "failed",
    "test_a.py::test_known": "xfailed",
    "test_a.py::test_mended": "xpassed",
    "test_a.py::test_claims_to_be_known": "skipped",
    "test_a.py::test_skips": "skipped",
    "test_a.py::T::test_right": "passed",
    "test_a.py::T::test_wrong": "failed",
    "test_a.py::T::test_known": "xfailed",
    "test_a.py::test_set_up": "error",
    "test_a.py::test_tear_down": "error",
    "test_a.py::test_forks": "passed",
    "test_a.py::test_edge_width": "failed",
    "test_a.py::T::test_edge_line": "failed",
}


def _report_of(root: Path, *arguments: str, module: bool = False) -> ReportedTests:
    """Run pytest on ``TESTS`` like the command of a task, and return what the plugin reports."""
    root.mkdir(exist_ok=True)
    (root / "test_a.py").write_text(TESTS)
    (root / "pytest.ini").write_text("[pytest]\n")
    order = {
        "mark": MARK,
        "keep": [digest("test_edge_width"), digest("test_edge_line")],
        "protected": [],
        "libraries": [],
        "repository": str(root),
    }
    start = [str(GUEST / "securebench_launch.py")] if module else ["-m", "pytest", "-p", "securebench_report"]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(GUEST),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # some of the plugins installed here load slowly
    }
    done = subprocess.run(
        [sys.executable, *start, *arguments],
        check=False,
        cwd=root,
        env=environment,
        input=json.dumps(order).encode() + b"\n",
        capture_output=True,
    )
    assert b"printed" not in done.stdout
    assert done.returncode == 1, done.stderr
    reported = read_channel(done.stdout, MARK)
    assert reported.exit == 1
    return reported


@pytest.mark.parametrize("module", [False, True], ids=["plugin", "launcher"])
def test_each_outcome_has_its_name(module: bool, tmp_path: Path) -> None:
    """Each test is reported with its outcome, including errors in its set-up and tear-down.

    An expected failure is ``xfailed`` if the test has the mark, but ``skipped`` if the test calls ``pytest.xfail``.
    """
    assert _report_of(tmp_path / "r", "test_a.py", module=module).outcomes == OUTCOMES


@pytest.mark.parametrize(
    "arguments",
    [
        ["-x"],
        ["-k", "ok or right"],
        ["test_a.py", "--deselect", "test_a.py::test_edge_width", "-x", "-k", "test_ok or right"],
        ["test_a.py::test_ok", "test_a.py::T::test_right"],
    ],
)
def test_the_tests_that_must_fail_are_always_run(arguments: list[str], tmp_path: Path) -> None:
    """Controls always run, whatever a command selects or excludes, and even if it stops at the first failure.

    The tests that the command selects run, too.
    """
    outcomes = _report_of(tmp_path / "r", *arguments).outcomes
    assert outcomes["test_a.py::test_edge_width"] == "failed"
    assert outcomes["test_a.py::T::test_edge_line"] == "failed"
    assert outcomes["test_a.py::test_ok"] == "passed"


def test_a_file_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    """A file that cannot be loaded is reported by its name, and the tests in other files still run."""
    (tmp_path / "r").mkdir()
    (tmp_path / "r/test_b.py").write_text("raise ValueError\n")
    reported = _report_of(tmp_path / "r")
    assert reported.unloaded == ["test_b.py"]
    assert reported.outcomes["test_a.py::test_ok"] == "passed"
