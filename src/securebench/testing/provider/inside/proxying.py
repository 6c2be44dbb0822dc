"""Attempts to make the proxy connect to forbidden destinations."""

from __future__ import annotations

import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING

from securebench.testing.provider.inside.base import SECONDS, Denied, EgressAttempt, judged, send

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.testing.provider.inside.base import Targets

_LITERALS = (
    "localhost",
    "127.0.0.1",
    "127.0.0.1.",
    "127.1",
    "0.0.0.0",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "017700000001",
    "\uff11\uff12\uff17.0.0.1",
    "127\u30020\u30020\u30021",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "[fe80::1%25lo]",
    "[fd00:ec2::254]",
    "[ff02::1]",
    "169.254.169.254",
    "metadata.google.internal",
    "host.docker.internal",
    "10.0.0.1",
    "172.17.0.1",
    "192.168.0.1",
    "100.64.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "255.255.255.255",
)
_DISGUISES = (
    "{other}",
    "{allowed}.{other}",
    "not{allowed}",
    "{allowed}@{other}",
    "{other}@{allowed}",
    "{other}#@{allowed}",
    "{other}\\@{allowed}",
    "{other}/{allowed}",
    "{other}?{allowed}",
    "{other}%00.{allowed}",
    "{other}\0.{allowed}",
    "{other}%2e{allowed}",
    "{other}\t{allowed}",
    ".{allowed}",
    "{allowed}..",
    "*.{allowed}",
    "xn--{allowed}",
    "\u0430{allowed}",
    "",
)
_ALERT = b"\x15\x03"
"""The start of a TLS alert, which rejects a handshake."""
_PORTS = (
    "0",
    "22",
    "25",
    "53",
    "2375",
    "3128",
    "8443",
    "65979",
    "-443",
    "+443",
    " 443",
    "443a",
    "443:22",
    "\uff14\uff14\uff13",
    "",
)


def attempts(targets: Targets) -> Iterator[EgressAttempt]:
    """Yield the attempts, or nothing if the sandbox has no proxy."""
    proxy = targets.proxy
    if proxy is None:
        return
    names = {"allowed": targets.allowed, "other": targets.other}
    yield EgressAttempt("control: CONNECT to the allowed host", partial(_connect, proxy, targets.allowed + ":443"))
    for host in (*_LITERALS, *targets.host, *(disguise.format(**names) for disguise in _DISGUISES)):
        yield EgressAttempt(f"CONNECT to {host!r}", partial(_connect, proxy, host + ":443"))
    for address in targets.host:
        yield EgressAttempt(f"CONNECT to the host at {address}", partial(_connect, proxy, f"{address}:{targets.port}"))
    for port in _PORTS:
        yield EgressAttempt(f"CONNECT to port {port!r}", partial(_connect, proxy, f"{targets.allowed}:{port}"))
    yield EgressAttempt("CONNECT without a port", partial(_connect, proxy, targets.allowed))
    for name in (targets.other, targets.allowed + "." + targets.other, None):
        what = f"TLS for {name}" if name else "TLS without a server name"
        yield EgressAttempt(f"{what} through the allowed host", partial(_front, targets, name))
    for what, first in _NO_TLS.items():
        yield EgressAttempt(f"{what} through the allowed host", partial(_tunnel, targets, first))
    for what, message in _messages(targets).items():
        yield EgressAttempt(what, partial(_ask, proxy, message))
    yield EgressAttempt("a second request to another host", partial(_second, targets))


_NO_TLS = {
    "plain HTTP": b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    "SSH": b"SSH-2.0-OpenSSH_9.0\r\n",
    "zeros": bytes(512),
    "a record that never ends": b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03" + bytes(64),
}


def _messages(targets: Targets) -> dict[str, bytes]:
    """Return forbidden or invalid requests for the proxy. The keys say what is wrong with each request."""
    allowed, other = targets.allowed, targets.other
    hidden = f"GET http://{other}/ HTTP/1.1\r\nHost: {other}\r\n\r\n"
    return {
        "plain HTTP to another host": _get(f"http://{other}/", other),
        "plain HTTP to the host": _get(f"http://{targets.host[0]}:{targets.port}/", allowed),
        "plain HTTP to metadata": _get("http://169.254.169.254/latest/meta-data/", "169.254.169.254"),
        "plain HTTP with another Host": _get(f"http://{allowed}/", other),
        "plain HTTP with two Hosts": _get(f"http://{allowed}/", f"{allowed}\r\nHost: {other}"),
        "plain HTTP with a user": _get(f"http://{allowed}@{other}/", other),
        "plain HTTP to another port": _get(f"http://{allowed}:22/", allowed),
        "plain HTTP for https": _get(f"https://{allowed}/", allowed),
        "plain HTTP for ftp": _get(f"ftp://{allowed}/", allowed),
        "plain HTTP for a file": _get("file:///etc/passwd", allowed),
        "a path without a host": _get("/", other),
        "a WebSocket": _get(f"http://{allowed}/", allowed + "\r\nUpgrade: websocket\r\nConnection: Upgrade"),
        "HTTP/2 to the proxy": _NO_TLS["HTTP/2"],
        "a line end in the target": f"CONNECT {allowed}:443\r\nX: {other}:443 HTTP/1.1\r\n\r\n".encode(),
        "two lengths": _get(f"http://{allowed}/", f"{allowed}\r\nContent-Length: 4\r\nContent-Length: 40"),
        "a length and chunks": _get(
            f"http://{allowed}/", f"{allowed}\r\nContent-Length: {len(hidden)}\r\nTransfer-Encoding: chunked", hidden
        ),
        "a head without an end": b"GET http://" + allowed.encode() + b"/ HTTP/1.1\r\nX: " + b"x" * 300_000,
    }


def _get(target: str, host: str, body: str = "") -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n{body}".encode()


def _connect(proxy: tuple[str, int], target: str) -> str:
    return judged(send(proxy, f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())[0])


def _ask(proxy: tuple[str, int], message: bytes) -> str:
    return judged(send(proxy, message)[0])


def _tunnelled(targets: Targets) -> socket.socket:
    """Return a connection through the proxy to the allowed host. Raises :class:`Denied`."""
    assert targets.proxy is not None
    connection = socket.create_connection(targets.proxy, SECONDS)
    try:
        connection.sendall(f"CONNECT {targets.allowed}:443 HTTP/1.1\r\nHost: {targets.allowed}:443\r\n\r\n".encode())
        judged(connection.recv(65536))
    except BaseException:
        connection.close()
        raise
    return connection


def _front(targets: Targets, name: str | None) -> str:
    """Do a TLS handshake for ``name`` in a tunnel to the allowed host. ``None`` means without a server name.

    Any certificate is accepted.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with _tunnelled(targets) as connection, context.wrap_socket(connection, server_hostname=name) as opened:
        return str(opened.version())


def _tunnel(targets: Targets, first: bytes) -> str:
    """Send ``first``, which is not a complete TLS handshake, through a tunnel."""
    with _tunnelled(targets) as connection:
        connection.sendall(first)
        answer = connection.recv(1024)
    if not answer or answer.startswith(_ALERT):
        raise Denied("TLS alert" if answer else "closed")
    return f"answered {answer[:40]!r}"


def _second(targets: Targets) -> str:
    """Request the allowed host, and then a forbidden host over the same connection.

    A closed connection counts as a denial.
    """
    assert targets.proxy is not None
    first = _get(f"http://{targets.allowed}/", targets.allowed)
    return judged(send(targets.proxy, first, _get(f"http://{targets.other}/", targets.other))[1])
