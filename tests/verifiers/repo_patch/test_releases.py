"""Real releases of Django and SymPy with an added bug: the original code passes, and no cheat does.

These tests download the releases from the package index, and run only with ``--long``. ``SECUREBENCH_TEST_RELEASES``
names a directory in which downloads are kept.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import FailureReason
from securebench.images.engine_images import load_into_engine
from securebench.sandboxes.base import MIB, Limits
from securebench.sandboxes.docker.driver import DockerDriver
from securebench.testing.judging.repository import RepositoryJob
from verifiers.repo_patch.releases import RELEASES
from verifiers.repo_patch.runner_cheats import SYMPY_RELEASE_CHEATS, UNITTEST_RELEASE_CHEATS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.images.store.image_store import ImageStore
    from securebench.sandboxes.base import SandboxDriver
    from verifiers.repo_patch.releases import Bug, Release

pytestmark = [pytest.mark.oci, pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(1800)]
CASES = [(release, number) for release in RELEASES for number in range(len(release.bugs))]
REPRESENTATIVES = [case for case in CASES if (case[0].version, case[1]) in {("4.2.16", 0), ("1.12", 0)}]
HELD = {FailureReason.TAMPERED, FailureReason.TESTS_FAILED, FailureReason.NO_VERDICT, FailureReason.POLICY_VIOLATION}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory for downloads."""
    kept = os.environ.get("SECUREBENCH_TEST_RELEASES")
    return Path(kept) if kept else tmp_path_factory.mktemp("releases")


def _name(case: tuple[Release, int]) -> str:
    return f"{case[0].project}-{case[0].version}-{case[1]}"


@pytest.fixture(params=CASES, ids=_name)
def case(
    request: pytest.FixtureRequest, store: ImageStore, doomed_images: list[str], cache: Path
) -> tuple[Release, Bug, str, str]:
    """Return a release, the bug in it, the name of its image, and the text of the file without the bug."""
    release, number = request.param
    reference = f"securebench-tests/{release.project.lower()}:{release.version}-{number}-{os.getpid()}"
    bug = release.bugs[number]
    files = release.image(store, cache, bug, reference)
    doomed_images.append(reference)
    return release, bug, reference, files[bug.path].decode()


def test_a_fix_passes_and_no_cheat_does(
    case: tuple[Release, Bug, str, str], oci_driver: SandboxDriver, tmp_path: Path
) -> None:
    """The release's original file passes. A change that fixes nothing, and each cheat, fails."""
    cheats = UNITTEST_RELEASE_CHEATS if case[0].project == "Django" else SYMPY_RELEASE_CHEATS
    _judge(oci_driver, case, cheats, tmp_path)


@pytest.mark.parametrize("case", REPRESENTATIVES, indirect=True, ids=_name)
def test_each_driver_says_the_same(
    case: tuple[Release, Bug, str, str],
    driver: SandboxDriver,
    store: ImageStore,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    """With every driver, the fix of one release of each project passes. An empty change and a short cheat fail."""
    reference = case[2]
    if isinstance(driver, DockerDriver):
        engine = request.getfixturevalue("engine")
        load_into_engine(engine, store, reference, lambda _line: None)
        request.addfinalizer(lambda: engine.client.remove_image(reference, force=True))
    _judge(driver, case, {"exit": "import os\nos._exit(0)\n"}, tmp_path)


def _judge(
    driver: SandboxDriver, case: tuple[Release, Bug, str, str], cheats: Mapping[str, str], tmp_path: Path
) -> None:
    """Judge the fix, a change that does nothing, and ``cheats``, which are appended to the module with the bug."""
    release, bug, reference, text = case
    job = RepositoryJob(
        image=reference,
        command=[*release.command, bug.label],
        test_patch="",
        expect={"fail_to_pass": list(bug.fail_to_pass), "pass_to_pass": list(bug.pass_to_pass)},
        timeout=600,
        limits=Limits(memory=2048 * MIB, output=16 * MIB),
    )
    verdict = job.judge(driver, tmp_path / "fix", {bug.path: text})
    evidence: Any = verdict.metadata["evidence"]
    assert verdict.reason is None, verdict
    assert (evidence["kind"], "assurance" in verdict.metadata) == ("test_by_test", False)
    assert evidence["controls_failed"] > 0
    broken = text.replace(bug.right, bug.wrong)
    verdict = job.judge(driver, tmp_path / "none", {bug.path: f"{broken}\n# nothing\n"})
    assert verdict.reason is FailureReason.TESTS_FAILED, verdict
    for name, code in cheats.items():
        verdict = job.judge(driver, tmp_path / name.replace("/", " "), {bug.path: f"{broken}\n{code}"})
        assert verdict.reason in HELD, (name, verdict)
