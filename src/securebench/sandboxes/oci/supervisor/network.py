"""A network namespace of a cell, made before its runtime starts: loopback, and sockets in it on which others listen.

The supervisor has a network namespace of its own, which it never uses: so it may always go back to it, also in the user
namespace of an ordinary user, and no runtime is ever started where the host's network is.
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
"""The kernel's ``ifreq`` with flags: a name, and room for the largest of its kinds."""
_BACKLOG = 128


def make_network(ports: list[int], place: str, devices: str) -> list[int]:
    """Make a network namespace with loopback alone, and return a listening socket a port, each on its 127.0.0.1.

    The namespace is bound to the new file ``place``. What the kernel shows of its devices is mounted, read-only, at the
    new directory ``devices``: only who owns the namespace can, and the sandbox does not. Raises ``OSError``.
    """
    listeners: list[int] = []
    try:
        with _new_namespace():
            _raise_loopback()
            listeners += map(_listen, ports)
            os.close(os.open(place, os.O_CREAT | os.O_EXCL, 0o600))
            mounts.bind(_OWN, place)
            os.mkdir(devices)
            mounts.mount_devices(devices)
    except BaseException:
        close_all(listeners)
        raise
    return listeners


def enter_network(place: str) -> None:
    """Let this process, which becomes a runtime, enter the namespace that is bound to ``place``. Raises ``OSError``."""
    descriptor = os.open(place, os.O_RDONLY)
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
    except OSError as error:  # whatever were started from now on would share a namespace with a sandbox
        raise SystemExit(f"the supervisor cannot leave the network namespace of a sandbox: {error}") from error


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        request = fcntl.ioctl(asking, _SIOCGIFFLAGS, _FLAGS_OF_LOOPBACK.pack(b"lo", 0))
        _, flags = _FLAGS_OF_LOOPBACK.unpack(request)
        fcntl.ioctl(asking, _SIOCSIFFLAGS, _FLAGS_OF_LOOPBACK.pack(b"lo", flags | _IFF_UP))


def _listen(port: int) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen(_BACKLOG)
        return listener.detach()
