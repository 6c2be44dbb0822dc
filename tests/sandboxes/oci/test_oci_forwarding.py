"""Forwarded ports: how the supervisor passes listening sockets to its driver, and what happens on errors."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from securebench.errors import EngineError
from securebench.ipc.frames import pack, receive, send
from securebench.sandboxes.base import ForwardedPort
from securebench.sandboxes.oci.connection import ProcessHandle
from securebench.sandboxes.oci.sandbox import open_forwarded_ports
from securebench.sandboxes.oci.wire import FORWARDED_PORTS, KILL, ProcessReport

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENDED = ProcessReport(started=True)


@pytest.fixture
def channel() -> Iterator[tuple[ProcessHandle, socket.socket]]:
    """Yield a process handle and the supervisor's end of its channel."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with theirs:
        yield ProcessHandle(ours), theirs


@pytest.fixture
def listeners() -> Iterator[list[socket.socket]]:
    """Yield four listening sockets."""
    made = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
    yield made
    for listener in made:
        listener.close()


def hand_over(supervisor: socket.socket, listeners: list[socket.socket]) -> None:
    """Send ``listeners`` to the driver, as the supervisor does."""
    send(supervisor, pack({FORWARDED_PORTS: len(listeners)}), [listener.fileno() for listener in listeners])


def test_ports_come_before_the_end(
    channel: tuple[ProcessHandle, socket.socket], listeners: list[socket.socket]
) -> None:
    """Each forwarded port is served with its own socket, in order, and the report of the exit is a separate frame."""
    handle, supervisor = channel
    hand_over(supervisor, listeners[:2])
    send(supervisor, pack(asdict(ENDED)))
    served: list[tuple[str, socket.socket]] = []
    forwarded_ports = [
        ForwardedPort(1, lambda given: served.append(("one", given))),
        ForwardedPort(2, lambda given: served.append(("two", given))),
    ]
    open_forwarded_ports(handle, forwarded_ports)
    assert [name for name, _ in served] == ["one", "two"]
    assert [given.getsockname() for _, given in served] == [listener.getsockname() for listener in listeners[:2]]
    assert not any(given.get_inheritable() for _, given in served)
    assert handle.report(5) == ENDED
    assert handle.descriptor == -1
    for _, given in served:
        given.close()


def test_what_could_not_be_made_has_no_ports(channel: tuple[ProcessHandle, socket.socket]) -> None:
    """If a container is refused, no forwarded port is served, and the report gives the reason."""
    handle, supervisor = channel
    send(supervisor, pack({"failed": "no", "unsafe": True}))
    open_forwarded_ports(handle, [ForwardedPort(1, lambda _given: pytest.fail("there is none"))])
    assert handle.report(5) == ProcessReport(failed="no", unsafe=True)


def test_a_supervisor_that_is_gone_has_none(channel: tuple[ProcessHandle, socket.socket]) -> None:
    """If the supervisor is gone, no forwarded port is served, and waiting for the report raises an error."""
    handle, supervisor = channel
    supervisor.close()
    open_forwarded_ports(handle, [ForwardedPort(1, lambda _given: pytest.fail("there is none"))])
    with pytest.raises(EngineError) as caught:
        handle.report(5)
    assert caught.value.code == "sandbox-supervisor-gone"


def test_a_silent_supervisor_is_told(channel: tuple[ProcessHandle, socket.socket]) -> None:
    """If the supervisor sends no sockets in time, waiting for them raises an error."""
    with pytest.raises(EngineError, match="in time"):
        channel[0].listeners(0.05)


def test_who_cannot_serve_ends_the_sandbox(
    channel: tuple[ProcessHandle, socket.socket], listeners: list[socket.socket]
) -> None:
    """When serving raises, all forwarded ports are closed and the container is ended."""
    handle, supervisor = channel
    served: list[socket.socket] = []

    def refuse(_given: socket.socket) -> None:
        raise ZeroDivisionError

    hand_over(supervisor, listeners[:2])
    with pytest.raises(ZeroDivisionError):
        open_forwarded_ports(handle, [ForwardedPort(1, served.append), ForwardedPort(2, refuse)])
    assert [given.fileno() for given in served] == [-1]
    assert receive(supervisor) == ({KILL: True}, [])
    assert receive(supervisor) is None


ROOMLESS = """
import os, resource, socket
from contextlib import suppress
from securebench.errors import InfrastructureError
from securebench.sandboxes.oci.connection import ProcessHandle
from securebench.ipc.frames import channel_pair, pack, send
from securebench.sandboxes.oci.wire import FORWARDED_PORTS
ours, supervisor = channel_pair()
ours.setblocking(False)
job, listeners = ProcessHandle(ours), [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
send(supervisor, pack({FORWARDED_PORTS: 4}), [listener.fileno() for listener in listeners])
before, taken = len(os.listdir("/proc/self/fd")), []
free = [os.dup(0), os.dup(0)]
resource.setrlimit(resource.RLIMIT_NOFILE, (max(free) + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
with suppress(OSError):
    while True:  # whatever numbers are free below
        taken.append(os.dup(0))
for descriptor in free:
    os.close(descriptor)
try:
    job.listeners(5)
except InfrastructureError as error:
    print(error.message, error.hint)
for descriptor in taken:
    os.close(descriptor)
print(len(os.listdir("/proc/self/fd")) - before)
"""


def test_no_room_for_ports_is_told() -> None:
    """If the process may open no more files, the error says so, and the sockets that were received are closed."""
    done = subprocess.run([sys.executable, "-c", ROOMLESS], capture_output=True, text=True, check=False)
    message, more = done.stdout.splitlines()
    assert "cannot start another" in message, done.stderr
    assert "ulimit" in message
    assert more == "0"


MAKING = """
import os, sys
from securebench.sandboxes.oci.supervisor.network import make_network
before, fds = os.readlink("/proc/self/ns/net"), len(os.listdir("/proc/self/fd"))
try:
    make_network([3128, int(sys.argv[1])], sys.argv[2] + "/network", sys.argv[2] + "/sys")
except OSError as error:
    print(error.errno)
print(os.readlink("/proc/self/ns/net") == before, len(os.listdir("/proc/self/fd")) - fds)
"""


@pytest.mark.parametrize(("port", "expected"), [(8788, ["True 2"]), (3128, ["98", "True 0"])])
def test_whoever_makes_ports_goes_back(tmp_path: Path, port: int, expected: list[str]) -> None:
    """Whether ``make_network`` succeeds or fails, the process returns to its own namespace and leaks no descriptors."""
    unshare = ["unshare", "--mount", "--net", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    argv = [*unshare, sys.executable, "-c", MAKING, str(port), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip("this user may make no namespaces")
    assert done.stdout.splitlines() == expected, done.stderr
