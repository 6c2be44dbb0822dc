"""A process in a sandbox cannot make its own end look like an infrastructure error, which would not be scored."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from securebench.errors import InfrastructureError
from securebench.sandboxes.base import MIB, Command, Limits, SandboxSpec, Stream
from securebench.sandboxes.docker.container import DockerContainer, Exec

if TYPE_CHECKING:
    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import SandboxDriver
    from securebench.sandboxes.docker.driver import DockerDriver

ATTACKS = {
    "kills all others": "import os; os.kill(-1, 9)",
    "kills itself": "import os; os.kill(os.getpid(), 9)",
    "ends like one that was killed": "import os; os._exit(137)",
    "sends the init every signal": """
import os, time
for number in range(1, 65):
    try:
        os.kill(1, number)
    except OSError:
        pass
time.sleep(0.2)
""",
    "takes the init's processor time": """
import os, resource, time
resource.prlimit(1, resource.RLIMIT_CPU, (0, 0))  # its user may: the kernel then sends the init SIGKILL
end = time.time() + 10
while time.time() < end:
    os.kill(1, 28)
os._exit(3)
""",
    "takes the init along": """
import ctypes
libc = ctypes.CDLL(None)
libc.ptrace(0x4206, 1, 0, 0x100000)  # PTRACE_SEIZE with PTRACE_O_EXITKILL: SIGKILL for the init when this ends
raise SystemExit(3)
""",
    "takes the init's processor time by every number of the call": """
import ctypes, mmap, os, platform, time
libc = ctypes.CDLL(None)
nothing = (ctypes.c_uint64 * 2)()
for pid in (1, 1 | 1 << 32, 0xFFFFFFFF << 32 | 1):  # the kernel looks at the lower half
    for number in (302, 302 | 1 << 30):  # prlimit64, and for x32
        libc.syscall(number, ctypes.c_uint64(pid), 0, nothing, 0)
if platform.machine() == "x86_64":  # and as a 32-bit call: eax 340, ebx 1, ecx RLIMIT_CPU, edx the limits
    code = mmap.mmap(-1, 4096, 0x22 | 0x40, 7)  # MAP_32BIT
    code.write(bytes.fromhex("53 b854010000 bb01000000 31c9 89fa cd80 5b c3"))
    start = ctypes.addressof(ctypes.c_char.from_buffer(code))
    ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_uint32)(start)(start + 2048)
end = time.time() + 1
while time.time() < end:
    os.kill(1, 28)
os._exit(3)
""",
    "lets files send the init SIGKILL": """
import fcntl, os, signal, socket, time
pidfd = os.pidfd_open(1)
for number in (9, 19):
    ends = socket.socketpair()
    fcntl.fcntl(ends[0], fcntl.F_SETOWN, 1)
    fcntl.fcntl(ends[0], 10, number)  # F_SETSIG
    fcntl.fcntl(ends[0], fcntl.F_SETFL, os.O_ASYNC)
    ends[1].send(b"x")
    signal.pidfd_send_signal(pidfd, number)
time.sleep(0.3)
os._exit(3)
""",
    "fills the limit of processes": """
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(100)
    except OSError:
        os._exit(5)
""",
    "stops all others and itself": """
import os
try:
    os.kill(-1, 19)
finally:
    os.kill(os.getpid(), 19)
""",
    "has the init killed for want of memory": """
open('/proc/1/oom_score_adj', 'w').write('1000')
x = bytearray(1 << 30)
""",
    "ends like one whose system call was refused": "import os; os.kill(os.getpid(), 31)",
}


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.every_driver
def test_an_end_of_its_own_making_is_reported_as_one(
    driver: SandboxDriver, base_image: ResolvedImage, name: str
) -> None:
    """A process that attacks itself or its sandbox leads to a result, never to an infrastructure error."""
    limits = replace(Limits(), pids=64, memory=128 * MIB)
    spec = SandboxSpec(image=base_image, limits=limits, user=(65534, 65534))
    with driver.create(spec) as sandbox:
        result = sandbox.run(Command(argv=("python3", "-c", ATTACKS[name]), timeout_seconds=3))
    assert result.exit_code != 0


@pytest.mark.engine
@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM"])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_kill_through_the_engine_is_not_the_sandboxs_own(
    *, docker_driver: DockerDriver, base_image: ResolvedImage, persistent: bool, signal: str
) -> None:
    """A kill by another client of the engine is an infrastructure error. A kill by the driver itself is not."""
    client = docker_driver.engine.client
    waits = Command(argv=("sh", "-c", "echo on; sleep 60"), timeout_seconds=50)
    with docker_driver.create(SandboxSpec(image=base_image), persistent=persistent) as sandbox:
        process = sandbox.open(waits)
        assert process.receive() == (Stream.STDOUT, b"on\n")
        target = next(iter(sandbox._running))._target
        container = target.container if isinstance(target, Exec) else target
        assert isinstance(container, DockerContainer)
        client.kill(container.id, signal)
        with pytest.raises(InfrastructureError, match="another client of the engine sent a signal"):
            process.wait()
    with docker_driver.create(SandboxSpec(image=base_image), persistent=persistent) as sandbox:
        process = sandbox.open(waits)
        threading.Timer(0.3, process.kill).start()
        assert process.wait().exit_code == 137
