"""Attempts to get around the proxy: addresses, names and sockets that a sandbox should not reach."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from functools import partial
from typing import TYPE_CHECKING

from securebench.testing.provider.inside.base import SECONDS, Denied, EgressAttempt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.testing.provider.inside.base import Targets

_ROUTES = {
    "the internet": "192.0.2.1",
    "the internet by IPv6": "2001:db8::1",
    "the cloud's metadata": "169.254.169.254",
    "the cloud's metadata by IPv6": "fd00:ec2::254",
    "an engine's gateway": "172.17.0.1",
    "another sandbox": "172.17.0.2",
    "a private network": "10.0.0.1",
    "a home network": "192.168.0.1",
    "a carrier's network": "100.64.0.1",
    "a multicast group": "224.0.0.251",
}
_SERVICES = {"ssh": 22, "mail": 25, "names": 53, "web": 80, "an engine": 2375, "an engine over TLS": 2376}
_SOCKETS = ("/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/crun")
_RESOLVERS = ("127.0.0.11", "127.0.0.53", "192.0.2.53")
_SIOCGIFFLAGS, _UP, _LOOPBACK = 0x8913, 0x1, 0x8


def attempts(targets: Targets) -> Iterator[EgressAttempt]:
    """Yield the attempts."""
    for name, address in _ROUTES.items():
        yield EgressAttempt("a route to " + name, partial(_route, address))
    for address in (*targets.host, "127.0.0.1", "::1", "0.0.0.0"):
        yield EgressAttempt("connect to the host at " + address, partial(_connect, address, targets.port))
    for name, port in _SERVICES.items():
        yield EgressAttempt(f"connect to {name} on loopback", partial(_connect, "127.0.0.1", port))
    for name in (targets.allowed, targets.other, "host.docker.internal", "canary." + targets.other):
        yield EgressAttempt("resolve " + name, partial(_resolve, name))
    for address in (*_nameservers(), *_RESOLVERS, *targets.host):
        yield EgressAttempt(f"look up a name at {address} over UDP", partial(_query, address, targets.other))
    for path in _SOCKETS:
        yield EgressAttempt("connect to " + path, partial(_connect_unix, path))
    yield EgressAttempt("a raw socket", partial(_open, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
    yield EgressAttempt("a packet socket", partial(_open, socket.AF_PACKET, socket.SOCK_RAW, 0x0300))
    yield EgressAttempt("a network device", _device)


def _route(address: str) -> str:
    """Connect a datagram socket. This sends nothing, but it needs a route."""
    with socket.socket(_family(address), socket.SOCK_DGRAM) as opened:
        opened.connect((address, 443))
        return "from " + str(opened.getsockname()[0])


def _connect(address: str, port: int) -> str:
    with socket.create_connection((address, port), SECONDS):
        return "connected"


def _connect_unix(path: str) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as opened:
        opened.connect(path)
        return "connected"


def _resolve(name: str) -> str:
    return str(socket.getaddrinfo(name, 443)[0][4][0])


def _query(address: str, name: str) -> str:
    """Query a name, like a program that sends data out in DNS names."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in ("canary." + name).split("."))
    question = struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", 1, 1)
    with socket.socket(_family(address), socket.SOCK_DGRAM) as opened:
        opened.settimeout(SECONDS)
        opened.connect((address, 53))
        opened.send(question)
        opened.recv(512)
        return "answered"


def _nameservers() -> list[str]:
    try:
        with open("/etc/resolv.conf", encoding="ascii", errors="replace") as lines:
            fields = [line.split() for line in lines]
    except OSError:
        return []
    return [field[1] for field in fields if len(field) > 1 and field[0] == "nameserver"]


def _open(family: int, kind: int, protocol: int) -> str:
    with socket.socket(family, kind, protocol):
        return "opened"


def _device() -> str:
    """Return the name of a network device that is up and is not loopback. Raises :class:`Denied` if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        for _, name in socket.if_nameindex():
            answer = fcntl.ioctl(opened, _SIOCGIFFLAGS, struct.pack("16sh14x", os.fsencode(name), 0))
            flags = struct.unpack("16sh14x", answer)[1]
            if flags & _UP and not flags & _LOOPBACK:
                return name
    raise Denied("no network device other than loopback is up")


def _family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
