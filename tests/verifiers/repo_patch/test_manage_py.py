"""``manage.py test`` of a project that uses Django: a right fix passes; a wrong one and cheats fail.

These tests download Django from the package index, and run only with ``--long``. ``SECUREBENCH_TEST_RELEASES`` names
a directory in which downloads are kept.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import FailureReason
from verifiers.repo_patch.manage_project import CHEATS, COMMANDS, FIXED, VERSIONS, WRONG, add_image, job

if TYPE_CHECKING:
    from securebench.images.store.image_store import ImageStore
    from securebench.sandboxes.base import SandboxDriver

pytestmark = [pytest.mark.oci, pytest.mark.long, pytest.mark.timeout(600)]
FIX = {"shop/prices.py": FIXED}
HELD = {FailureReason.TAMPERED, FailureReason.TESTS_FAILED, FailureReason.NO_VERDICT, FailureReason.POLICY_VIOLATION}


@pytest.fixture(scope="module", params=VERSIONS)
def project(
    request: pytest.FixtureRequest,
    store: ImageStore,
    doomed_images: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """Return the name of an image with the project and a version of Django."""
    kept = os.environ.get("SECUREBENCH_TEST_RELEASES")
    reference = f"securebench-tests/manage:{request.param}-{os.getpid()}"
    add_image(store, Path(kept) if kept else tmp_path_factory.mktemp("wheels"), request.param, reference)
    doomed_images.append(reference)
    return reference


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_right_fix_passes_by_its_tests_and_a_wrong_one_fails(
    command: list[str], oci_driver: SandboxDriver, project: str, tmp_path: Path
) -> None:
    """For each form of the command, a fix passes with all required tests and with controls that failed.

    A wrong fix fails, and its evidence lists the ``fail_to_pass`` tests as missed.
    """
    verdict = job(project, command=command).judge(oci_driver, tmp_path / "fix", FIX)
    evidence: Any = verdict.metadata["evidence"]
    assert verdict.reason is None, verdict
    assert (evidence["kind"], evidence["runner"], evidence["required_passed"]) == ("test_by_test", "unittest", 4)
    assert evidence["controls_failed"] > 0
    assert "assurance" not in verdict.metadata
    verdict = job(project, command=command).judge(oci_driver, tmp_path / "wrong", {"shop/prices.py": WRONG})
    assert verdict.reason is FailureReason.TESTS_FAILED
    missed: Any = verdict.metadata["evidence"]
    assert missed["missed"] == ["fail_to_pass/0", "fail_to_pass/1"]


def test_a_task_that_names_no_tests_requires_all_of_them(
    oci_driver: SandboxDriver, project: str, tmp_path: Path
) -> None:
    """Without expected ids, all tests that exist without the change must pass."""
    assert job(project, expect={}).judge(oci_driver, tmp_path / "fix", FIX).reason is None
    wrong = {"shop/prices.py": WRONG}
    assert job(project, expect={}).judge(oci_driver, tmp_path / "wrong", wrong).reason is FailureReason.TESTS_FAILED


@pytest.mark.parametrize("name", CHEATS)
def test_no_cheat_passes(name: str, oci_driver: SandboxDriver, project: str, tmp_path: Path) -> None:
    """A cheat does not pass, whether it ends the process or changes unittest, Django or files of the project."""
    verdict = job(project).judge(oci_driver, tmp_path, CHEATS[name])
    assert verdict.reason in HELD, verdict
