"""Forwarded ports of a container: it joins the network namespace of a holder container that has opened the ports.

The engine creates a container's network namespace and starts the container in one step, so no socket could listen in
the namespace before the container's first process starts. The holder runs SecureBench's own image and is hardened like
every sandbox. It opens the listening sockets and passes them to this process through a directory that only the two
share. Once the joining container runs, the holder can exit, because a namespace exists as long as a process is in it.
This creates no network in the engine and needs no privileges.
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
from securebench.sandboxes.oci import reaper
from securebench.sandboxes.spec_rules import MAX_FORWARDED_PORTS, serve_forwarded_ports
from securebench.tasks import DEFAULT_IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from securebench.sandboxes.base import ForwardedPort
    from securebench.sandboxes.docker.sandbox import DockerContext
    from securebench.sandboxes.docker.stream import EngineStream

_PROGRAM: Final = (Path(__file__).parent / "guest" / "forward_ports.py").read_text(encoding="utf-8")
_TARGET: Final = "/forwarded-ports"
_SOCKET: Final = "socket"
_SECONDS: Final = 60.0
_LIMITS: Final = Limits(memory=64 * MIB, pids=8, tmpfs=MIB, file_size=MIB, output=MIB)
_INT: Final = struct.Struct("i")


@contextmanager
def _rendezvous() -> Iterator[tuple[Path, socket.socket]]:
    """Yield a new directory and a socket that listens in it, then remove both. Raises ``OSError``.

    If this process is killed, the next run reaps the directory.
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
def port_holder(forwarded_ports: Sequence[ForwardedPort], context: DockerContext) -> Iterator[str | None]:
    """Open and serve ``forwarded_ports``. Yield the id of the container to join, or ``None`` if there are no ports.

    Raises :class:`InfrastructureError`, including :class:`EgressError`, and the errors of each port's ``serve``.
    """
    if not forwarded_ports:
        yield None
        return
    image = context.resolve(DEFAULT_IMAGE)
    try:
        with _rendezvous() as (directory, rendezvous), ExitStack() as undo:
            spec = SandboxSpec(image=image, limits=_LIMITS, mounts=(Mount(directory, _TARGET),))
            ports = [forwarded_port.port for forwarded_port in forwarded_ports]
            argv = ("python3", "-I", "-S", "-c", _PROGRAM, f"{_TARGET}/{_SOCKET}", *map(str, ports))
            document = compile_container(
                spec, Command(argv=argv, timeout_seconds=_SECONDS), context.labels, context.runtime
            )
            container = DockerContainer.create(context.engine, document)
            undo.callback(context.background.do, partial(remove_quietly, container))
            stream = container.attach(output=True)
            undo.callback(stream.close)
            container.start()
            serve_forwarded_ports(forwarded_ports, _listeners(stream, rendezvous, ports))
            yield container.id
    except OSError as error:
        raise _failed(str(error)) from error


def _listeners(stream: EngineStream, rendezvous: socket.socket, ports: list[int]) -> list[socket.socket]:
    """Return the listening sockets that the holder opened, in the order of ``ports``. Raises :class:`EgressError`."""
    try:
        output = stream.receive(_SECONDS)
    except TimeoutError as error:
        raise _failed(f"SecureBench's helper container did not report within {_SECONDS:g} s") from error
    if output is None:
        raise _failed("SecureBench's helper container exited")
    if output[1] != b"open\n":
        raise _failed(output[1].decode("utf-8", "replace").strip().rpartition("\n")[2])
    listeners = _receive_sockets(rendezvous)
    if [listener.getsockname() for listener in listeners] != [("127.0.0.1", port) for port in ports]:
        for listener in listeners:
            listener.close()
        raise _failed("SecureBench's helper container returned the wrong sockets")
    return listeners


def _receive_sockets(rendezvous: socket.socket) -> list[socket.socket]:
    rendezvous.setblocking(False)  # the holder sends the sockets before it reports on its stdout
    connection, _ = rendezvous.accept()
    with connection:
        room = socket.CMSG_LEN(MAX_FORWARDED_PORTS * _INT.size)
        _, extra, _, _ = connection.recvmsg(16, room, socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
    return [socket.socket(fileno=number) for _, _, data in extra for (number,) in _INT.iter_unpack(data)]


def _bind(listener: socket.socket, directory: Path) -> None:
    """Bind ``listener`` in ``directory``, through a descriptor because the path of a Unix socket must be short."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{descriptor}/{_SOCKET}")
    finally:
        os.close(descriptor)
    (directory / _SOCKET).chmod(0o666)


def _failed(why: str) -> InfrastructureError:
    return EgressError(f"cannot open the forwarded ports of a sandbox: {why}")
