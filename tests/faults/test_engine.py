"""An engine that hangs or is restarted during a run, and an image that is removed between agent and verdict."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import docker.errors
import pytest

from fault_hooks import hooked
from faults.runs import FaultRun
from securebench.engine import client
from securebench.execution import retry
from securebench.faults import FaultPoint
from securebench.results.summary import RunEnd
from securebench.sandboxes import lifecycle
from securebench.sandboxes.docker import driver as docker_driver_module
from securebench.sandboxes.docker.driver import RUN_LABEL
from securebench.tester_run import RunOptions, run_benchmark
from tester_run.cut_socket import CuttableSocket
from tester_run.real_run import anonymous
from tester_run.running import configuration, pin_framework, records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from faults.matrix import Scenario
    from faults.server import ForkServer
    from securebench.sandboxes.docker.driver import DockerDriver
    from securebench.tester_run import TesterRunSummary

pytestmark = [pytest.mark.sandboxes_alone, pytest.mark.engine, pytest.mark.slow]
_DEFAULT_SOCKET = "unix:///var/run/docker.sock"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pin the framework's digest. Shorten retry delays, and the time limits of calls to an engine, to a few seconds."""
    pin_framework(monkeypatch.setattr)
    monkeypatch.setattr(retry, "BACK_OFF", (0.5,))
    monkeypatch.setattr(client, "CALL_TIMEOUT", 4.0)
    monkeypatch.setattr(lifecycle, "KILL_GRACE", 4.0)
    monkeypatch.setattr(docker_driver_module, "CLOSE_SECONDS", 6.0)


@pytest.fixture
def engine_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CuttableSocket]:
    """Yield a socket that passes the requests of this process on to the engine, and that a test can cut or hang."""
    real = os.environ.get("DOCKER_HOST", _DEFAULT_SOCKET).removeprefix("unix://")
    with CuttableSocket(tmp_path / "engine.sock", real) as cuttable:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{cuttable.path}")
        yield cuttable


def _go(one: FaultRun) -> TesterRunSummary:
    return run_benchmark(configuration(one.root), RunOptions(resume=True))


def _once(wanted: FaultPoint, number: int, call: Callable[[], None]) -> Callable[[FaultPoint, str], None]:
    """Return a hook that calls ``call`` when ``wanted`` is passed for the ``number``-th time after a task started."""
    passed: list[FaultPoint] = []

    def hook(point: FaultPoint, _subject: str) -> None:
        if passed or point is FaultPoint.TASK_STARTED:
            passed.append(point)
            if point is wanted and passed.count(point) == number:
                call()

    return hook


def _statuses(one: FaultRun) -> list[str]:
    return [record["verification_status"] for record in records(one.root)]


@pytest.mark.long
def test_the_engine_hangs(
    tmp_path: Path,
    docker_driver: DockerDriver,
    fork_server: ForkServer,
    engine_socket: CuttableSocket,
    on_docker: Scenario,
) -> None:
    """If the engine hangs, the current task gets an error and the run stops. The resumed run finishes and cleans up."""
    one = FaultRun(tmp_path / "one", docker_driver, fork_server)
    with hooked(_once(FaultPoint.AGENT_DONE, 2, engine_socket.hang)):
        summary = _go(one)
    assert summary.ending is RunEnd.STOPPED
    assert _statuses(one) == ["failed", "error"]
    assert records(one.root)[1]["failure_reason"] == "engine_unavailable"
    engine_socket.cut()
    engine_socket.restore()
    assert _go(one).ending is RunEnd.FINISHED
    assert anonymous(one.root) == on_docker.clean
    one.require_nothing_left()


@pytest.mark.long
def test_the_engine_is_restarted(
    tmp_path: Path,
    docker_driver: DockerDriver,
    fork_server: ForkServer,
    engine_socket: CuttableSocket,
    on_docker: Scenario,
) -> None:
    """After an engine restart, each record is that of a clean run or has the status ``error``.

    A restart ends every container and connection.
    """
    one = FaultRun(tmp_path / "one", docker_driver, fork_server)

    def restart() -> None:
        engine_socket.cut()
        containers = docker_driver.engine.client
        for entry in containers.containers(all=True, filters={"label": f"{RUN_LABEL}={one.run_id}"}):
            with suppress(docker.errors.APIError):  # the container is already being removed
                containers.remove_container(entry["Id"], force=True)
        engine_socket.restore()

    for point, number in ((FaultPoint.SANDBOX_READ, 3), (FaultPoint.AGENT_DONE, 2)):
        with hooked(_once(point, number, restart)):
            _go(one)
        judged = [record for record in anonymous(one.root) if record["verification_status"] != "error"]
        assert [record for record in judged if record not in on_docker.clean] == []
    assert _go(one).ending is RunEnd.FINISHED
    assert anonymous(one.root) == on_docker.clean
    one.require_nothing_left()


def test_an_image_is_removed_between_agent_and_verdict(
    tmp_path: Path, docker_driver: DockerDriver, fork_server: ForkServer, engine_image: tuple[str, Callable[[], None]]
) -> None:
    """After the image is restored, the sealed candidate is judged. The agent does not run again."""
    name, restore = engine_image
    one = FaultRun(tmp_path / "one", docker_driver, fork_server)
    tasks = one.root / "pack" / "tasks.jsonl"
    (code,) = (line for line in tasks.read_text().splitlines() if "code_completion" in line)
    tasks.write_text(code[:-1] + f', "environment": {{"image": "{name}"}}}}\n')
    engine = docker_driver.engine.client

    def remove() -> None:
        engine.remove_image(name, force=True)

    with hooked(_once(FaultPoint.AGENT_DONE, 1, remove)):
        _go(one)
    (record,) = records(one.root)
    assert (record["verification_status"], record["failure_reason"]) == ("error", "image_unavailable")
    restore()
    assert _go(one).passed == 1
    (after,) = records(one.root)
    assert "produce" in record["provenance"]["tries"]
    assert "produce" not in after["provenance"]["tries"]
    one.require_nothing_left()


@pytest.fixture
def engine_image(docker_driver: DockerDriver) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the name of an image that exists only in the engine, and a function that restores the image."""
    engine: Any = docker_driver.engine.client
    name = f"securebench-tests/faults:{os.getpid()}"
    base = docker_driver.resolve_image("securebench/python:3.11")
    made = engine.create_container(base.id, command=["true"])["Id"]
    image = engine.commit(made, *name.rsplit(":", 1))["Id"]
    engine.remove_container(made)
    saved = b"".join(engine.get_image(name))

    def restore() -> None:
        engine.load_image(io.BytesIO(saved))

    yield name, restore
    engine.remove_image(image, force=True)
