"""Test-by-test evidence without pytest: with unittest, with scripts that are built on it, and with SymPy's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import FailureReason
from securebench.testing.attacks.repositories import UNITTEST_CHEATS
from securebench.testing.judging.repository import BROKEN, EVERYTHING, FIXED, OLD_TESTS
from securebench.testing.judging.unittests import UNITTEST_COMMANDS, UNITTESTS, patch, unittest_job
from verifiers.repo_patch.runner_cheats import SYMPY_CHEATS, SYMPY_VANISHING, VANISHING
from verifiers.repo_patch.runner_repos import SYMPY_BROKEN, SYMPY_FIXED, manage_job, script_job, sympy_job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver
    from securebench.testing.judging.repository import RepositoryJob
    from securebench.verifiers.base import VerificationResult

pytestmark = pytest.mark.timeout(300)
FIX = {"project/numbers.py": FIXED}
SYMPY_FIX = {"sympy/numbers.py": SYMPY_FIXED}
HELD = {FailureReason.TAMPERED, FailureReason.TESTS_FAILED, FailureReason.NO_VERDICT, FailureReason.POLICY_VIOLATION}


def _evidence(verdict: VerificationResult) -> Any:
    """Return the evidence of a verdict, which must be a pass that rests on single tests and on failed controls."""
    assert verdict.reason is None, verdict
    evidence: Any = verdict.metadata["evidence"]
    assert evidence["kind"] == "test_by_test"
    assert evidence["controls_failed"] > 0
    assert "assurance" not in verdict.metadata
    return evidence


@pytest.mark.parametrize("command", UNITTEST_COMMANDS, ids=" ".join)
def test_a_fix_passes_by_its_tests(command: list[str], driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """Expected ids are found in unittest's older and newer formats, and as the first line of a docstring."""
    job = unittest_job(image, command=command)
    if "discover" in command:  # modules are then named relative to the directory of tests
        job.expect = {name: [test.replace("(tests.", "(") for test in ids] for name, ids in job.expect.items()}
    evidence = _evidence(job.judge(driver, tmp_path, FIX))
    assert (evidence["runner"], evidence["required_passed"]) == ("unittest", 4)


@pytest.mark.parametrize("name", ["TestDouble", "double_case"])
def test_a_command_that_names_a_method_is_judged_by_its_exit_code(
    name: str, driver: SandboxDriver, image: str, tmp_path: Path
) -> None:
    """A command that names a method gets no controls.

    A control has another name than the test, so such a command could run only the test or only one control.
    """
    tests = patch({"tests/test_numbers.py": (OLD_TESTS, UNITTESTS.replace("TestDouble", name))})
    command = ["python3", "-m", "unittest", f"tests.test_numbers.{name}.test_two"]
    job = unittest_job(image, command=command, test_patch=tests, expect={})
    right = job.judge(driver, tmp_path / "right", FIX)
    wrong = job.judge(driver, tmp_path / "wrong", {"README.md": "x\n"})
    evidence: Any = right.metadata["evidence"]
    assert (right.reason, evidence["kind"], evidence.get("controls", 0)) == (None, "exit_code", 0)
    assert wrong.reason is FailureReason.TESTS_FAILED


@pytest.mark.parametrize(("script", "job"), [("tests/runtests.py", script_job), ("manage.py", manage_job)])
def test_a_script_of_the_repository_may_run_them(
    script: str, job: Callable[..., RepositoryJob], driver: SandboxDriver, image: str, tmp_path: Path
) -> None:
    """A script of the repository runs the tests in one process. A candidate's change to the script is undone."""
    _evidence(job(image).judge(driver, tmp_path / "fix", FIX))
    changes = {**FIX, script: "raise SystemExit(0)\n"}
    verdict = job(image, policy=EVERYTHING).judge(driver, tmp_path / "restored", changes)
    assert verdict.reason is None
    assert verdict.metadata["restored"] == [script]


def test_sympys_functions_are_run_by_our_runner(driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """SecureBench's own runner runs SymPy's functions. It skips expected failures and slow tests.

    A candidate may not change the repository's runner. If the policy allows such a change, it is undone.
    """
    evidence = _evidence(sympy_job(image).judge(driver, tmp_path / "fix", SYMPY_FIX))
    assert (evidence["runner"], evidence["required_passed"]) == ("sympy", 3)
    assert evidence["outcomes"]["skipped"] == 2
    for name in ("sympy/testing/runtests.py", "sympy/testing/pytest/__init__.py", "bin/test"):
        verdict = sympy_job(image).judge(driver, tmp_path / name.replace("/", "-"), {**SYMPY_FIX, name: "x = 1\n"})
        assert verdict.reason is FailureReason.POLICY_VIOLATION
    allowed = {"allow_sensitive_paths": ["sympy/testing/**"]}
    changes = {**SYMPY_FIX, "sympy/testing/pytest.py": "def raises(*a, **k): pass\nXFAIL = slow = lambda f: f\n"}
    verdict = sympy_job(image, policy=allowed).judge(driver, tmp_path / "restored", changes)
    assert verdict.metadata["restored"] == ["sympy/testing/pytest.py"]
    assert verdict.reason is None


JOBS = {"module": unittest_job, "script": script_job, "manage": manage_job}
VANISHING_JOBS = {
    "module": (unittest_job, "project/numbers.py", BROKEN + VANISHING, FIX, 5),
    "script": (script_job, "project/numbers.py", BROKEN + VANISHING, FIX, 5),
    "sympy": (sympy_job, "sympy/numbers.py", SYMPY_BROKEN + SYMPY_VANISHING, SYMPY_FIX, 5),
}


@pytest.mark.parametrize("kind", VANISHING_JOBS)
def test_tests_that_there_are_without_the_change_must_run(
    kind: str, driver: SandboxDriver, image: str, tmp_path: Path
) -> None:
    """Without expected ids, all tests that exist without the change must run: the change could make some vanish."""
    job, path, cheat, fix, count = VANISHING_JOBS[kind]
    evidence = _evidence(job(image, expect={}).judge(driver, tmp_path / "fix", fix))
    assert (evidence["collected"], evidence["collection"], evidence["vanished"]) == (count, "complete", 0)
    verdict = job(image, expect={}).judge(driver, tmp_path / "cheat", {path: cheat})
    assert verdict.reason is FailureReason.TESTS_FAILED
    assert verdict.metadata["evidence"]["vanished"] > 0  # type: ignore[index,call-overload,operator]


@pytest.mark.parametrize("kind", JOBS)
def test_what_is_not_fixed_fails(kind: str, driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """A change that fixes nothing fails, with and without expected ids. With ids, the missed tests are listed."""
    other = {"README.md": "Other numbers.\n"}
    verdict = JOBS[kind](image).judge(driver, tmp_path / "listed", other)
    assert verdict.reason is FailureReason.TESTS_FAILED
    assert verdict.metadata["evidence"]["missed"] == ["fail_to_pass/0", "fail_to_pass/1"]  # type: ignore[index,call-overload]
    assert JOBS[kind](image, expect={}).judge(driver, tmp_path / "all", other).reason is FailureReason.TESTS_FAILED


@pytest.mark.parametrize("name", UNITTEST_CHEATS)
def test_cheats_against_unittest_fail(name: str, driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """Code under test that changes unittest, the process or its exit code does not pass."""
    verdict = unittest_job(image).judge(driver, tmp_path, UNITTEST_CHEATS[name])
    assert verdict.reason in HELD, verdict


@pytest.mark.parametrize("job", [script_job, manage_job], ids=["script", "manage"])
@pytest.mark.parametrize("name", ["os._exit(0) at import", "call succeeds", "no assertions", "fake runner"])
def test_cheats_against_a_script_fail(
    name: str, job: Callable[..., RepositoryJob], driver: SandboxDriver, image: str, tmp_path: Path
) -> None:
    """Cheats against unittest also fail if a script of the repository starts unittest."""
    verdict = job(image).judge(driver, tmp_path, UNITTEST_CHEATS[name])
    assert verdict.reason in HELD, verdict


@pytest.mark.parametrize("name", SYMPY_CHEATS)
def test_cheats_against_sympys_runner_fail(name: str, driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """Cheats against SymPy's test functions do not pass. SecureBench's own runner runs these functions."""
    verdict = sympy_job(image).judge(driver, tmp_path, SYMPY_CHEATS[name])
    assert verdict.reason in HELD, verdict


@pytest.mark.parametrize("kind", ["module", "script"])
def test_a_shadow_of_the_tests_is_put_back(kind: str, driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """A module that Python would import instead of the directory of tests is removed before the tests run."""
    shadow = "import os; os._exit(0)\n"
    verdict = JOBS[kind](image).judge(driver, tmp_path, {**FIX, "tests.py": shadow})
    assert verdict.reason is None
    assert verdict.metadata["restored"] == ["tests.py"]
