"""A repository task that no candidate could pass is found before its agent runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from securebench.dangerous_commands import VerificationPolicy
from securebench.errors import MaterializationError
from securebench.progress import Reporter
from securebench.verifiers.base import VerifyContext
from securebench.verifiers.repo_patch import RepoPatchVerifier
from verifiers.repo_patch.judging_repo import LIMITS, TEST_PATCH, Job

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver


def check(job: Job, driver: SandboxDriver, scratch: Path) -> None:
    """Check a task, as it is before its agent runs."""
    context = VerifyContext(
        driver=driver, policy=VerificationPolicy(), report=Reporter([]), limits=LIMITS, scratch=scratch
    )
    RepoPatchVerifier().check_task(job.view(), context)


def test_a_right_task_is_found_right(driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """The task that the other tests judge by can be judged."""
    check(Job(image=image), driver, tmp_path)


_WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "another commit": ("base-commit-mismatch", {"base_commit": "f" * 40}),
    "a test patch for other files": ("", {"test_patch": TEST_PATCH.replace("assert half(4) == 2", "assert other")}),
    "a command that only collects": ("tests-not-run", {"command": ["python3", "-m", "pytest", "--co", "tests"]}),
    "a program that is nowhere": ("checker-missing", {"command": ["/no/such/python", "-m", "pytest"]}),
    "a name that is nowhere": ("checker-missing", {"command": ["no-such-runner", "tests"]}),
}


@pytest.mark.parametrize("name", _WRONG)
def test_a_wrong_task_is_refused(driver: SandboxDriver, image: str, tmp_path: Path, name: str) -> None:
    """D108: its commit, its patches and its command are held against the image."""
    code, changes = _WRONG[name]
    with pytest.raises(MaterializationError) as refused:
        check(Job(image=image, **changes), driver, tmp_path)
    assert refused.value.code == code or not code
