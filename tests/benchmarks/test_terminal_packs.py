"""terminal-task-smoke and terminal-tasks: solutions pass, an agent that does nothing fails, and no cheat passes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from benchmarks.packs import BENCHMARKS, tasks_of
from benchmarks.playing import play
from securebench.images.build.recipes import all_recipes
from selected import variants

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver
    from securebench.sandboxes.oci import OciDriver

PACK: Final = BENCHMARKS / "terminal-tasks"
TASKS: Final = {name.partition("/")[2]: task for name, task in tasks_of("terminal-tasks").items()}
SETS: Final = sorted(path.name for path in (PACK / "agents/cheats").iterdir() if path.name.isdigit())
CHECKED: Final = {"check_failed", "state_mismatch"}
REASONS: Final = {"1": CHECKED, "2": CHECKED, "3": CHECKED, "4": {"tampered"}}
"""The reasons for which the cheats of each set may fail."""


@pytest.fixture(scope="module")
def images() -> None:
    """Build the images of the pack that are missing."""
    command = [sys.executable, "-m", "securebench", "images", "build", str(PACK / "images")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _assert_tells_nothing(records: dict[str, dict[str, Any]]) -> None:
    """Assert that no record contains the digest of an expected state, or any output of a checker (F13)."""
    for name, record in records.items():
        state = TASKS[name].resources["expected_state"].value if "expected_state" in TASKS[name].resources else {}
        assert isinstance(state, dict)
        assert str(state.get("sha256", "-no state-")) not in json.dumps(record)
        assert (record["verifier_stdout"], record["verifier_stderr"]) == ("", "")


@pytest.mark.every_driver
def test_the_smoke_pack_is_solved(driver: SandboxDriver, tmp_path: Path, host_canary: Path) -> None:
    """The smoke pack's agent, run from the pack's tester YAML, solves the task."""
    records = play("terminal-task-smoke", "tester", driver, tmp_path)
    assert {name: record["verification_status"] for name, record in records.items()} == {"sort-numbers": "passed"}
    assert records["sort-numbers"]["candidate_workspace"]


@pytest.mark.every_driver
def test_the_smoke_pack_is_not_solved_by_nothing(driver: SandboxDriver, tmp_path: Path) -> None:
    """An agent that does nothing fails the smoke pack."""
    records = play("terminal-task-smoke", "tester", driver, tmp_path, "nothing")
    assert records["sort-numbers"]["failure_reason"] == "check_failed"


@pytest.mark.oci
@pytest.mark.slow
def test_solutions_pass(oci_driver: OciDriver, images: None, tmp_path: Path) -> None:
    """D03, D07, D08: the known solution of each task passes, sealed and judged like any other candidate."""
    records = play("terminal-tasks", "tester", oci_driver, tmp_path)
    statuses = {
        name: (record["verification_status"], record.get("failure_message")) for name, record in records.items()
    }
    assert statuses == dict.fromkeys(TASKS, ("passed", None))
    _assert_tells_nothing(records)


@pytest.mark.oci
@pytest.mark.slow
def test_nothing_fails(oci_driver: OciDriver, images: None, tmp_path: Path) -> None:
    """D03: an agent that does nothing fails every task."""
    records = play("terminal-tasks", "nothing", oci_driver, tmp_path)
    assert {name: record["failure_reason"] for name, record in records.items()} == dict.fromkeys(TASKS, "check_failed")


@pytest.mark.oci
@pytest.mark.slow
@pytest.mark.parametrize("number", variants(SETS, lambda number: number not in {"1", "2", "3"}))
def test_no_cheat_passes(oci_driver: OciDriver, images: None, tmp_path: Path, number: str, host_canary: Path) -> None:
    """A01, A06, A07, A09, A10, A13, D01, D02, D06: each cheat fails when it is judged, for an allowed reason."""
    records = play("terminal-tasks", f"cheats-{number}", oci_driver, tmp_path)
    assert set(records) == set(TASKS)
    for name, record in records.items():
        assert record["verification_status"] == "failed", name
        assert record["failure_phase"] == "verify", (name, record["producer_stderr"])
        assert record["failure_reason"] in REASONS[number], (name, record["failure_message"])
    _assert_tells_nothing(records)


def test_every_task_has_its_parts() -> None:
    """Each task has an image recipe, a checker, a solution, and a cheat in each set.

    In a set, ``any.sh`` is the cheat for each task that has no script of its own.
    """
    assert len(TASKS) == 10
    recipes = {recipe.name: recipe.reference for recipe in all_recipes(PACK / "images")}
    assert {name: task.environment.image for name, task in TASKS.items()} == recipes
    assert set(SETS) == set(REASONS)
    for name in TASKS:
        assert (PACK / "hidden" / name / "check.py").is_file()
        assert (PACK / "agents/solutions" / f"{name}.sh").is_file()
        for number in SETS:
            directory = PACK / "agents/cheats" / number
            assert (directory / f"{name}.sh").is_file() or (directory / "any.sh").is_file()


def test_a_script_is_found_by_what_a_task_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent finds the right solution script for each task.

    The first line of a script quotes its task's instructions. The quotation occurs in no other task's instructions.
    """
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # this directory is copied into sandboxes
    monkeypatch.syspath_prepend(str(PACK / "agents"))
    import play as agent  # type: ignore[import-not-found,unused-ignore]

    for name, task in TASKS.items():
        instructions = task.agent_payload()["instructions"]
        assert agent.find(PACK / "agents/solutions", instructions).stem == name
        matching = [each for each in TASKS if _quoted(each) in str(instructions)]
        assert matching == [name]


def test_checkers_solve_nothing_and_shut_the_candidate_out() -> None:
    """D02: each checker imports the guard, which uses prctl.

    No checker contains the digest of its task's expected state.
    """
    for name, task in TASKS.items():
        source = (PACK / "hidden" / name / "check.py").read_text()
        assert re.search(r"^from guard import", source, re.MULTILINE)
        if "expected_state" in task.resources:
            state = task.resources["expected_state"].value
            assert isinstance(state, dict)
            assert str(state["sha256"]) not in source
    assert "prctl" in (PACK / "hidden/guard.py").read_text()


def _quoted(name: str) -> str:
    return (PACK / "agents/solutions" / f"{name}.sh").read_text().splitlines()[0].removeprefix("# ")
