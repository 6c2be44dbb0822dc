"""The reporter works with several versions of pytest, for every form of arguments and every style of tests."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from securebench.errors import FailureReason
from verifiers.repo_patch.evidence.here import Here
from verifiers.repo_patch.evidence.styles import BROKEN, CORE, STYLES

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = ("6.2.5", "7.4.4", "8.0.2", "8.1.2", "8.2.2", "8.3.5", "8.4.2", "9.0.0")
CASE = "tests/test_case.py::CoreTests"
FORMS: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "directory": ("tests",),
    "here": (".",),
    "file": ("tests/test_new.py", "tests/test_case.py"),
    "class and function": (CASE, "tests/test_new.py::test_0a"),
    "expression": ("-k", "test_0a or CoreTests", "tests"),
    "stops at the first": ("-x", "tests"),
    "absolute": ("{root}/tests",),
    "doctests": ("--doctest-modules", "tests", "calc"),
}
NOOP = "import unittest\nfor n in dir(unittest.TestCase):\n    if n.startswith('assert'):\n"
CHEAT = BROKEN + NOOP + "        setattr(unittest.TestCase, n, lambda *a, **k: None)\n"


@pytest.fixture(scope="session", params=VERSIONS)
def packages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a directory with one version of pytest, installed from PyPI."""
    target = tmp_path_factory.mktemp(f"pytest-{request.param}")
    install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(target), f"pytest=={request.param}"]
    subprocess.run(install, check=True)
    return str(target)


def _judge(root: Path, core: str, packages: str, arguments: tuple[str, ...], *, module: bool = True) -> Here:
    start = (sys.executable, "-m", "pytest") if module else (sys.executable.replace("python", "pytest"),)
    files = {
        "calc/__init__.py": "",
        "calc/core.py": core + '\n\ndef shown():\n    """Show.\n\n    >>> add(1, 2)\n    3\n    """\n',
        "tests/test_new.py": STYLES["assert"][0],
        "tests/test_case.py": STYLES["unittest"][0],
        "conftest.py": "",
    }
    words = tuple(word.format(root=root) for word in arguments)
    wanted = ("tests/test_new.py::test_0a", f"{CASE}::test_0a")
    return Here(files, (*start, "-q", "-p", "no:cacheprovider", *words), fail_to_pass=wanted, packages=packages)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_form_of_arguments_in_every_version(packages: str, tmp_path: Path) -> None:
    """For every form, an honest change passes, its controls fail, and a cheat is detected.

    A wrong change is judged with one form, and fails.
    """
    for number, (form, arguments) in enumerate(FORMS.items()):
        root = tmp_path / f"right{number}"
        right = _judge(root, CORE, packages, arguments).judge(root)
        assert right.reason is None, (form, right.message, right.evidence, right.output.decode()[-2000:])
        assert right.evidence["controls_failed"] > 3, (form, right.evidence)
        root = tmp_path / f"cheat{number}"
        cheat = _judge(root, CHEAT, packages, arguments).judge(root)
        assert cheat.reason is FailureReason.TAMPERED, (form, cheat)
    root = tmp_path / "wrong"
    assert _judge(root, BROKEN, packages, ("tests",)).judge(root).reason is FailureReason.TESTS_FAILED


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_style_in_every_version(packages: str, tmp_path: Path) -> None:
    """An honest change passes with tests of every style and has controls of the expected styles."""
    for number, (style, (tests, wanted)) in enumerate(STYLES.items()):
        files = {"calc/__init__.py": "", "calc/core.py": CORE, "tests/test_new.py": tests, "conftest.py": ""}
        verdict = Here(files, packages=packages).judge(tmp_path / f"r{number}")
        assert verdict.reason is None, (style, verdict.message, verdict.evidence, verdict.output.decode()[-2000:])
        assert set(wanted) <= set(verdict.evidence["styles"])
