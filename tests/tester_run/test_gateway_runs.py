"""Whole runs whose agents have egress: finished, killed, interrupted, or with a killed gateway."""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from leftovers import family_of
from securebench.results.run_directory.egress_log import EGRESS_LOG
from tester_run.real_run import RealRun, anonymous, wait_for
from tester_run.running import records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.sandboxes.base import SandboxDriver


pytestmark = [pytest.mark.sandboxes_alone, pytest.mark.usefixtures("_with_ports")]


def decisions(root: Path) -> list[dict[str, Any]]:
    """Return the decisions in the egress log."""
    return [json.loads(line) for line in (root / "results" / EGRESS_LOG).read_bytes().splitlines()]


def gateways_of(pid: int) -> list[int]:
    """Return the gateway processes below a run: one, except for a moment after a gateway has died."""
    return [child for child, command in family_of(pid).items() if "securebench.egress.process" in command]


def lives(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    with suppress(OSError):
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


@contextmanager
def hunting(pid: int) -> Iterator[list[int]]:
    """Kill each gateway of a run as soon as it is found, and yield the growing list of killed process ids."""
    killed, over = list[int](), threading.Event()

    def hunt() -> None:
        while not over.wait(0.1):
            for gateway in gateways_of(pid):
                with suppress(ProcessLookupError):
                    os.kill(gateway, signal.SIGKILL)
                    killed.append(gateway)

    hunter = threading.Thread(target=hunt)
    hunter.start()
    try:
        yield killed
    finally:
        over.set()
        hunter.join()


@pytest.mark.every_driver
def test_every_knock_is_logged_and_summed_up(tmp_path: Path, driver: SandboxDriver) -> None:
    """Each egress decision is logged with its task and counted in the record, and nothing is left of the gateway."""
    one = RealRun(tmp_path, driver, knock=True)
    done = one.finish("--workers", "4")
    assert done.returncode == 0, done.stderr
    logged = decisions(tmp_path)
    assert {line["task_id"] for line in logged} == {record["task_id"] for record in records(tmp_path)}
    assert {(line["host"], line["decision"]) for line in logged} == {("other.example", "denied")}
    for record in records(tmp_path):
        assert record["verification_status"] in {"passed", "failed"}
        assert sum(record["provenance"]["usage"]["egress"]["decisions"].values()) == 1
    assert not one.left()


@pytest.mark.slow
def test_forty_agents_at_once_have_a_way_out(tmp_path: Path, driver: SandboxDriver) -> None:
    """Forty sandboxes use one gateway at once: no address pool runs out, and each task has one logged decision."""
    one = RealRun(tmp_path, driver, rounds=10, sleep=3.0, knock=True)
    done = one.finish("--workers", "40", "--quiet")
    assert done.returncode == 0, done.stderr
    assert sorted(line["task_id"] for line in decisions(tmp_path)) == sorted(r["task_id"] for r in records(tmp_path))
    assert {r["verification_status"] for r in records(tmp_path)} == {"passed", "failed"}
    assert not one.left()


def test_a_gateway_does_not_outlive_its_run(tmp_path: Path, driver: SandboxDriver) -> None:
    """The gateway of a killed run ends. Resumed, the run keeps its egress log and has a clean run's records (L01)."""
    one = RealRun(tmp_path / "one", driver, sleep=0.5, knock=True)
    with one.begun("--workers", "4", after=2) as process:
        (gateway,) = gateways_of(process.pid)
        process.kill()
    wait_for(lambda: not lives(gateway), 20)
    before = (one.root / "results" / EGRESS_LOG).read_bytes()
    done = one.finish("--workers", "4", "--resume")
    assert done.returncode == 0, done.stderr
    assert (one.root / "results" / EGRESS_LOG).read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert len(decisions(one.root)) >= len(records(one.root)) == 8
    clean = RealRun(tmp_path / "clean", driver, knock=True)
    assert clean.finish("--workers", "4").returncode == 0
    assert anonymous(one.root) == anonymous(clean.root)
    assert not one.left()


def test_an_interrupt_ends_the_gateway(tmp_path: Path, driver: SandboxDriver) -> None:
    """Ctrl-C, which a terminal also sends to the gateway, ends the run cleanly, and nothing is left (L12)."""
    one = RealRun(tmp_path, driver, sleep=1.0, knock=True)
    with one.begun("--workers", "2", after=1) as process:
        (gateway,) = gateways_of(process.pid)
        for pid in (gateway, process.pid):
            os.kill(pid, signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert not lives(gateway)
    assert not one.left()
    assert {record["verification_status"] for record in records(tmp_path)} <= {"passed", "failed"}


def test_j19_a_gateway_that_is_killed_costs_no_verdict(tmp_path: Path, driver: SandboxDriver) -> None:
    """J19: if the gateway is killed, the running tasks are tried again with another gateway, and all get a verdict."""
    one = RealRun(tmp_path, driver, rounds=1, sleep=2.0, knock=True)
    with one.begun("--workers", "4", after=0) as process:
        wait_for(lambda: (one.root / "results" / EGRESS_LOG).exists() and len(decisions(one.root)) == 4)
        (gateway,) = gateways_of(process.pid)
        os.kill(gateway, signal.SIGKILL)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert {record["provenance"]["tries"]["produce"] for record in records(tmp_path)} == {2}
    assert len(decisions(tmp_path)) == 8
    assert not one.left()


@pytest.mark.slow
def test_j19_without_a_gateway_a_task_is_an_error(tmp_path: Path, driver: SandboxDriver) -> None:
    """J19: if every gateway is killed, tasks end as infrastructure errors, and ``--resume`` runs them again."""
    one = RealRun(tmp_path, driver, rounds=1, sleep=2.0, knock=True)
    with one.begun("--workers", "4", after=0) as process, hunting(process.pid) as killed:
        _, err = process.communicate(timeout=90)
    assert process.returncode == 3, err
    assert len(killed) >= 3
    assert {(r["verification_status"], r["failure_reason"]) for r in records(tmp_path)} == {("error", "egress_failed")}
    assert not one.left()
    done = one.finish("--workers", "4", "--resume")
    assert done.returncode == 0, done.stderr
    assert not one.left()
