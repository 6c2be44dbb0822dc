"""Tests of the Docker driver beyond the conformance suite of all drivers. Most of them use a real engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine_doubles import EngineProxy, FakeEngine
from securebench.engine.client import connect
from securebench.errors import DiskFullError, EngineError, ImageError, InfrastructureError
from securebench.images.model import ResolvedImage
from securebench.sandboxes.base import MIB, Command, Limits, SandboxSpec
from securebench.sandboxes.docker.container import DockerContainer, Exec
from securebench.sandboxes.docker.driver import OWNER_LABEL, RUN_LABEL, DockerDriver
from securebench.testing.conformance.bench import probe_command, read_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.engine.client import Engine

engine_test = pytest.mark.engine

TRUE = Command(argv=("true",), timeout_seconds=60)
SLEEP = Command(argv=("sleep", "60"), timeout_seconds=90)


def containers(engine: Engine, run_id: str) -> list[dict[str, Any]]:
    """Return the containers of a run, in any state."""
    return list(engine.client.containers(all=True, filters={"label": f"{RUN_LABEL}={run_id}"}))


# --- hostile images


@pytest.fixture
def hostile_image(engine: Engine, base_image: ResolvedImage) -> Iterator[ResolvedImage]:
    """Yield an image whose configuration would change verdicts if any of it were applied."""
    changes = [
        'ENTRYPOINT ["/bin/true"]',
        'CMD ["/bin/true"]',
        "ENV LD_PRELOAD=/evil.so BASH_ENV=/evil.sh PYTEST_ADDOPTS=--collect-only",
        "USER root",
        "WORKDIR /usr",
        "VOLUME /evil",
        "HEALTHCHECK --interval=1s CMD touch /tmp/healthy",
        f"LABEL {OWNER_LABEL}=nobody",
    ]
    container = engine.client.create_container(base_image.id, ["true"])["Id"]
    try:
        identity = engine.client.commit(container, changes=changes)["Id"]
    finally:
        engine.client.remove_container(container)
    yield ResolvedImage(
        reference="hostile",
        id=identity,
        environment={"PATH": "/x", "LD_PRELOAD": "/evil.so", "BASH_ENV": "/evil.sh", "PYTEST_ADDOPTS": "x"},
        volumes=("/evil",),
    )
    engine.client.remove_image(identity, force=True)


@engine_test
def test_an_image_cannot_change_what_runs(docker_driver: DockerDriver, hostile_image: ResolvedImage) -> None:
    """I05: an image's entrypoint, command, variables, user, working directory and health check have no effect."""
    with docker_driver.create(SandboxSpec(image=hostile_image)) as sandbox:
        failed = sandbox.run(Command(argv=("sh", "-c", "sleep 2; test ! -e /tmp/healthy; exit 3"), timeout_seconds=60))
        found = json.loads(sandbox.run(probe_command("facts")).stdout)
    assert failed.exit_code == 3
    assert sorted(found["environment"]) == ["HOME", "LANG", "LC_ALL", "PATH"]
    assert (found["uid"][0], found["workdir"]) == (65534, "/")


def volumes(engine: Engine) -> set[str]:
    """Return the names of the engine's volumes."""
    return {volume["Name"] for volume in engine.client.volumes()["Volumes"] or ()}


@engine_test
def test_a_volume_of_an_image_is_bounded(
    docker_driver: DockerDriver, hostile_image: ResolvedImage, engine: Engine
) -> None:
    """I11: with a read-only root, a tmpfs of limited size replaces each volume that the image declares."""
    before = volumes(engine)
    spec = SandboxSpec(image=hostile_image, limits=Limits(tmpfs=MIB))
    with docker_driver.create(spec, persistent=True) as sandbox:
        assert volumes(engine) <= before
        written = sandbox.run(probe_command("fill", "/evil/x", str(8 * MIB)))
    assert written.stdout.split() == [str(MIB).encode(), b"ENOSPC"]


@engine_test
def test_a_volume_goes_with_its_container(
    docker_driver: DockerDriver, hostile_image: ResolvedImage, engine: Engine
) -> None:
    """I11: with a writable root, a volume that the image declares is writable, and is removed with its container."""
    before = volumes(engine)
    spec = SandboxSpec(image=hostile_image, read_only=False, user=(0, 0))
    with docker_driver.create(spec, persistent=True) as sandbox:
        assert sandbox.run(probe_command("write", "/evil/x", "x")).stdout == b"ok\n"
        assert len(volumes(engine) - before) == 1
    assert volumes(engine) <= before


@engine_test
def test_an_image_is_resolved_with_its_volumes(docker_driver: DockerDriver, hostile_image: ResolvedImage) -> None:
    """A resolved image lists its volumes and variables, so that sandboxes can override them."""
    found = docker_driver.resolve_image(hostile_image.id)
    assert found.volumes == ("/evil",)
    assert found.environment["LD_PRELOAD"] == "/evil.so"


# --- engine failures


@engine_test
def test_an_image_that_is_gone_is_told(docker_driver: DockerDriver) -> None:
    """L08: if an image was removed after it was resolved, an image error with a hint is raised."""
    missing = ResolvedImage(reference="gone", id="sha256:" + "0" * 64)
    for persistent in (False, True):
        with pytest.raises(ImageError, match="could not create") as raised:
            docker_driver.create(SandboxSpec(image=missing), persistent=persistent).run(TRUE)
        assert "--resume" in raised.value.hint


@pytest.fixture
def proxied(
    tmp_path: Path, engine: Engine, request: pytest.FixtureRequest
) -> Iterator[tuple[EngineProxy, DockerDriver]]:
    """Yield a proxy of the real engine, and a driver that uses it. A test can cut the proxy's connections.

    Afterwards, remove the driver's containers.
    """
    proxy = EngineProxy(tmp_path / "engine.sock")
    run_id = request.node.name
    driver = DockerDriver(run_id=run_id, engine=connect([proxy.endpoint]))
    yield proxy, driver
    proxy.cut()
    driver.close()
    for left in containers(engine, run_id):
        engine.client.remove_container(left["Id"], force=True)


@engine_test
@pytest.mark.parametrize("persistent", [False, True])
def test_an_engine_that_goes_away_in_the_middle_is_told(
    proxied: tuple[EngineProxy, DockerDriver], base_image: ResolvedImage, persistent: bool
) -> None:
    """L08: if the engine vanishes while a command runs, waiting raises an engine error within 40 s."""
    proxy, driver = proxied
    process = driver.create(SandboxSpec(image=base_image), persistent=persistent).open(probe_command("sleep", "60"))
    read_until(process, b"asleep\n")
    started = time.monotonic()
    threading.Timer(0.2, proxy.cut).start()
    with pytest.raises(EngineError, match="does not respond"):
        process.wait()
    assert time.monotonic() - started < 40


@engine_test
def test_an_engine_that_is_gone_starts_nothing(
    proxied: tuple[EngineProxy, DockerDriver], base_image: ResolvedImage
) -> None:
    """L08: once the engine is gone, every operation that needs it raises an engine error."""
    proxy, driver = proxied
    sandbox = driver.create(SandboxSpec(image=base_image))
    proxy.cut()
    questions = (lambda: sandbox.run(TRUE), driver.info, driver.reap, lambda: driver.resolve_image("other"))
    for question in questions:
        with pytest.raises(EngineError):
            question()
    sandbox.close()


@pytest.fixture
def fake_engine(tmp_path: Path) -> Iterator[FakeEngine]:
    """Yield a fake engine that creates containers and confirms every removal. Tests add other responses."""
    server = FakeEngine(tmp_path / "engine.sock")
    server.answer("DELETE .*/containers/", b"", status=204)
    server.answer("GET .*/containers/json", [])
    server.answer("POST .*/containers/create", {"Id": "abc", "Warnings": []}, status=201)
    yield server
    server.close()


@pytest.mark.parametrize(
    ("request_line", "status", "message", "kind"),
    [
        ("POST .*/containers/create", 500, "mkdir /var/lib/docker/x: no space left on device", DiskFullError),
        ("POST .*/containers/create", 404, "No such image: x", ImageError),
        ("POST .*/containers/create", 400, "invalid mount config", InfrastructureError),
        ("POST .*/containers/abc/attach", 500, "no space left on device", DiskFullError),
        ("POST .*/containers/abc/attach", 409, "is paused", InfrastructureError),
    ],
)
def test_a_refusal_is_typed(
    fake_engine: FakeEngine, request_line: str, status: int, message: str, kind: type[Exception]
) -> None:
    """L08: each kind of refusal by the engine raises its own error type, and created containers are removed."""
    fake_engine.refuse(request_line, status, message)
    driver = DockerDriver(engine=connect([fake_engine.endpoint]))
    image = ResolvedImage(reference="x", id="sha256:" + "0" * 64)
    for persistent in (False, True):
        with pytest.raises(kind, match=message.partition(":")[0]) as raised:
            driver.create(SandboxSpec(image=image), persistent=persistent).run(TRUE)
        assert type(raised.value) is kind
    driver.close()
    removed = [path for method, path, _ in fake_engine.requests if method == "DELETE"]
    assert len(removed) == (0 if "create" in request_line else 2)


@pytest.mark.parametrize(("falls", "code"), [(True, 137), (False, 128)])
def test_a_command_whose_sandbox_fell_was_killed(
    fake_engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, falls: bool, code: int
) -> None:
    """I09: a command's exit code 128 becomes 137 if its container exits soon after: gVisor's kernel has died.

    If the container stays, so does the exit code.
    """
    monkeypatch.setattr("securebench.sandboxes.docker.container._EXIT_NOTICE_SECONDS", 0.3)
    fake_engine.answer("GET .*/exec/def/json", {"Running": False, "ExitCode": 128})
    fake_engine.answer("GET .*/containers/abc/json", {"State": {"Running": True}})
    engine = connect([fake_engine.endpoint])
    if falls:
        ended = ("GET .*/containers/abc/json", {"State": {"Running": False}})
        threading.Timer(0.1, fake_engine.answer, ended).start()
    assert Exec(DockerContainer(engine, "abc"), "def", time.time()).exit_code(10) == code
    engine.close()


def test_a_removal_that_fails_is_only_logged(fake_engine: FakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    """If a container cannot be removed, this is logged, and the original error is raised."""
    fake_engine.refuse("DELETE .*/containers/", 500, "device is busy")
    fake_engine.refuse("POST .*/attach", 500, "oh")
    driver = DockerDriver(engine=connect([fake_engine.endpoint]))
    with pytest.raises(InfrastructureError, match="oh"):
        driver.create(SandboxSpec(image=ResolvedImage("x", "sha256:0"))).run(TRUE)
    driver.close()
    assert "device is busy" in caplog.text


# --- closing, stopping and reaping


@engine_test
def test_closing_a_driver_leaves_nothing(engine: Engine, base_image: ResolvedImage) -> None:
    """I15, L10: closing a driver removes its running and exited containers within 40 s."""
    driver = DockerDriver(run_id="closing", engine=connect())
    ephemeral = driver.create(SandboxSpec(image=base_image))
    ephemeral.run(TRUE)
    ephemeral.open(SLEEP)
    driver.create(SandboxSpec(image=base_image), persistent=True).open(SLEEP)
    assert len(containers(engine, "closing")) >= 2
    started = time.monotonic()
    driver.close()
    assert time.monotonic() - started < 40
    assert containers(engine, "closing") == []


@engine_test
def test_stopping_a_run_ends_everything_and_starts_nothing(engine: Engine, base_image: ResolvedImage) -> None:
    """``kill_all`` ends commands that other threads wait for. Afterwards, no command and no sandbox can be started."""
    driver = DockerDriver(run_id="stopping", engine=connect())
    persistent = driver.create(SandboxSpec(image=base_image), persistent=True)
    ephemeral = driver.create(SandboxSpec(image=base_image))

    def wait(sandbox: Any) -> str:
        try:
            return f"exit {sandbox.run(SLEEP).exit_code}"
        except InfrastructureError as error:
            return error.code

    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(wait, sandbox) for sandbox in (persistent, ephemeral)]
        time.sleep(1)
        driver.kill_all()
        driver.kill_all()
        ended = [future.result(timeout=10) for future in waiting]
    assert "exit 0" not in ended
    for refused in (
        lambda: ephemeral.run(TRUE),
        lambda: persistent.run(TRUE),
        lambda: driver.create(SandboxSpec(image=base_image)),
        lambda: driver.create(SandboxSpec(image=base_image), persistent=True),
    ):
        with pytest.raises(EngineError) as raised:
            refused()
        assert raised.value.code == "run-stopped"
    driver.close()
    assert containers(engine, "stopping") == []


@engine_test
def test_a_container_that_nobody_knows_is_swept(
    engine: Engine, base_image: ResolvedImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing a driver also removes a container whose creation was interrupted before the driver got its id."""
    driver = DockerDriver(run_id="interrupted", engine=connect())
    create = DockerContainer.create

    def interrupted(*arguments: Any) -> DockerContainer:
        create(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(DockerContainer, "create", interrupted)
    with pytest.raises(KeyboardInterrupt):
        driver.create(SandboxSpec(image=base_image)).run(TRUE)
    assert len(containers(engine, "interrupted")) == 1
    driver.close()
    assert containers(engine, "interrupted") == []


@engine_test
def test_removal_is_in_the_background(docker_driver: DockerDriver, base_image: ResolvedImage) -> None:
    """Closing a sandbox can take less than 20 ms, because its container is removed in the background."""
    lasted = []
    for _ in range(5):
        with docker_driver.create(SandboxSpec(image=base_image)) as sandbox:
            sandbox.run(TRUE)
            started = time.monotonic()
        lasted.append(time.monotonic() - started)
    assert min(lasted) < 0.02


OTHER_RUN = """
import sys, time
from securebench.sandboxes.base import Command, SandboxSpec
from securebench.sandboxes.docker.driver import DockerDriver

driver = DockerDriver(run_id=sys.argv[1])
spec = SandboxSpec(image=driver.resolve_image("securebench/python:3.11"))
persistent = driver.create(spec, persistent=True)
sleep = Command(argv=("sleep", "60"), timeout_seconds=90)
processes = [persistent.open(sleep), driver.create(spec).open(sleep)]
print("ready", flush=True)
"""


def other_run(run_id: str, then: str) -> subprocess.Popen[bytes]:
    """Start a process that opens a sandbox of each kind, then executes ``then``. Return once both sandboxes run."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER_RUN + then, run_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        raise AssertionError(process.communicate()[1].decode())
    return process


@engine_test
def test_a_killed_run_is_reaped_and_a_living_one_is_not(engine: Engine, docker_driver: DockerDriver) -> None:
    """L10: the next run removes the containers of a run killed with SIGKILL, but not those of a living run."""
    with other_run("living", "sys.stdin.read()") as living, other_run("killed", "time.sleep(90)") as killed:
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert len(containers(engine, "killed")) == 2
        assert docker_driver.reap() >= 2
        assert containers(engine, "killed") == []
        assert [entry["State"] for entry in containers(engine, "living")] == ["running", "running"]
        living.terminate()
        living.communicate()
    docker_driver.reap()
    assert containers(engine, "living") == []


@engine_test
def test_what_a_closed_driver_of_this_process_could_not_remove_is_reaped(
    engine: Engine, docker_driver: DockerDriver, base_image: ResolvedImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L10: reaping removes containers that a closed driver of this process left, but not those of an open driver."""
    leaving, staying = (DockerDriver(run_id=name) for name in ("leaving", "staying"))
    for driver in (leaving, staying):
        driver.create(SandboxSpec(image=base_image), persistent=True).run(TRUE)
    with monkeypatch.context() as patched:
        patched.setattr(DockerContainer, "remove", lambda _self: None)
        leaving.close()
    assert len(containers(engine, "leaving")) == 1
    docker_driver.reap()
    assert containers(engine, "leaving") == []
    assert len(containers(engine, "staying")) == 1
    staying.close()
    assert containers(engine, "staying") == []


@engine_test
def test_a_persistent_sandbox_ends_with_its_run(engine: Engine, docker_driver: DockerDriver) -> None:
    """A05, L10: the container of a killed run's persistent sandbox exits by itself, without being reaped."""
    with other_run("orphan", "time.sleep(90)") as orphan:
        orphan.send_signal(signal.SIGKILL)
        orphan.communicate()
    deadline = time.monotonic() + 15
    while sorted(entry["State"] for entry in containers(engine, "orphan")) != ["exited", "running"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    docker_driver.reap()


@engine_test
@pytest.mark.parametrize("end", ["pass", "raise SystemExit(3)", "raise ValueError('oh')"])
def test_an_interpreter_that_ends_leaves_nothing(engine: Engine, end: str) -> None:
    """L10: a program that does not close its driver leaves no container, whether it ends normally or with an error."""
    with other_run("forgetful", f"\n{end}") as process:
        process.communicate(timeout=60)
    assert containers(engine, "forgetful") == []


# --- under load


@engine_test
def test_eight_threads_share_a_driver(docker_driver: DockerDriver, base_image: ResolvedImage) -> None:
    """Eight threads run sandboxes of both kinds at once: each command returns its own output."""

    def one(number: int) -> list[bytes]:
        echo = Command(argv=("echo", str(number)), timeout_seconds=60)
        with docker_driver.create(SandboxSpec(image=base_image), persistent=number % 2 == 0) as sandbox:
            return [sandbox.run(echo).stdout for _ in range(2)]

    with ThreadPoolExecutor(8) as pool:
        outputs = list(pool.map(one, range(16)))
    assert outputs == [[f"{number}\n".encode()] * 2 for number in range(16)]


@engine_test
def test_output_at_once_is_never_lost(docker_driver: DockerDriver, base_image: ResolvedImage) -> None:
    """Output that a command prints at once after its start is complete, even if it arrives with the HTTP header."""
    echo = Command(argv=("echo", "at once"), timeout_seconds=60)
    with docker_driver.create(SandboxSpec(image=base_image), persistent=True) as sandbox:
        outputs = [sandbox.run(echo).stdout for _ in range(40)]
    assert outputs == [b"at once\n"] * 40


@engine_test
def test_running_out_of_memory_is_always_told(docker_driver: DockerDriver, base_image: ResolvedImage) -> None:
    """I09: running out of memory is always reported, in both kinds of sandbox, even if a child process caused it."""
    spec = SandboxSpec(image=base_image, limits=Limits(memory=32 * MIB))
    child = "import subprocess, sys; sys.exit(128 - subprocess.call([sys.executable, '-c', 'b\"x\" * 2**28']))"
    for persistent in (False, True):
        with docker_driver.create(spec, persistent=persistent) as sandbox:
            for code in ("b'x' * 2**28", "b'x' * 2**28", child):
                result = sandbox.run(Command(argv=("python3", "-c", code), timeout_seconds=60))
                assert (result.exit_code, result.out_of_memory) == (137, True)


# --- as an ordinary user

ORDINARY_UID = 54321
"""The id of a user who owns nothing on the host."""

AS_USER = """
import grp, os, sys
from pathlib import Path
from securebench.sandboxes.base import Command, Mount, SandboxSpec, workspace_user
from securebench.sandboxes.docker.driver import DockerDriver

DockerDriver(run_id="ordinary").close()  # load everything: the interpreter may lie where only root can read
if os.getuid() == 0:
    os.setgroups([grp.getgrnam("docker").gr_gid])
    os.setresgid(*[int(sys.argv[2])] * 3)
    os.setresuid(*[int(sys.argv[2])] * 3)
directory = Path(sys.argv[1]) / "workspace"
directory.mkdir(mode=0o700)
driver = DockerDriver(run_id="ordinary")
image = driver.resolve_image("securebench/python:3.11")
spec = SandboxSpec(image=image, user=workspace_user(), mounts=(Mount(directory, "/workspace", read_only=False),))
with driver.create(spec) as sandbox:
    result = sandbox.run(Command(argv=("sh", "-c", "id -u; echo made > /workspace/x"), timeout_seconds=60))
driver.close()
made = directory / "x"
print(os.getuid(), result.exit_code, result.stdout.decode(), made.stat().st_uid, made.read_text())
(directory / "x").unlink()
"""


@engine_test
def test_an_ordinary_user_of_the_docker_group_can_run(engine: Engine) -> None:
    """A user of the docker group can run a sandbox on a private directory, and owns the files that it writes there."""
    uid = ORDINARY_UID if os.getuid() == 0 else os.getuid()
    with tempfile.TemporaryDirectory() as directory:  # not tmp_path, which only its owner can enter
        os.chown(directory, uid, -1)
        home = Path(directory).resolve() / "home"
        home.mkdir(mode=0o700)  # another user's private HOME, as after sudo -u without -H
        command = [sys.executable, "-c", AS_USER, str(Path(directory).resolve()), str(uid)]
        environment = os.environ | {"HOME": str(home)}
        result = subprocess.run(command, capture_output=True, check=False, env=environment)
    assert result.stderr == b""
    assert result.stdout.decode().split() == [str(uid), "0", str(uid), str(uid), "made"]
    assert containers(engine, "ordinary") == []
