"""Creates a container's network namespace, with listening sockets on loopback, before the container's runtime starts.

The supervisor is started in its own network namespace, which has no connections. So no runtime starts in the host's
network namespace. To create a container's network namespace, the supervisor enters the new namespace and then returns
to its own. To return to the host's network namespace, the supervisor would need root privileges on the host.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

from securebench.ipc.frames import close_all
from securebench.sandboxes.oci.supervisor import mounts
from securebench.sandboxes.oci.supervisor.syscalls import CLONE_NEWNET, setns, unshare

if TYPE_CHECKING:
    from collections.abc import Iterator

_OWN = "/proc/self/ns/net"
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_FLAGS_OF_LOOPBACK = struct.Struct("16sh22x")
"""The kernel's ``struct ifreq`` with flags: a name, the flags, and padding to its full size."""
_BACKLOG = 128


def make_network(ports: list[int], path: str, devices: str) -> list[int]:
    """Create a network namespace with loopback only. Return a listening socket on its 127.0.0.1 for each port.

    The namespace is bound to the new file ``path``. Its sysfs is mounted read-only at the new directory ``devices``,
    because only the owner of a network namespace can mount its sysfs, and the sandbox is not the owner. Raises
    ``OSError``.
    """
    listeners: list[int] = []
    try:
        with _new_namespace():
            _raise_loopback()
            listeners += map(_listen, ports)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
            mounts.bind(_OWN, path)
            os.mkdir(devices)
            mounts.mount_devices(devices)
    except BaseException:
        close_all(listeners)
        raise
    return listeners


def enter_network(path: str) -> None:
    """Move this process, which becomes a runtime, into the namespace bound to ``path``. Raises ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        setns(descriptor, CLONE_NEWNET)
    finally:
        os.close(descriptor)


@contextmanager
def _new_namespace() -> Iterator[None]:
    own = os.open(_OWN, os.O_RDONLY)
    try:
        unshare(CLONE_NEWNET)
        try:
            yield
        finally:
            _go_back(own)
    finally:
        os.close(own)


def _go_back(own: int) -> None:
    try:
        setns(own, CLONE_NEWNET)
    except OSError as error:  # all runtimes started from now on would share a namespace with a sandbox
        raise SystemExit(f"the supervisor cannot leave the network namespace of a sandbox: {error}") from error


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, _FLAGS_OF_LOOPBACK.pack(b"lo", 0))
        _, flags = _FLAGS_OF_LOOPBACK.unpack(request)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _FLAGS_OF_LOOPBACK.pack(b"lo", flags | _IFF_UP))


def _listen(port: int) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen(_BACKLOG)
        return listener.detach()
