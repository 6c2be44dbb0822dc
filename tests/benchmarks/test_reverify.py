"""The example packs: ``reverify`` gives the same verdicts as the run, and detects a broken verifier."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from benchmarks.authors_data import data_folder, humaneval_document
from benchmarks.packs import BENCHMARKS
from benchmarks.playing import judge_again, play
from securebench.importers.humaneval import humaneval_rows
from securebench.importers.mmlu import mmlu_document, mmlu_rows
from securebench.importers.pack_output import write_pack
from securebench.results.read import read_run
from securebench.tester_run import RunOptions
from securebench.tester_run.reverify import reverify
from securebench.verifiers.terminal_task import TerminalTaskVerifier
from selected import variants

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.importers.row import ImportedRow
    from securebench.sandboxes.base import SandboxDriver

TESTERS: Final = [
    pytest.param(pack, path.stem, marks=[] if path.stem == "cheat-hook" else pytest.mark.long)
    for pack in ("repo-patch-smoke", "terminal-tasks")
    for path in sorted((BENCHMARKS / pack).glob("*.yaml"))
    if path.stem == "tester" or path.stem.startswith(("nothing", "cheat"))
]
"""The packs that need their own images, with their tester files: solutions, cheats, and agents that do nothing."""


def assert_same(records: Mapping[str, Mapping[str, Any]], result: Mapping[str, Any]) -> None:
    """Assert that ``reverify`` confirmed each verdict.

    The trials that it lists as unjudged must be exactly those that had no verdict in the run.
    """
    judged = {name for name, record in records.items() if "assurance" in record}
    assert result["changed"] == []
    assert result["same"] == len(judged)
    assert {one["task_id"].partition("/")[2] for one in result["unjudged"]} == records.keys() - judged
    assert result["exit_code"] == (0 if len(judged) == len(records) else 3)
    for name in ("passed", "failed"):
        statuses = [record["verification_status"] for record in records.values()]
        assert result["summary"][name] == statuses.count(name)


@pytest.mark.parametrize("pack", variants(["text-smoke", "code-completion-smoke"], "code-completion-smoke".__eq__))
def test_texts_and_code(pack: str, driver: SandboxDriver, tmp_path: Path) -> None:
    """The demo agent's right and wrong answers get the same verdicts again."""
    records = play(pack, "tester", driver, tmp_path)
    assert_same(records, judge_again(tmp_path))


@pytest.mark.every_driver
def test_a_workspace(driver: SandboxDriver, tmp_path: Path) -> None:
    """By default, a workspace is judged again with the driver and the image of the run."""
    records = play("terminal-task-smoke", "tester", driver, tmp_path)
    result = judge_again(tmp_path)
    assert_same(records, result)
    assert result["differences"] == []
    info, record = driver.info(), read_run(tmp_path / "out.reverified").find("terminal-task-smoke/sort-numbers")
    recorded = record.provenance["driver"]
    assert (recorded["name"], recorded["runtime"]) == (info.name, info.runtime)
    assert record.provenance["image"] == records["sort-numbers"]["provenance"]["image"]


@pytest.mark.engine
def test_another_driver_is_reported(oci_driver: SandboxDriver, tmp_path: Path) -> None:
    """The verdict on a workspace is the same with Docker, and the result reports the change of the driver."""
    records = play("terminal-task-smoke", "tester", oci_driver, tmp_path)
    result = judge_again(tmp_path, "--driver", "docker")
    assert_same(records, result)
    assert {"name": "sandbox.driver", "was": "oci", "now": "docker"} in result["differences"]


def test_a_broken_verifier_is_found(driver: SandboxDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verifier that passes everything turns a failure into a pass; the result has the task and both verdicts."""
    play("terminal-task-smoke", "tester", driver, tmp_path, "nothing")
    monkeypatch.setattr(TerminalTaskVerifier, "verify", _pass_everything)
    result = reverify(tmp_path / "out", RunOptions())
    (changed,) = result.verdicts.changed
    assert changed.trial.task_id.endswith("/sort-numbers")
    assert (str(changed.was), str(changed.now)) == ("failed (check_failed, full)", "passed (full)")


def _pass_everything(*_: object) -> Any:
    from securebench.verifiers.base import VerificationResult

    return VerificationResult(reason=None, metadata={"verifier": "terminal_task", "version": "0", "phase": "verdict"})


@pytest.mark.oci
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("pack", "tester"), TESTERS)
def test_packs_with_images(pack: str, tester: str, oci_driver: SandboxDriver, tmp_path: Path) -> None:
    """Solutions, cheats and agents that do nothing get the same verdicts again."""
    command = [sys.executable, "-m", "securebench", "images", "build", str(BENCHMARKS / pack / "images")]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert_same(play(pack, tester, oci_driver, tmp_path), judge_again(tmp_path))


@pytest.mark.oci
@pytest.mark.long
@pytest.mark.parametrize("pack", ["humaneval-mini", "mmlu-abstract-algebra-mini"])
def test_imported_packs(pack: str, oci_driver: SandboxDriver, tmp_path: Path) -> None:
    """The demo agent's right and wrong answers to imported rows get the same verdicts again."""
    packs = tmp_path / "benchmarks"
    for name in (pack, "demo-agent"):
        shutil.copytree(BENCHMARKS / name, packs / name)
    written = write_pack(tmp_path / "imported", _rows(pack)[:10], {"id": pack, "version": 1}, force=False).tasks
    shutil.copy(written, packs / pack / "tasks.jsonl")
    assert_same(play(pack, "tester", oci_driver, tmp_path, packs=packs), judge_again(tmp_path))


def _rows(pack: str) -> list[ImportedRow]:
    if pack == "humaneval-mini":
        return humaneval_rows(humaneval_document(), "HumanEval.jsonl")
    name, data = mmlu_document(str(data_folder() / "mmlu"), "abstract_algebra", "test")
    return mmlu_rows([("abstract_algebra", name, data)], "test")
