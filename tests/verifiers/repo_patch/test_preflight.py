"""Repository tasks for which no candidate can be judged are found before an agent runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from securebench.dangerous_commands import VerificationPolicy
from securebench.errors import MaterializationError
from securebench.progress import Reporter
from securebench.testing.judging.repository import LIMITS, TEST_PATCH, RepositoryJob
from securebench.verifiers.base import VerifyContext
from securebench.verifiers.repo_patch import RepoPatchVerifier
from verifiers.repo_patch.repository_image import PLAIN_PYTHON

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver


def check(job: RepositoryJob, driver: SandboxDriver, scratch: Path) -> None:
    """Check a task like a run does before the agent starts."""
    context = VerifyContext(
        driver=driver, policy=VerificationPolicy(), report=Reporter([]), limits=LIMITS, scratch=scratch
    )
    RepoPatchVerifier().check_task(job.view(), context)


def test_a_right_task_is_found_right(driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """The task that the other tests use passes the preflight."""
    check(RepositoryJob(image=image), driver, tmp_path)


_UNFIT_PATCH = TEST_PATCH.replace("assert half(4) == 2", "assert other")
_WRONG: dict[str, tuple[str, str, dict[str, Any]]] = {
    "another commit": ("base-commit-mismatch", "commit", {"base_commit": "f" * 40}),
    "a test patch for other files": (
        "patch-does-not-apply",
        "test_patch cannot be applied",
        {"test_patch": _UNFIT_PATCH},
    ),
    "a setup patch for other files": (
        "patch-does-not-apply",
        "setup_patch cannot be applied",
        {"setup_patch": _UNFIT_PATCH},
    ),
    "a command that only collects": (
        "tests-not-run",
        "the command has --co",
        {"command": ["python3", "-m", "pytest", "--co", "tests"]},
    ),
    "a command with a debugger": (
        "tests-not-run",
        "not every test of the task would run and be reported: the command has --pdb",
        {"command": ["python3", "-m", "pytest", "--pdb", "tests"]},
    ),
    "a method in a class with a lower-case name, though more than an exit code is required": (
        "command-not-test-by-test",
        "names a test method",
        {"command": ["python3", "-m", "unittest", "tests.test_numbers.case.test_x"], "require": "test_by_test"},
    ),
    "a program that is nowhere": (
        "checker-missing",
        "no program /no/such/python",
        {"command": ["/no/such/python", "-m", "pytest"]},
    ),
    "a name that is nowhere": (
        "checker-missing",
        "no program no-such-runner",
        {"command": ["no-such-runner", "tests"]},
    ),
    "a Python without pytest, with options of Python": (
        "checker-missing",
        "no Python module pytest",
        {"command": [PLAIN_PYTHON, "-B", "-W", "error", "-m", "pytest", "tests"]},
    ),
    "a Python without pytest": (
        "checker-missing",
        "no Python module pytest",
        {"command": [PLAIN_PYTHON, "-m", "pytest", "tests"]},
    ),
}


@pytest.mark.parametrize("name", _WRONG)
def test_a_wrong_task_is_refused(driver: SandboxDriver, image: str, tmp_path: Path, name: str) -> None:
    """D108: a task is refused if its commit, patches or command do not fit the image.

    A command does not fit if the image lacks its program or Python module, if not all tests would be reported, or if
    it cannot give the evidence that the task requires.
    """
    code, message, changes = _WRONG[name]
    with pytest.raises(MaterializationError) as refused:
        check(RepositoryJob(image=image, **changes), driver, tmp_path)
    assert refused.value.code == code
    assert message in refused.value.message
