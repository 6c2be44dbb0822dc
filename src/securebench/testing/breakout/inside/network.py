"""Attempts to break out through the network. Except for a DNS query, nothing is sent to other machines."""

from __future__ import annotations

import fcntl
import functools
import os
import socket
import struct

from securebench.testing.breakout.inside.base import BreakoutAttempt, Host, Stopped, add, attempt, syscall

_SECONDS = 2.0
_SIOCSIFADDR, _SIOCSIFFLAGS = 0x8916, 0x8914
_AF_VSOCK, _ANY_CID = 40, 0xFFFFFFFF
_NETLINK_AUDIT = 9
_ROUTED = {
    "the internet": ("192.0.2.1", "sends the sandbox's data to another machine"),
    "the internet by IPv6": ("2001:db8::1", "sends the sandbox's data to another machine"),
    "the cloud's metadata": ("169.254.169.254", "reads the machine's credentials"),
    "the cloud's metadata by IPv6": ("fd00:ec2::254", "reads the machine's credentials"),
    "an engine's gateway": ("172.17.0.1", "reaches services of the host"),
    "a neighbour on a private network": ("10.0.0.1", "reaches services near the host"),
}


def _route(address: str, _host: Host) -> str:
    """Connect a datagram socket to ``address``. This needs a route, but no data is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as opened:
        opened.connect((address, 80))
        return "from " + str(opened.getsockname()[0])


for _name, (_address, _means) in _ROUTED.items():
    add(BreakoutAttempt(f"find a route to {_name}", _means, "J03", functools.partial(_route, _address)))


@attempt("reach a server on the host's loopback or any address of the host", "reaches services of the host", "J01")
def _host_server(host: Host) -> str:
    last: Exception = Stopped("no address")
    for address in host.addresses:
        try:
            socket.create_connection((address, host.port), timeout=_SECONDS).close()
        except OSError as error:
            last = error
        else:
            return address
    raise last


@attempt("reach an abstract socket of the host", "reaches services of the host", "I20")
def _abstract(host: Host) -> None:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.connect("\0" + host.abstract)


@attempt("reach a container engine's socket", "becomes root on the host through the engine", "I01")
def _engine(_host: Host) -> str:
    last: Exception = Stopped("not found")
    for path in (
        "/var/run/docker.sock",
        "/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/podman/podman.sock",
    ):
        with socket.socket(socket.AF_UNIX) as opened:
            try:
                opened.connect(path)
            except OSError as error:
                last = error
            else:
                return path
    raise last


@attempt("resolve a name", "sends the sandbox's data to another machine in DNS names", "J04")
def _resolve(_host: Host) -> str:
    try:
        return str(socket.getaddrinfo("example.com", 80)[0][4][0])
    except socket.gaierror:
        raise Stopped("not resolved") from None


@attempt("open a packet socket", "reads the traffic of other sandboxes", "I18")
def _packet(_host: Host) -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()


@attempt("open a raw socket", "forges traffic", "I18")
def _raw(_host: Host) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()


@attempt("open a socket to the hypervisor (`AF_VSOCK`)", "reaches the hypervisor", "I20", surface=True)
def _vsock(_host: Host) -> None:
    with socket.socket(_AF_VSOCK, socket.SOCK_STREAM) as opened:
        opened.bind((_ANY_CID, _ANY_CID))


@attempt(
    "open a socket to the hypervisor (`AF_VSOCK` with a high bit that the kernel ignores)",
    "reaches the hypervisor",
    "I20",
)
def _vsock_of_64_bits(_host: Host) -> None:
    os.close(syscall("socket", 1 << 32 | _AF_VSOCK, int(socket.SOCK_STREAM), 0))


@attempt("listen to the host's audit log through netlink", "learns of events on the host", "I20")
def _audit(_host: Host) -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_AUDIT) as opened:
        opened.bind((0, 1))


@attempt("find an interface other than loopback", "sends data to other machines", "J03")
def _interface(_host: Host) -> str:
    others = [name for _number, name in socket.if_nameindex() if name != "lo"]
    with_address = [name for name in others if _is_up(name)]
    if with_address:
        return ", ".join(with_address)
    raise Stopped("none")


def _is_up(name: str) -> bool:
    with open(f"/sys/class/net/{name}/flags") as file:
        return bool(int(file.read(), 16) & 1)


@attempt("give an interface another address", "changes the sandbox's network", "I18")
def _address_interface(_host: Host) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        request = struct.pack("16sH2s4s8s", b"lo", socket.AF_INET, b"\0" * 2, socket.inet_aton("192.0.2.7"), b"\0" * 8)
        fcntl.ioctl(opened, _SIOCSIFADDR, request)


@attempt("change the routing through `/proc/sys/net`", "changes the sandbox's network", "I18")
def _forwarding(_host: Host) -> None:
    os.close(os.open("/proc/sys/net/ipv4/conf/all/route_localnet", os.O_WRONLY))
