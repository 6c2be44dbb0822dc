"""Forwarded ports of a container: it joins the network namespace of another one, which holds them open already.

An engine gives a container its namespace and starts it in one step, so nobody could listen in it before. The holder is
a container of ours, of our own image, hardened like every sandbox. It listens, and hands the sockets over through a
directory that only it and this process have. It need not be there any more once the other one runs: a namespace stays
for as long as anybody is in it. No network of the engine's is made, and this process needs no privilege.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import struct
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.errors import EgressError, InfrastructureError
from securebench.sandboxes.base import MIB, Command, Limits, Mount, SandboxSpec
from securebench.sandboxes.docker.container import DockerContainer, remove_quietly
from securebench.sandboxes.docker.spec import compile_container
from securebench.sandboxes.forwarding import MAX_FORWARDED_PORTS, serve_forwarded_ports
from securebench.sandboxes.oci import reaper
from securebench.tasks import DEFAULT_IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from securebench.sandboxes.docker.sandbox import DockerContext
    from securebench.sandboxes.docker.stream import EngineStream
    from securebench.sandboxes.forwarding import ForwardedPort

_PROGRAM: Final = (Path(__file__).parent / "guest" / "forward_ports.py").read_text(encoding="utf-8")
_TARGET: Final = "/forwarded-ports"
_SOCKET: Final = "socket"
_SECONDS: Final = 60.0
_LIMITS: Final = Limits(memory=64 * MIB, pids=8, tmpfs=MIB, file_size=MIB, output=MIB)
_INT: Final = struct.Struct("i")


@contextmanager
def _meeting() -> Iterator[tuple[Path, socket.socket]]:
    """Give a new directory, and a socket that listens in it. Both are gone afterwards. Raises ``OSError``.

    What a killed process leaves, the next run reaps.
    """
    directory, _ = reaper.make_run_directory(secrets.token_hex(8))
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            _bind(listener, directory)
            listener.listen(1)
            yield directory, listener
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def holder_of(forwarded_ports: Sequence[ForwardedPort], around: DockerContext) -> Iterator[str | None]:
    """Serve ``forwarded_ports`` and yield the id of the container to join; ``None`` where there are none.

    Raises :class:`InfrastructureError`, :class:`EgressError` among them, and what serving raises.
    """
    if not forwarded_ports:
        yield None
        return
    image = around.resolve(DEFAULT_IMAGE)
    try:
        with _meeting() as (directory, meeting), ExitStack() as undo:
            spec = SandboxSpec(image=image, limits=_LIMITS, mounts=(Mount(directory, _TARGET),))
            command = (
                "python3",
                "-I",
                "-S",
                "-c",
                _PROGRAM,
                f"{_TARGET}/{_SOCKET}",
                *(str(d.port) for d in forwarded_ports),
            )
            container = _create(spec, Command(argv=command, timeout_seconds=_SECONDS), around)
            undo.callback(around.background.do, partial(remove_quietly, container))
            stream = container.attach(output=True)
            undo.callback(stream.close)
            container.start()
            serve_forwarded_ports(
                forwarded_ports,
                _listeners(stream, meeting, [forwarded_port.port for forwarded_port in forwarded_ports]),
            )
            yield container.id
    except OSError as error:
        raise _failed(str(error)) from error


def _create(spec: SandboxSpec, command: Command, around: DockerContext) -> DockerContainer:
    return DockerContainer.create(around.engine, compile_container(spec, command, around.labels, around.runtime))


def _listeners(stream: EngineStream, meeting: socket.socket, ports: list[int]) -> list[socket.socket]:
    """Return the sockets of a holder that runs. Raises :class:`EgressError`."""
    try:
        said = stream.receive(_SECONDS)
    except TimeoutError as error:
        raise _failed(f"nothing was heard of it in {_SECONDS:g} s") from error
    if said is None or said[1] != b"open\n":
        raise _failed("it ended" if said is None else said[1].decode("utf-8", "replace").strip().rpartition("\n")[2])
    listeners = _received(meeting)
    if [listener.getsockname() for listener in listeners] != [("127.0.0.1", port) for port in ports]:
        for listener in listeners:
            listener.close()
        raise _failed("its forwarded ports are not there")
    return listeners


def _received(meeting: socket.socket) -> list[socket.socket]:
    meeting.setblocking(False)  # it was sent before it was said that it would be
    connection, _ = meeting.accept()
    with connection:
        room = socket.CMSG_LEN(MAX_FORWARDED_PORTS * _INT.size)
        _, extra, _, _ = connection.recvmsg(16, room, socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
    return [socket.socket(fileno=number) for _, _, data in extra for (number,) in _INT.iter_unpack(data)]


def _bind(listener: socket.socket, directory: Path) -> None:
    """Bind it to its place in ``directory``, however long the path of that is."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{descriptor}/{_SOCKET}")
    finally:
        os.close(descriptor)
    (directory / _SOCKET).chmod(0o666)


def _failed(why: str) -> InfrastructureError:
    return EgressError(f"the forwarded ports of a sandbox could not be opened: {why}")
