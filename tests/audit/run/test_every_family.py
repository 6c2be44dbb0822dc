"""Verification of a run that used real sandboxes.

The run has a task of every family that has a verifier, and one pending task.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from audit.run.made_runs import copy_of, failed, rebuild, verify
from audit.run.mutations import FILES, exit_code, flips, line_changes, survivors
from securebench.resources import REDACTED
from securebench.results.run_directory.files import JOURNAL
from tester_run.every_family import EveryFamilyRun, build_images

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.oci import OciDriver

SAMPLE = 150

pytestmark = [pytest.mark.oci, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, oci_driver: OciDriver) -> Path:
    """Return a finished run with a task of every family that has a verifier, and one pending task, next to its pack."""
    build_images()
    run = EveryFamilyRun(tmp_path_factory.mktemp("every") / "run", oci_driver)
    done = run.finish(seconds=600)
    assert done.returncode == 0, done.stderr
    return run.root / "results"


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """Return a copy of the run that may be changed, next to its pack."""
    copy_of(original.parent / "pack", tmp_path / "pack")
    return copy_of(original, tmp_path / "results")


def test_a_run_of_every_family_is_right(run: Path) -> None:
    """The run has records of these seven families. It passes all checks, including the comparison with its pack."""
    records = [json.loads(line) for line in (run / JOURNAL).read_bytes().splitlines()]
    assert {record["task_type"] for record in records} == {
        *("multiple_choice", "short_answer", "free_response", "code_completion"),
        *("repo_patch", "terminal_task", "tool_call"),
    }
    report = verify(run, with_pack=True)
    assert failed(report) == {}
    assert report.exit_code == 0


def test_a_bundle_of_it_is_right(run: Path, tmp_path: Path) -> None:
    """A bundle of the run passes as it is, and after tar has unpacked it."""
    bundle = tmp_path / "run.tar.zst"
    for arguments in (["bundle", run, "-o", bundle], ["verify-run", bundle, "--pack", run.parent / "pack"]):
        command = [sys.executable, "-m", "securebench", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-xf", bundle, "-C", tmp_path / "unpacked"], check=True)
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert exit_code(unpacked) == 0


@pytest.mark.parametrize("is_redacted", [True, False])
def test_a_path_with_a_credential_does_not_make_a_run_look_edited(run: Path, is_redacted: bool) -> None:
    """A path in a recorded patch may differ from the sealed one only if the record says that it was redacted.

    This happens if an agent uses the value of one of its variables as a file name.
    """

    def redact(records: list[dict[str, Any]]) -> None:
        (record,) = (record for record in records if record["task_type"] == "repo_patch")
        path = record["candidate_patch"].split("+++ b/", 1)[1].split("\n", 1)[0]
        record["candidate_patch"] = record["candidate_patch"].replace(path, f"{REDACTED}.py")
        if is_redacted:
            record["candidate_redacted"] = True

    rebuild(run, redact)
    problems = [problem for problems in failed(verify(run)).values() for problem in problems]
    assert any("change different paths" in problem for problem in problems) is not is_redacted


@pytest.mark.parametrize("name", FILES[:2])
def test_no_flipped_byte_is_overlooked(run: Path, name: str) -> None:
    """``verify-run`` finds a change of each of about 150 bytes, evenly spaced over the file."""
    assert survivors(run, name, flips((run / name).read_bytes(), SAMPLE)) == []


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", FILES[:2])
def test_no_flipped_byte_is_overlooked_anywhere(run: Path, name: str) -> None:
    """``verify-run`` finds a change of any byte of run.json or the journal."""
    assert survivors(run, name, flips((run / name).read_bytes())) == []


def test_no_line_is_dropped_added_or_moved_unnoticed(run: Path) -> None:
    """``verify-run`` finds any line of the journal that was dropped, duplicated, swapped or cut off."""
    data = (run / JOURNAL).read_bytes()
    assert survivors(run, JOURNAL, line_changes(data, b"")) == []


def test_no_candidate_is_replaced_unnoticed(run: Path) -> None:
    """``verify-run`` finds a candidate that was replaced by another one, changed in one byte, or emptied."""
    files = sorted((run / "candidates").iterdir())
    assert len(files) >= 5
    for path, other in zip(files, [*files[1:], files[0]], strict=True):
        data, next_one = path.read_bytes(), other.read_bytes()
        path.unlink()
        for changed in (next_one, data[: len(data) // 2] + b"\x01" + data[len(data) // 2 + 1 :], b""):
            path.write_bytes(changed)
            assert exit_code(run) == 13, path.name
        path.write_bytes(data)
    assert exit_code(run) == 0
