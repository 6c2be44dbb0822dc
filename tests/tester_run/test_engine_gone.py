"""A run on a Docker Engine that becomes unreachable."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tester_run.cut_socket import CuttableSocket
from tester_run.real_run import RealRun, anonymous
from tester_run.running import records

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.docker.driver import DockerDriver


@pytest.mark.sandboxes_alone
@pytest.mark.engine
def test_the_engine_goes_away(tmp_path: Path, docker_driver: DockerDriver) -> None:
    """If the engine stops half-way, no verdict is lost: the run exits with 3, reports why and can be resumed (L08)."""
    one = RealRun(tmp_path / "cut", docker_driver, sleep=0.5)
    with CuttableSocket(tmp_path / "engine.sock", _engine_socket()) as cuttable:
        flags = ("--workers", "2")
        with one.begun(*flags, after=2, variables={"DOCKER_HOST": f"unix://{cuttable.path}"}) as process:
            cuttable.cut()
            _, err = process.communicate(timeout=60)
    assert process.returncode == 3, err
    assert "the sandbox engine stopped" in err
    assert "--resume" in err
    statuses = [record["verification_status"] for record in records(one.root)]
    assert 2 <= len([status for status in statuses if status != "error"]) < 8
    assert 1 <= statuses.count("error") <= 2
    assert {r["failure_reason"] for r in records(one.root) if r["verification_status"] == "error"} == {
        "engine_unavailable"
    }
    assert one.finish("--workers", "4", "--resume").returncode == 0
    clean = RealRun(tmp_path / "clean", docker_driver)
    assert clean.finish("--workers", "4").returncode == 0
    assert anonymous(one.root) == anonymous(clean.root)
    assert not one.left()


def _engine_socket() -> str:
    return os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
