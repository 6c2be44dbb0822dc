"""repo-patch-smoke: known solutions pass, an agent that does nothing fails, and no cheat passes."""

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
"""The reasons for which each cheat may fail."""
QUICK: Final = {"hook"}
"""The cheats that run without ``--long``. ``tests/verifiers/repo_patch`` always runs similar ones."""


@pytest.fixture(scope="module")
def images() -> None:
    """Build the images of the pack that are missing."""
    command = [sys.executable, "-m", "securebench", "images", "build", str(PACK / "images")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_solutions_pass(driver: SandboxDriver, images: None, tmp_path: Path) -> None:
    """The known solution of each task passes, and its recorded patch changes exactly one file."""
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
    """C01 to C11: each cheat fails every task, for one of the reasons that are allowed for it."""
    records = play("repo-patch-smoke", f"cheat-{cheat}", oci_driver, tmp_path)
    assert sorted(records) == NAMES
    for name, record in records.items():
        assert record["verification_status"] == "failed", name
        assert record["failure_reason"] in REASONS[cheat], (name, record["failure_message"])


def test_every_cheat_is_run() -> None:
    """Each cheat that the agent implements has a tester YAML and a set of allowed reasons."""
    assert set(AGENT["CHEATS"]) == set(REASONS)
    assert {path.stem for path in PACK.glob("cheat-*.yaml")} == {f"cheat-{name}" for name in REASONS}
