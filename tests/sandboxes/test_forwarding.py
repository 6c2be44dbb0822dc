"""Forwarded ports of real sandboxes: many at once, and nothing left after a sandbox or its run ends. J01, J03, I15."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import EgressError, EngineError
from securebench.sandboxes.base import SandboxSpec
from securebench.sandboxes.docker.driver import OWNER_LABEL, DockerDriver
from securebench.sandboxes.oci import OciDriver
from securebench.sandboxes.oci.reaper import runs_directory
from securebench.testing.breakout import ATTEMPTS, AttemptOutcome, break_out
from securebench.testing.conformance.bench import probe_command, read_until
from securebench.testing.conformance.forwarding import PORT, Server, serving

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.engine.client import Engine
    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import Sandbox, SandboxDriver

pytestmark = [pytest.mark.every_driver, pytest.mark.usefixtures("_with_ports")]

CALL = probe_command("call", str(PORT), "hello")
MANY = 40


def until(condition: Callable[[], bool], timeout: float = 20) -> bool:
    """Return whether ``condition`` becomes true within ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def internet_sockets() -> int:
    """Return how many internet sockets this process has, including those of forwarded ports and their connections."""
    found = 0
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as copy:  # not a socket, or already closed
            found += copy.family in {socket.AF_INET, socket.AF_INET6}
    return found


def supervisor_of(driver: OciDriver) -> Path:
    """Return the directory in ``/proc`` of a driver's supervisor."""
    starter = driver._context.connection._child.pid
    return Path("/proc", Path(f"/proc/{starter}/task/{starter}/children").read_text().split()[0])


def mounts_of(process: Path) -> list[str]:
    """Return the lines of ``mountinfo`` of a process, which list the mounts in its namespace."""
    return (process / "mountinfo").read_text().splitlines()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_many_at_once_have_ports(driver: SandboxDriver, base_image: ResolvedImage) -> None:
    """Forty sandboxes at once all use the same port number, and each reaches its own server."""
    servers = [Server(str(number)) for number in range(MANY)]

    def start(server: Server) -> Sandbox:
        return driver.create(SandboxSpec(image=base_image, forwarded_ports=(server.forwarded_port(),)), persistent=True)

    with ThreadPoolExecutor(8) as pool:
        sandboxes = list(pool.map(start, servers))
        answers = list(pool.map(lambda sandbox: sandbox.run(CALL).stdout.decode(), sandboxes))
        list(pool.map(lambda sandbox: sandbox.close(), sandboxes))
    for server in servers:
        server.close()
    assert answers == [f"{number}: hello\n" for number in range(MANY)]


@pytest.mark.parametrize("persistent", [False, True])
def test_nothing_is_left_of_a_port(driver: SandboxDriver, base_image: ResolvedImage, persistent: bool) -> None:
    """Forwarded ports leave no socket in this process, whether the command succeeds, times out or fails.

    The supervisor of the ``oci`` driver keeps no mount for them and collects no descriptors. Only root checks that.
    """
    before = internet_sockets()
    for command in (CALL, probe_command("linger", str(PORT), timeout=1), probe_command("emit", "", "", "3")):
        with (
            serving() as server,
            driver.create(
                SandboxSpec(image=base_image, forwarded_ports=(server.forwarded_port(),)), persistent=persistent
            ) as sandbox,
        ):
            sandbox.run(command)
    assert until(lambda: internet_sockets() == before)
    if isinstance(driver, OciDriver) and os.geteuid() == 0:
        supervisor, cells = supervisor_of(driver), f" {driver._context.run}/s"
        places = "/network ", "/sys "
        assert until(
            lambda: not [line for line in mounts_of(supervisor) if cells in line and any(map(line.count, places))]
        )
        assert len(list((supervisor / "fd").iterdir())) < 40


@pytest.mark.oci
def test_a_supervisor_stays_where_it_was(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """The supervisor has its own empty network namespace before and after it opened forwarded ports."""
    if os.geteuid() != 0:
        pytest.skip("only root may look at it")
    spaces = []
    for _ in range(2):
        spaces.append((supervisor_of(oci_driver) / "ns/net").readlink())
        with (
            serving() as server,
            oci_driver.create(SandboxSpec(image=base_image, forwarded_ports=(server.forwarded_port(),))) as sandbox,
        ):
            assert sandbox.run(CALL).exit_code == 0
    assert spaces[0] == spaces[1]
    assert spaces[0] != Path("/proc/self/ns/net").readlink()
    assert (supervisor_of(oci_driver) / "net/route").read_text().splitlines()[1:] == []


@pytest.mark.parametrize("persistent", [False, True])
def test_a_stopped_run_leaves_no_connection(driver_of_its_own: SandboxDriver, persistent: bool) -> None:
    """``kill_all`` closes the connections of forwarded ports. After that, no forwarded port can be opened."""
    driver = driver_of_its_own
    image = driver.resolve_image("securebench/python:3.11")
    with serving() as server:
        spec = SandboxSpec(image=image, forwarded_ports=(server.forwarded_port(),))
        process = driver.create(spec, persistent=persistent).open(probe_command("linger", str(PORT)))
        read_until(process, b"outside: here\n")
        driver.kill_all()
        assert server.ended.wait(20)
        with pytest.raises(EngineError, match="stopped"):
            driver.create(spec, persistent=persistent).open(CALL)
        assert len(server.listeners) == 1


@pytest.fixture
def driver_of_its_own(driver: SandboxDriver) -> Any:
    """Yield another driver of the same kind, which a test may stop."""
    name = driver.info().runtime
    made: SandboxDriver = OciDriver(runtime=name) if isinstance(driver, OciDriver) else DockerDriver()
    made.info()
    yield made
    made.close()


KILLED = f"""
import sys, time
from securebench.sandboxes.base import SandboxSpec
from securebench.sandboxes.select import open_driver
from securebench.testing.conformance.bench import probe_command, read_until
from securebench.testing.conformance.forwarding import Server
driver = open_driver(sys.argv[1], sys.argv[2] or None, "killed", print)
image = driver.resolve_image("securebench/python:3.11")
spec = SandboxSpec(image=image, forwarded_ports=(Server("outside").forwarded_port(),))
process = driver.create(spec).open(probe_command("linger", "{PORT}"))
read_until(process, b"outside: here")
print("talking", flush=True)
if sys.argv[3] == "holding":
    import securebench.sandboxes.docker.forwarding as forwarding
    forwarding.serve_forwarded_ports = lambda *_: (print("holding", flush=True), time.sleep(600))
    driver.create(spec).open(probe_command("cat"))
time.sleep(600)
"""


def kill_in_the_middle(driver: SandboxDriver, what: str) -> str:
    """Start a process that opens forwarded ports with a driver like ``driver``. Kill it when it prints ``what``.

    Return the end of the owner's label on what the killed process created.
    """
    docker = isinstance(driver, DockerDriver)
    argv = [sys.executable, "-c", KILLED, "docker" if docker else "oci", "" if docker else driver.info().runtime, what]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while what not in (line := process.stdout.readline()):
            assert line, "it ended"
        start = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        process.send_signal(signal.SIGKILL)
    return f"/{process.pid}/{start}"


def directories(owner: str) -> list[Path]:
    """Return the run directories whose owner's label ends with ``owner``."""
    parent = runs_directory()
    return [path.parent for path in parent.glob("*/owner") if path.read_text().strip().endswith(owner)]


def test_nothing_is_left_of_a_killed_run(driver: SandboxDriver, base_image: ResolvedImage) -> None:
    """I15, L10: after a run is killed with SIGKILL, reaping removes its containers and run directories."""
    owner = kill_in_the_middle(driver, "talking")
    assert until(lambda: driver.reap() >= 0 and not directories(owner))
    if isinstance(driver, DockerDriver):
        assert until(lambda: driver.reap() >= 0 and not containers(driver.engine, owner))


@pytest.mark.engine
def test_a_holder_of_a_killed_run_is_reaped(docker_driver: DockerDriver) -> None:
    """If a run is killed while it opens a port, reaping removes its holder container and its socket directory.

    A holder is a container that opens the ports of another container and passes the sockets to the driver.
    """
    owner = kill_in_the_middle(docker_driver, "holding")
    assert len(containers(docker_driver.engine, owner)) == 2
    assert len(directories(owner)) == 1
    # The containers may be removed later than this call, because another process may reap them at the same time.
    assert until(lambda: docker_driver.reap() >= 0 and not containers(docker_driver.engine, owner))
    assert directories(owner) == []


def containers(engine: Engine, owner: str) -> list[dict[str, Any]]:
    """Return the containers whose owner's label ends with ``owner``."""
    listed = engine.client.containers(all=True, filters={"label": OWNER_LABEL})
    return [entry for entry in listed if entry["Labels"][OWNER_LABEL].endswith(owner)]


@pytest.mark.engine
def test_no_network_of_the_engine_is_made(docker_driver: DockerDriver, base_image: ResolvedImage) -> None:
    """A forwarded port adds no network to the engine, and the container of its sandbox joins no network."""
    before = {network["Id"] for network in docker_driver.engine.client.networks()}
    with serving() as server:
        spec = SandboxSpec(
            image=base_image, forwarded_ports=(server.forwarded_port(),), labels={"tests": "forwarded_ports"}
        )
        with docker_driver.create(spec, persistent=True) as sandbox:
            sandbox.run(CALL)
            assert {network["Id"] for network in docker_driver.engine.client.networks()} == before
            (entry,) = docker_driver.engine.client.containers(filters={"label": "tests=forwarded_ports"})
            found = docker_driver.engine.client.inspect_container(entry["Id"])
    assert found["NetworkSettings"]["Networks"] == {}


@pytest.mark.engine
def test_a_failing_holder_is_an_error(
    docker_driver: DockerDriver, base_image: ResolvedImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the holder container fails, its error is raised as ``EgressError``, and no port is served."""
    for program, why in (
        ("raise SystemExit('oh')", "oh"),
        ("", "SecureBench's helper container exited"),
        ("print('open')", "Resource"),
    ):
        monkeypatch.setattr("securebench.sandboxes.docker.forwarding._PROGRAM", program)
        with serving() as server, pytest.raises(EgressError, match=why):
            docker_driver.create(
                SandboxSpec(image=base_image, forwarded_ports=(server.forwarded_port(),)), persistent=True
            )
        assert server.listeners == []


@pytest.mark.engine
def test_a_holder_with_wrong_sockets_is_rejected(
    docker_driver: DockerDriver, base_image: ResolvedImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the holder container passes sockets with a wrong address, or too few sockets, no port is served."""
    program = (Path(__file__).parents[2] / "src/securebench/sandboxes/docker/guest/forward_ports.py").read_text()
    handed = "[listener.fileno() for listener in listeners]"
    for other in (program.replace("127.0.0.1", "0.0.0.0"), program.replace(handed, "[]")):
        assert other != program
        monkeypatch.setattr("securebench.sandboxes.docker.forwarding._PROGRAM", other)
        with serving() as server, pytest.raises(EgressError, match="returned the wrong sockets"):
            docker_driver.create(
                SandboxSpec(image=base_image, forwarded_ports=(server.forwarded_port(),)), persistent=True
            )
        assert server.listeners == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("user", [(65534, 65534), (0, 0)], ids=["nobody", "root"])
def test_a_port_is_no_way_out(driver: SandboxDriver, base_image: ResolvedImage, user: tuple[int, int]) -> None:
    """J01, J03, J04, I18, I20: with a forwarded port, every attempt to break out through the network is contained."""
    functions = {name: getattr(attempt.function, "func", attempt.function) for name, attempt in ATTEMPTS.items()}
    names = [name for name, function in functions.items() if function.__module__.endswith(".network")]
    with serving() as server:
        found = break_out(driver, base_image, user=user, names=names, forwarded_ports=(server.forwarded_port(),))
    assert len(names) > 10
    assert [finding for finding in found if finding.outcome is not AttemptOutcome.CONTAINED] == []


@pytest.mark.parametrize("kind", ["oci", "docker"])
def test_gvisor_has_no_ports(kind: str, request: pytest.FixtureRequest) -> None:
    """A sandbox of gVisor, which has its own network stack, cannot have forwarded ports: ``egress-unavailable``."""
    if kind == "docker":
        request.getfixturevalue("engine")
    try:
        driver: SandboxDriver = OciDriver(runtime="runsc") if kind == "oci" else DockerDriver(runtime="runsc")
    except EngineError as error:
        pytest.skip(error.message)
    image = driver.resolve_image("securebench/python:3.11")
    with serving() as server, pytest.raises(EgressError, match="runsc") as caught:
        driver.create(SandboxSpec(image=image, forwarded_ports=(server.forwarded_port(),)))
    driver.close()
    assert caught.value.code == "egress-unavailable"
