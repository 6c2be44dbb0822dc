"""Runtime processes: how they are started, what is reported, and that killed ones leave no files on the host."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from leftovers import runtime_files
from securebench.errors import InfrastructureError
from securebench.sandboxes.base import Command, SandboxSpec
from securebench.sandboxes.oci import OciDriver
from securebench.sandboxes.oci.supervisor.containers import SupervisedContainer
from securebench.sandboxes.oci.supervisor.context import SupervisorContext
from securebench.sandboxes.oci.supervisor.processes import OomKills, RuntimeCall, RuntimeProcess, is_exiting
from securebench.sandboxes.oci.wire import SupervisorSettings

if TYPE_CHECKING:
    from securebench.images.model import ResolvedImage

TRUE = Command(argv=("true",), timeout_seconds=60)
EXIT_1 = 1 << 8
STEP_SECONDS = 0.0001


def test_a_runtime_is_started_with_next_to_nothing(tmp_path: Path) -> None:
    """A runtime's environment contains only ``PATH`` and the directory for its own files, nothing from the caller."""
    out, log = (tmp_path / "out").open("w+"), tmp_path / "log"
    with out, socket.socket() as channel:
        streams = [os.dup(number) for number in (0, out.fileno(), 2)]
        process = RuntimeProcess(channel, str(log), str(tmp_path / "started"), 60, streams=streams)
        process.start(RuntimeCall(["/usr/bin/env"], str(tmp_path), str(log)), lambda: None)
        assert os.waitpid(process.pid, 0)[1] == 0
        out.seek(0)
        variables = dict(line.split("=", 1) for line in out.read().splitlines())
    assert variables.pop("PATH").endswith("/bin")
    assert variables == {"_LIBCONTAINER_STATEDIR": str(tmp_path)}


def test_whether_its_command_was_started_is_reported(tmp_path: Path) -> None:
    """A process is reported as started only if its runtime has written a valid pid of it."""
    started = tmp_path / "started"
    with socket.socket() as channel:
        process = RuntimeProcess(channel, str(tmp_path / "log"), str(started), 60)
        for nothing in ("", "garbage", "0", "-3", "7 8", "1", "9" * 31):
            started.write_text(nothing)
            assert not process.outcome(EXIT_1, OomKills()).started
        started.write_text("7")
        assert process.outcome(EXIT_1, OomKills()).started


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(("status", "code"), [(EXIT_1, 1), (signal.SIGSEGV, 139)])
def test_a_detached_runtime_that_fails_has_started_nothing(
    *, tmp_path: Path, first: bool, killed: bool, status: int, code: int
) -> None:
    """If a detached runtime fails, its command counts as not started, even if the runtime wrote a pid.

    The exit code is 137 if SecureBench killed the command.
    """
    (tmp_path / "started").write_text("7")
    with socket.socket() as channel:
        process = RuntimeProcess(channel, str(tmp_path / "log"), str(tmp_path / "started"), 60, detached=True)
        process.first, process.killed = first, killed
        report = process.outcome(status, OomKills())
    assert (report.exit, report.started) == (137 if killed else code, False)


def test_a_command_waits_for_the_record_of_its_container(tmp_path: Path) -> None:
    """A command in a container starts only after the container's runtime has written a pid."""
    pid = tmp_path / "pid"
    with socket.socket() as first, socket.socket() as second:
        container = SupervisedContainer("s1", SupervisorContext(SupervisorSettings(run=str(tmp_path), group="none")))
        container.main = RuntimeProcess(first, str(tmp_path / "log"), str(pid), 60)
        container.main.pid = os.getpid()
        command = RuntimeProcess(second, str(tmp_path / "log2"), str(tmp_path / "pid2"), 60)
        (tmp_path / "s1").mkdir()
        container.launch(command, ["/bin/sh", "-c", f"exec test -s {pid}"], None)
        time.sleep(0.2)
        pid.write_text("7")
        assert os.waitpid(command.pid, 0)[1] == 0


def test_a_command_does_not_wait_for_a_runtime_that_has_exited(tmp_path: Path) -> None:
    """A command does not wait for a pid from a runtime that exited without writing one and is not reaped yet."""
    with socket.socket() as first, socket.socket() as second:
        container = SupervisedContainer("s1", SupervisorContext(SupervisorSettings(run=str(tmp_path), group="none")))
        main = container.main = RuntimeProcess(first, str(tmp_path / "log"), str(tmp_path / "pid"), 60)
        command = RuntimeProcess(second, str(tmp_path / "log2"), str(tmp_path / "pid2"), 60)
        (tmp_path / "s1").mkdir()
        main.start(RuntimeCall(["/bin/sh", "-c", "exit 1"], str(tmp_path), main.log), lambda: None)
        before = time.monotonic()
        container.launch(command, ["/bin/true"], None)
        assert os.waitpid(command.pid, 0)[1] == 0
        assert time.monotonic() - before < 20
        os.waitpid(main.pid, 0)


@pytest.mark.parametrize(
    ("status", "before", "after", "lost"),
    [
        (signal.SIGKILL, (0, 0), (0, 0), "by signal 9"),
        (signal.SIGTERM, (2, 2), (2, 2), "by signal 15"),
        (signal.SIGABRT, (0, 0), (0, 0), ""),  # a process in the sandbox might have crashed the runtime
        (137 << 8, (0, 0), (0, 0), ""),  # the exit code of a command that killed itself
        (signal.SIGKILL, (0, 0), (1, 1), ""),  # the sandbox reached its own memory limit
        (137 << 8, (0, 0), (1, 1), ""),
        (137 << 8, (0, 0), (1, 0), "memory"),
        (1 << 8, (4, 2), (5, 2), "memory"),
        (0, (0, 0), (1, 0), "memory"),  # a shell, for example, may continue after one of its children was killed
        (0, (0, 0), (1, 1), ""),
    ],
)
def test_what_the_machine_did_to_it_is_reported(
    tmp_path: Path, status: int, before: tuple[int, int], after: tuple[int, int], lost: str
) -> None:
    """A process is lost if its runtime was killed from outside, or if memory outside the sandbox ran out.

    It is not lost by what the sandbox does itself. A kill by SecureBench is not taken for one from outside.
    """
    (tmp_path / "started").write_text("7")
    with socket.socket() as channel:
        process = RuntimeProcess(channel, str(tmp_path / "log"), str(tmp_path / "started"), 60)
        process.oom_before = OomKills(*before)
        found = process.outcome(status, OomKills(*after)).lost
        assert lost in found
        assert bool(found) == bool(lost)
        process.killed = True
        assert ("signal" in process.outcome(status, OomKills(*after)).lost) is False


def test_a_command_that_its_runtime_left_to_the_supervisor_kills_itself(tmp_path: Path) -> None:
    """If a command that the supervisor has adopted gets a SIGKILL, its exit code is 137, and it is not lost."""
    with socket.socket() as channel:
        process = RuntimeProcess(channel, str(tmp_path / "log"), str(tmp_path / "started"), 60, detached=True)
        process.is_adopted = True
        report = process.outcome(signal.SIGKILL, OomKills())
    assert (report.exit, report.lost) == (137, "")


@pytest.mark.parametrize(
    ("status", "starved", "lost"),
    [
        (signal.SIGKILL, (0, 0), "first process"),
        (signal.SIGKILL, (1, 1), ""),  # the sandbox reached its own memory limit
        (signal.SIGKILL, (1, 0), "memory"),
        (signal.SIGSEGV, (0, 0), ""),
        (137 << 8, (0, 0), ""),  # the init's exit code if its command was killed
        (0, (0, 0), ""),
    ],
)
def test_a_first_process_that_was_killed_is_reported(
    tmp_path: Path, status: int, starved: tuple[int, int], lost: str
) -> None:
    """A sandbox is lost if its first process gets a SIGKILL.

    It is not lost if it reached its own memory limit. A kill by SecureBench is not taken for one from outside.
    """
    with socket.socket() as channel:
        process = RuntimeProcess(channel, str(tmp_path / "log"), str(tmp_path / "started"), 60, detached=True)
        process.first = process.is_adopted = True
        found = process.outcome(status, OomKills(*starved)).lost
        assert lost in found
        assert bool(found) == bool(lost)
        process.killed = True
        assert "process" not in process.outcome(status, OomKills(*starved)).lost


@pytest.mark.parametrize("status", [137 << 8, signal.SIGKILL, 5 << 8, 0])
def test_a_command_is_lost_with_its_container(tmp_path: Path, status: int) -> None:
    """If a container is lost, its commands are lost, whatever their exit codes: a killed child can cause any code."""
    with socket.socket() as channel:
        process = RuntimeProcess(channel, str(tmp_path / "log"), str(tmp_path / "started"), 60)
        process.is_adopted = True
        assert process.outcome(status, OomKills(), "gone").lost == "gone"


def test_a_process_that_ends_is_told_from_one_that_lives() -> None:
    """A zombie and a process that is gone count as exiting. A running process does not."""
    assert not is_exiting(os.getpid())
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert is_exiting(child)
    os.waitpid(child, 0)
    assert is_exiting(child)


@pytest.mark.oci
def test_a_runtime_killed_at_any_moment_leaves_no_file(base_image: ResolvedImage, oci_driver: OciDriver) -> None:
    """L10: crun binds its own program to a file when it starts. If crun is killed then, no file stays on the host."""
    before = runtime_files()
    runtime = oci_driver.info().runtime
    with closing(OciDriver(runtime=runtime)) as driver:
        image = driver.resolve_image(base_image.reference)
        driver.prove()
        supervisor = _supervisor_of(driver)
        for moment in range(200):
            with driver.create(SandboxSpec(image=image)) as sandbox:
                process = sandbox.open(TRUE)
                time.sleep(moment % 50 * STEP_SECONDS)
                _kill_children(supervisor)
                with suppress(InfrastructureError):
                    process.wait()
    assert runtime_files() - before == set()


@pytest.mark.oci
def test_a_run_killed_at_any_moment_leaves_no_file(base_image: ResolvedImage, oci_driver: OciDriver) -> None:
    """L10: if a supervisor is killed and the kernel ends all its sandboxes, no file of a runtime stays on the host."""
    before = runtime_files()
    for moment in range(20):
        with closing(OciDriver(runtime=oci_driver.info().runtime)) as driver:
            image = driver.resolve_image(base_image.reference)
            sandboxes = [driver.create(SandboxSpec(image=image)) for _ in range(4)]
            driver.info()  # wait until the supervisor is running
            for sandbox in sandboxes:
                sandbox.open(TRUE)
            time.sleep(moment * STEP_SECONDS * 5)
            os.kill(_supervisor_of(driver), signal.SIGKILL)
    assert runtime_files() - before == set()


def _supervisor_of(driver: OciDriver) -> int:
    starter = driver._context.connection._child.pid
    return int(Path(f"/proc/{starter}/task/{starter}/children").read_text().split()[0])


def _kill_children(parent: int) -> None:
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)
