"""repo-patch-smoke: each fault is mended by its known solution, not by nothing, and by no cheat."""

from __future__ import annotations

import runpy
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from benchmarks.packs import BENCHMARKS, tasks_of
from benchmarks.playing import play
from selected import variants

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver
    from securebench.sandboxes.oci import OciDriver

PACK: Final = BENCHMARKS / "repo-patch-smoke"
NAMES: Final = sorted(name.partition("/")[2] for name in tasks_of("repo-patch-smoke"))
AGENT: Final[dict[str, Any]] = runpy.run_path(str(PACK / "agents/agent.py"))
REFUSED: Final = {"policy_violation"}
JUDGED: Final = {"tampered", "tests_failed", "no_verdict"}
REASONS: Final = {
    "leave": JUDGED,
    "skip": JUDGED,
    "force-pass": {"tampered"},
    "print-passed": JUDGED,
    "hook": REFUSED,
    "configure": REFUSED,
    "shadow": REFUSED,
    "no-tests": REFUSED,
}
"""For which reasons each cheat may fail."""
QUICK: Final = {"hook"}
"""Cheats that every run of the tests plays. ``tests/verifiers/repo_patch`` plays similar ones in all runs."""


@pytest.fixture(scope="module")
def images() -> None:
    """Build the images of the pack, where they are missing."""
    command = [sys.executable, "-m", "securebench", "images", "build", str(PACK / "images")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_solutions_pass(driver: SandboxDriver, images: None, tmp_path: Path) -> None:
    """The known solution of each fault passes, and the record shows it as a patch of the module alone."""
    records = play("repo-patch-smoke", "tester", driver, tmp_path)
    outcomes = {
        name: (record["verification_status"], record.get("failure_message")) for name, record in records.items()
    }
    assert outcomes == dict.fromkeys(NAMES, ("passed", None))
    for record in records.values():
        assert record["candidate_patch"].count("diff --git ") == 1


@pytest.mark.oci
@pytest.mark.slow
def test_nothing_fails(oci_driver: OciDriver, images: None, tmp_path: Path) -> None:
    """C19: an agent that does nothing passes no task."""
    records = play("repo-patch-smoke", "nothing", oci_driver, tmp_path)
    assert {name: record["failure_reason"] for name, record in records.items()} == dict.fromkeys(
        NAMES, "candidate_empty"
    )


@pytest.mark.oci
@pytest.mark.slow
@pytest.mark.parametrize("cheat", variants(REASONS, QUICK.__contains__))
def test_no_cheat_passes(oci_driver: OciDriver, images: None, tmp_path: Path, cheat: str) -> None:
    """C01 to C11: no cheat passes any task, and each record says why."""
    records = play("repo-patch-smoke", f"cheat-{cheat}", oci_driver, tmp_path)
    assert sorted(records) == NAMES
    for name, record in records.items():
        assert record["verification_status"] == "failed", name
        assert record["failure_reason"] in REASONS[cheat], (name, record["failure_message"])


def test_every_cheat_is_run() -> None:
    """Each cheat that the agent knows has a tester YAML, and is held to a reason."""
    assert set(AGENT["CHEATS"]) == set(REASONS)
    assert {path.stem for path in PACK.glob("cheat-*.yaml")} == {f"cheat-{name}" for name in REASONS}
