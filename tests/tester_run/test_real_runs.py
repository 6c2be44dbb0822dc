"""Whole runs on real sandboxes: finished, killed, interrupted, or on a full disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from securebench.results.run_directory.files import JOURNAL
from securebench.sandboxes.optimisations import VARIABLE
from tester_run.real_run import RealRun, anonymous, small_disk, wait_for
from tester_run.running import records

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver

pytestmark = pytest.mark.sandboxes_alone


@pytest.fixture(scope="module")
def _clean_runs() -> dict[str, list[dict[str, Any]]]:
    """Return an empty cache that maps a driver and its runtime to the records of a clean run."""
    return {}


@pytest.fixture
def clean(
    _clean_runs: dict[str, list[dict[str, Any]]], driver: SandboxDriver, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """Return the comparable records of an undisturbed run, without its id."""
    info = driver.info()
    name = f"{info.name} {info.runtime}"
    if name not in _clean_runs:
        one = RealRun(tmp_path_factory.mktemp("clean"), driver)
        done = one.finish("--workers", "2")
        assert done.returncode == 0, done.stderr
        _clean_runs[name] = anonymous(one.root)
    return _clean_runs[name]


@pytest.mark.every_driver
def test_four_families(tmp_path: Path, driver: SandboxDriver) -> None:
    """One task of each of four families is judged, the records contain image and driver, and no container is left."""
    one = RealRun(tmp_path, driver, rounds=1)
    done = one.finish("--workers", "4")
    assert done.returncode == 0, done.stderr
    assert "75.0% of 4" in done.stdout
    verdicts = {record["task_type"]: record["verification_status"] for record in records(tmp_path)}
    assert verdicts == {
        "multiple_choice": "passed",
        "short_answer": "failed",
        "free_response": "passed",
        "code_completion": "passed",
    }
    assert not one.left()
    for record in records(tmp_path):
        assert record["provenance"]["image"]["id"].startswith("sha256:")
        info, recorded = driver.info(), record["provenance"]["driver"]
        assert (recorded["name"], recorded["runtime"]) == (info.name, info.runtime)
        assert {"network", "capabilities", "no-new-privileges"} <= set(recorded["enforced"])


@pytest.mark.long
def test_optimisations_change_no_record(tmp_path: Path, driver: SandboxDriver, clean: list[dict[str, Any]]) -> None:
    """A run with all optimisations switched off has the same records as a run with them."""
    one = RealRun(tmp_path, driver)
    done = one.finish("--workers", "2", variables={VARIABLE: "all"})
    assert done.returncode == 0, done.stderr
    assert anonymous(tmp_path) == clean
    assert not one.left()


@pytest.mark.parametrize("after", [1, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.every_driver
def test_killed_and_resumed(tmp_path: Path, driver: SandboxDriver, clean: list[dict[str, Any]], after: int) -> None:
    """A run that is killed half-way and resumed has the records of a clean run, and no container is left (L01, L10)."""
    one = RealRun(tmp_path, driver, sleep=0.3)
    with one.begun("--workers", "4", after=after) as process:
        process.kill()
    kept = one.written()
    done = one.finish("--workers", "4", "--resume")
    assert done.returncode == 0, done.stderr
    assert f"resuming: {kept} of " in done.stderr
    assert anonymous(tmp_path) == clean
    assert not one.left()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [10, 250])
def test_killed_often_and_resumed(tmp_path: Path, driver: SandboxDriver, rounds: int) -> None:
    """A run that is killed three times and resumed has the records of a clean run, and nothing is left (L01, L10)."""
    tasks, flags = 4 * rounds, ("--workers", "4", "--quiet")
    one, clean = RealRun(tmp_path / "killed", driver, rounds), RealRun(tmp_path / "clean", driver, rounds)
    for number in range(3):
        with one.begun(*flags, *(("--resume",) if number else ()), after=(number + 1) * tasks // 4) as process:
            process.kill()
    assert tasks // 4 <= one.written() < tasks
    for run, more in ((one, ("--resume",)), (clean, ())):
        done = run.finish(*flags, *more, seconds=3000)
        assert done.returncode == 0, done.stderr
    assert len(records(clean.root)) == tasks
    assert anonymous(one.root) == anonymous(clean.root)
    assert not one.left()


def test_interrupted_once(tmp_path: Path, driver: SandboxDriver, clean: list[dict[str, Any]]) -> None:
    """After Ctrl-C, a run exits with 130, keeps finished tasks, names ``--resume`` and leaves no container (L12)."""
    one = RealRun(tmp_path, driver, sleep=1.0)
    with one.begun("--workers", "2", after=2) as process:
        time.sleep(0.4)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=40)
        assert time.monotonic() - start < 30
    assert process.returncode == 130
    assert "--resume" in err
    assert "not run" in out
    assert not one.left()
    assert all(record["verification_status"] in {"passed", "failed"} for record in records(tmp_path))
    assert all(record.get("failure_reason") in {None, "wrong_answer"} for record in records(tmp_path))
    assert one.finish("--workers", "4", "--resume").returncode == 0
    assert anonymous(tmp_path) == clean


def test_interrupted_twice(tmp_path: Path, driver: SandboxDriver, clean: list[dict[str, Any]]) -> None:
    """The second Ctrl-C ends a run at once, and the next run removes what is left (L12)."""
    one = RealRun(tmp_path, driver, sleep=1.0)
    with one.begun("--workers", "2", after=1) as process:
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=40)
        assert time.monotonic() - start < 30
    assert process.returncode == 130
    wait_for(lambda: not [line for line in one.left() if line.endswith("running") or line.startswith("process")], 20)
    assert one.finish("--workers", "4", "--resume").returncode == 0
    assert anonymous(tmp_path) == clean
    assert not one.left()


needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="only root may mount a small disk; RLIMIT_FSIZE is tested anyway"
)


@needs_root
def test_a_disk_that_is_too_small(tmp_path: Path, driver: SandboxDriver) -> None:
    """A run on a nearly full disk ends before its first task, and the error names ``--output-dir`` (L07)."""
    one = RealRun(tmp_path, driver)
    with small_disk(tmp_path / "results", 1 << 20):
        done = one.finish()
        assert done.returncode == 1
        assert "KiB free" in done.stderr
        assert "--output-dir" in done.stderr
    assert not one.left()


@needs_root
def test_a_disk_that_fills_up(tmp_path: Path, driver: SandboxDriver, clean: list[dict[str, Any]]) -> None:
    """If the disk fills up half-way, the run exits with 3, no record is incomplete, and it can be resumed (L07)."""
    one = RealRun(tmp_path, driver, sleep=0.3)
    filler = tmp_path / "results" / "workspaces" / "filler"
    with small_disk(tmp_path / "results", 40 << 20):
        with one.begun("--workers", "2", after=2) as process:
            _fill(filler)
            _, err = process.communicate(timeout=60)
        assert process.returncode == 3, err
        assert "No space left on device" in err
        assert "--resume" in err
        assert (tmp_path / "results" / JOURNAL).read_bytes().endswith(b"\n")
        assert 2 <= len(records(tmp_path)) < 8
        filler.unlink()
        done = one.finish("--workers", "2", "--resume")
        assert done.returncode == 0, done.stderr
        assert anonymous(tmp_path) == clean
    assert not one.left()


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 65536)
        except OSError:
            return


def test_a_missing_image(tmp_path: Path, driver: SandboxDriver) -> None:
    """A missing image is named in an error before any task, and the run directory can still be used (L08)."""
    one = RealRun(tmp_path, driver, rounds=1)
    manifest = tmp_path / "pack" / "manifest.yaml"
    manifest.write_text("id: pack\nversion: 1\ndefaults: {environment: {image: 'localhost:1/nowhere:1'}}\n")
    done = one.finish()
    assert done.returncode == 1
    assert "localhost:1/nowhere:1" in done.stderr
    assert "Traceback" not in done.stderr
    assert one.written() == 0
    manifest.write_text("id: pack\nversion: 1\n")
    assert one.finish("--workers", "2").returncode == 0


@pytest.mark.parametrize("umask", [0o077, pytest.param(0o000, marks=pytest.mark.long)], ids=oct)
def test_a_run_under_any_umask(tmp_path: Path, driver: SandboxDriver, umask: int) -> None:
    """Sandboxes can read their files, although they run as other users. Only the owner can write to the run's files."""
    one = RealRun(tmp_path / "one", driver, rounds=1)
    before = os.umask(umask)
    try:
        done = one.finish("--workers", "2", "--driver", driver.info().name)
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    assert {record["verification_status"] for record in records(one.root)} <= {"passed", "failed"}
    [journal] = one.root.rglob("candidates.jsonl")
    assert not any(path.stat().st_mode & 0o022 for path in (journal, *journal.parent.iterdir(), journal.parent))
    assert journal.parent.stat().st_mode & 0o077 == (0 if umask else 0o055)


def test_judged_again(tmp_path: Path, driver: SandboxDriver) -> None:
    """Given only the run directory, ``reverify`` finds the pack, confirms all four verdicts and cleans up."""
    one = RealRun(tmp_path, driver, rounds=1)
    assert one.finish("--workers", "2").returncode == 0
    command = [sys.executable, "-m", one.main, "reverify", str(tmp_path / "results")]
    done = subprocess.run(command, env=one.environment({}), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "4 of 4 verdicts confirmed" in done.stdout
    assert not one.left()
