"""SIGKILL from the host, which may hit any process of a sandbox.

A kill of the sandbox's first process is an infrastructure error, because only the host can kill that process. For other
processes the sender is unknown, so the exit code counts.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from securebench.errors import InfrastructureError
from securebench.sandboxes.base import MIB, Command, Limits, SandboxSpec, Stream
from securebench.sandboxes.oci import OciDriver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import SandboxProcess

WAITS = Command(argv=("sh", "-c", "echo on; sleep 60"), timeout_seconds=50)

pytestmark = [pytest.mark.oci, pytest.mark.usefixtures("oci_driver")]  # the shared driver stays open


@pytest.fixture(scope="module", params=["crun", "runc"])
def own(request: pytest.FixtureRequest) -> Iterator[OciDriver]:
    """Yield a driver that only the tests of this module use, with each runtime that detaches from its containers."""
    driver = OciDriver(runtime=request.param)
    driver.info()
    yield driver
    driver.close()


@pytest.mark.parametrize("persistent", [False, True])
def test_a_kill_of_the_first_process_from_the_host_is_the_machines(
    *, own: OciDriver, base_image: ResolvedImage, persistent: bool
) -> None:
    """If the host kills a sandbox's first process, a running command, also in a persistent sandbox, has an error."""
    with own.create(SandboxSpec(image=base_image), persistent=persistent) as sandbox:
        process = sandbox.open(WAITS)
        os.kill(first_process(own, process), signal.SIGKILL)
        with pytest.raises(InfrastructureError, match="its first process was killed from outside"):
            process.wait()


def test_a_kill_of_another_process_from_the_host_is_scored(own: OciDriver, base_image: ResolvedImage) -> None:
    """A command that the host kills has the exit code 137, because it may have killed itself: the sender is unknown."""
    with own.create(SandboxSpec(image=base_image)) as sandbox:
        process = sandbox.open(WAITS)
        os.kill(children(first_process(own, process))[0], signal.SIGKILL)
        assert process.wait().exit_code == 137


def test_a_kill_of_a_command_leaves_its_sandbox(own: OciDriver, base_image: ResolvedImage) -> None:
    """If a command in a persistent sandbox kills itself, this is reported at once, and the next command runs."""
    kills_itself = Command(argv=("sh", "-c", "kill -9 $$"), timeout_seconds=50)
    with own.create(SandboxSpec(image=base_image), persistent=True) as sandbox:
        started = time.monotonic()
        assert [sandbox.run(kills_itself).exit_code for _ in range(3)] == [137] * 3
        assert time.monotonic() - started < 8  # the driver did not wait for the sandbox to exit


@pytest.mark.parametrize("persistent", [False, True])
def test_an_end_of_our_own_making_is_none_of_the_machines(
    *, own: OciDriver, base_image: ResolvedImage, persistent: bool
) -> None:
    """A time limit, a kill by SecureBench and a lack of memory are reported as such, even if the first process dies."""
    spec = SandboxSpec(image=base_image, limits=Limits(memory=64 * MIB))
    with own.create(spec, persistent=persistent) as sandbox:
        assert sandbox.run(Command(argv=("sleep", "60"), timeout_seconds=0.5)).timed_out
    with own.create(spec, persistent=persistent) as sandbox:
        process = sandbox.open(WAITS)
        assert process.receive() == (Stream.STDOUT, b"on\n")
        process.kill()
        assert process.wait().exit_code == 137
    with own.create(spec, persistent=persistent) as sandbox:
        greedy = sandbox.run(Command(argv=("python3", "-c", "x = bytearray(1 << 28)"), timeout_seconds=50))
        assert (greedy.exit_code, greedy.out_of_memory) == (137, True)


def first_process(driver: OciDriver, process: SandboxProcess) -> int:
    """Return the pid, on this machine, of the first process of the driver's only sandbox, which runs ``WAITS``."""
    assert process.receive() == (Stream.STDOUT, b"on\n")
    supervisor = children(driver._context.connection._child.pid)[0]
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:  # the runtime may be about to exit
        started = children(supervisor)
        for pid in (*started, *(child for parent in started for child in children(parent))):
            if _numbers(pid)[2:] == [1]:
                return pid
        time.sleep(0.01)
    raise AssertionError("it has no first process")


def children(parent: int) -> list[int]:
    """Return the pids of the children of ``parent``, or an empty list if it has exited."""
    with suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    return []


def _numbers(pid: int) -> list[int]:
    """Return the pids of a process in each of its pid namespaces, starting with this process's namespace."""
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        return next([int(n) for n in line.split()[1:]] for line in status.splitlines() if line.startswith("NSpid:"))
    return []
