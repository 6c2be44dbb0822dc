"""SIGKILL from the host: of a sandbox's first process it is the machine's fault, of another its sender is not known."""

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

pytestmark = [pytest.mark.oci, pytest.mark.usefixtures("oci_driver")]  # that one stays open


@pytest.fixture(scope="module", params=["crun", "runc"])
def own(request: pytest.FixtureRequest) -> Iterator[OciDriver]:
    """Give a driver with no other sandboxes than those of one test, on each runtime that leaves its containers."""
    driver = OciDriver(runtime=request.param)
    driver.info()
    yield driver
    driver.close()


@pytest.mark.parametrize("persistent", [False, True])
def test_a_kill_of_the_first_process_from_the_host_is_the_machines(
    *, own: OciDriver, base_image: ResolvedImage, persistent: bool
) -> None:
    """It is an infrastructure error for every command that it took along, also for one that started beside it."""
    with own.create(SandboxSpec(image=base_image), persistent=persistent) as sandbox:
        process = sandbox.open(WAITS)
        os.kill(first_process(own, process), signal.SIGKILL)
        with pytest.raises(InfrastructureError, match="its first process was killed from outside"):
            process.wait()


def test_a_kill_of_another_process_from_the_host_is_scored(own: OciDriver, base_image: ResolvedImage) -> None:
    """The kernel does not say who killed a process, and each may kill itself."""
    with own.create(SandboxSpec(image=base_image)) as sandbox:
        process = sandbox.open(WAITS)
        os.kill(children(first_process(own, process))[0], signal.SIGKILL)
        assert process.wait().exit_code == 137


def test_a_kill_of_a_command_leaves_its_sandbox(own: OciDriver, base_image: ResolvedImage) -> None:
    """A command that was killed beside a living first process is reported at once, and the next one runs."""
    kills_itself = Command(argv=("sh", "-c", "kill -9 $$"), timeout_seconds=50)
    with own.create(SandboxSpec(image=base_image), persistent=True) as sandbox:
        started = time.monotonic()
        assert [sandbox.run(kills_itself).exit_code for _ in range(3)] == [137] * 3
        assert time.monotonic() - started < 8  # nobody waited for an end of the sandbox


@pytest.mark.parametrize("persistent", [False, True])
def test_an_end_of_our_own_making_is_none_of_the_machines(
    *, own: OciDriver, base_image: ResolvedImage, persistent: bool
) -> None:
    """A time limit, a kill of the harness and too much memory are what they were, though the first process dies."""
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
    """Return the number on this machine of the first process of the only sandbox of ``driver``, which runs."""
    assert process.receive() == (Stream.STDOUT, b"on\n")
    supervisor = children(driver._context.connection._child.pid)[0]
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:  # its runtime may be about to go
        started = children(supervisor)
        for pid in (*started, *(child for parent in started for child in children(parent))):
            if _numbers(pid)[2:] == [1]:
                return pid
        time.sleep(0.01)
    raise AssertionError("it has no first process")


def children(parent: int) -> list[int]:
    """Return the processes that ``parent`` has started: none if it has gone."""
    with suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    return []


def _numbers(pid: int) -> list[int]:
    """Return the numbers of a process in each pid namespace, of which this one's comes first."""
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        return next([int(n) for n in line.split()[1:]] for line in status.splitlines() if line.startswith("NSpid:"))
    return []
