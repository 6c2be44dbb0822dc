"""A machine that runs out of inodes, open files or memory, or whose clock jumps, during a run."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from run_fakes import FakeProducer
from securebench.errors import SecureBenchError
from tester_run.real_run import RealRun, anonymous
from tester_run.running import comparables, make_parts, pin_framework, records, run, write_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.sandboxes.oci import OciDriver

MEMORY = Path("/sys/fs/cgroup/memory")

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a small disk")
needs_memory_groups = pytest.mark.skipif(
    not os.access(MEMORY, os.W_OK), reason="this user may make no cgroups of version 1"
)


@pytest.fixture(autouse=True)
def _one_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    pin_framework(monkeypatch.setattr)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root directory of a run of three tasks, which has not started yet."""
    place = tmp_path / "root"
    place.mkdir()
    write_run(place, 3)
    return place


@needs_root
def test_inodes_run_out(root: Path) -> None:
    """If inodes run out, each record is ``passed`` or ``error``. The run can be resumed when there are more inodes."""
    write_run(root, 3)
    run(root, output_dir=root / "clean", parts=make_parts(FakeProducer(trajectory="{}")))
    clean = [record["verification_status"] for record in records_of(root / "clean")]
    place, endings = root / "results", set()
    for inodes in range(4, 40, 5):
        with few_inodes(place, inodes):
            try:
                endings.add(run(root, parts=make_parts(FakeProducer(trajectory="{}"))).ending.value)
            except SecureBenchError as error:
                endings.add(error.code)
            done = records(root) if (place / "candidates.jsonl").exists() else []
            assert {record["verification_status"] for record in done} <= {"passed", "error"}
            subprocess.run(["mount", "-o", "remount,nr_inodes=10000", str(place)], check=True)
            assert run(root, resume=True, parts=make_parts(FakeProducer(trajectory="{}"))).passed == 3
            assert [record["verification_status"] for record in records(root)] == clean
            assert not list(place.glob(".*"))
    assert {"storage-failed", "stopped", "finished"} <= endings


def records_of(directory: Path) -> list[dict[str, Any]]:
    """Return the comparable records of the run in ``directory``, which need not be called ``results``."""
    directory.rename(directory.with_name("results"))
    try:
        return comparables(directory.parent)
    finally:
        directory.with_name("results").rename(directory)


@contextmanager
def few_inodes(place: Path, inodes: int) -> Iterator[None]:
    """Mount a file system with only ``inodes`` inodes at ``place``."""
    place.mkdir(exist_ok=True)
    options = f"size=64m,nr_inodes={inodes}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_clock_that_jumps(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the clock jumps, records are the same, no duration is negative, and a run can be resumed "before" it began."""
    run(root)
    clean = comparables(root)
    (root / "results").rename(root / "clean")
    real, real_gm, steps = time.time, time.gmtime, count()

    def jumping() -> float:
        """Return a time that is alternately a year in the past and a year in the future."""
        return real() + 365 * 86400 * (1 if next(steps) % 2 else -1)

    monkeypatch.setattr(time, "time", jumping)
    monkeypatch.setattr(time, "gmtime", lambda seconds=None: real_gm(jumping() if seconds is None else seconds))
    run(root, limit=1)
    for _ in range(2):
        assert run(root, resume=True).passed == 3
    assert comparables(root) == clean
    for record in records(root):
        assert all(seconds >= 0 for seconds in record["provenance"]["durations"].values())


class LimitedRun(RealRun):
    """A run under a limit. The program ``wrapper``, given with its arguments, sets the limit and starts the run."""

    wrapper: tuple[str, ...] = ()

    def command(self, *flags: str) -> list[str]:
        """Return ``wrapper``, followed by the command of the run."""
        return [*self.wrapper, *super().command(*flags)]

    def require_true(self, clean: list[dict[str, Any]], codes: set[int]) -> None:
        """Run under the limit, then resume without it, and check the results of both.

        Under the limit, the exit code must be one of ``codes``, and each record must be one of ``clean`` or an error.
        The resumed run must have the records ``clean`` and leave nothing behind.
        """
        done = self.finish()
        assert done.returncode in codes, done.stderr
        assert "Traceback" not in done.stderr
        judged = anonymous(self.root) if self.written() else []
        assert [one for one in judged if one["verification_status"] != "error" and one not in clean] == []
        self.wrapper = ()
        done = self.finish("--resume")
        assert done.returncode == 0, done.stderr
        assert anonymous(self.root) == clean
        assert not self.left()


@pytest.fixture(scope="module")
def clean(oci_driver: OciDriver, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the comparable records of a run of four tasks without a limit."""
    one = RealRun(tmp_path_factory.mktemp("clean"), oci_driver, rounds=1)
    assert one.finish().returncode == 0
    return anonymous(one.root)


@pytest.mark.sandboxes_alone
@pytest.mark.oci
@pytest.mark.slow
@pytest.mark.parametrize("files", [14, *(pytest.param(n, marks=pytest.mark.long) for n in range(8, 60, 4))])
def test_open_files_run_out(tmp_path: Path, oci_driver: OciDriver, clean: list[dict[str, Any]], files: int) -> None:
    """A run that may open only a few files ends without a traceback, and gives no task a wrong verdict."""
    one = LimitedRun(tmp_path, oci_driver, rounds=1)
    one.wrapper = ("prlimit", f"--nofile={files}:{files}")
    one.require_true(clean, {0, 1, 3})


@pytest.mark.sandboxes_alone
@pytest.mark.oci
@pytest.mark.slow
@needs_memory_groups
@pytest.mark.parametrize(
    "megabytes", [40, *(pytest.param(n, marks=pytest.mark.long) for n in (24, 32, 48, 56, 64, 72, 80))]
)
def test_memory_runs_out(tmp_path: Path, oci_driver: OciDriver, clean: list[dict[str, Any]], megabytes: int) -> None:
    """If memory runs out, the kernel may kill the run or its children, but no candidate fails because of that."""
    group = MEMORY / f"securebench-tests-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(f"{megabytes}M")
        one = LimitedRun(tmp_path, oci_driver, rounds=1)
        one.wrapper = ("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh")
        one.require_true(clean, {0, 1, 3, -9})
    finally:
        group.rmdir()
