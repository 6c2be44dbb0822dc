"""Servers on loopback that stand in for the Internet, and forwarded ports into a gateway."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from securebench.egress.gateway import Gateway
from securebench.egress.rules import ProxyRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from securebench.egress.gateway import EgressSession
    from securebench.egress.rules import Caps
    from securebench.resources import JsonValue

SECONDS = 10.0
"""Seconds that a test waits for data that should arrive at once."""

HOST = "api.example.test"


def echo(connection: socket.socket) -> None:
    """Send back all received data, until the peer stops sending."""
    while data := connection.recv(65536):
        connection.sendall(data)


def hello_world(connection: socket.socket) -> None:
    """Answer one HTTP request with a body that repeats the head of the request."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += connection.recv(65536) or b"\r\n\r\n"
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(head), head))


class LoopbackServer:
    """A TCP server on 127.0.0.1; with ``context``, it uses TLS. It handles each connection on its own thread."""

    def __init__(self, handle: Callable[[socket.socket], None], context: ssl.SSLContext | None = None) -> None:
        self._handle = handle
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            if self._context is None:
                self._handle(connection)
                return
            with self._context.wrap_socket(connection, server_side=True) as secured:
                self._handle(secured)


def tls_contexts(names: Sequence[str]) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return two TLS contexts: for a server with a new certificate for ``names``, and for a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0] if names else "localhost")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(one) for one in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:  # load_cert_chain reads keys from files only
        file.write(private + certificate)
        file.flush()
        server.load_cert_chain(file.name)
    return server, ssl.create_default_context(cadata=certificate.decode("ascii"))


@dataclass
class EgressWorld:
    """A gateway, its log, and the servers that the names of :func:`world` lead to.

    ``tls`` is the server behind port 443, ``plain`` the one behind port 80. ``trust`` is the TLS context of a client
    that trusts the certificate of ``tls``.
    """

    gateway: Gateway
    log: list[Mapping[str, JsonValue]]
    tls: LoopbackServer
    plain: LoopbackServer
    trust: ssl.SSLContext

    def decisions(self, lines: int = 1, task_id: str = "task") -> list[tuple[JsonValue, JsonValue]]:
        """Wait until at least ``lines`` decisions for a task are logged. Return each decision with its reason.

        Raises ``AssertionError`` if that takes too long.
        """
        deadline = time.monotonic() + SECONDS
        while True:
            found = [(line["decision"], line["reason"]) for line in tuple(self.log) if line["task_id"] == task_id]
            if len(found) >= lines:
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.005)


@contextmanager
def world(
    *names: str,
    tls: Callable[[socket.socket], None] = echo,
    plain: Callable[[socket.socket], None] = hello_world,
    caps: Caps | None = None,
    addresses: Mapping[str, tuple[str, ...]] | None = None,
    bare: bool = False,
) -> Iterator[EgressWorld]:
    """Yield a gateway and two servers that ``names`` lead to. ``addresses`` maps other names to addresses.

    ``tls`` and ``plain`` handle the connections to port 443 and to port 80. With ``bare``, the server behind port 443
    does not use TLS. ``caps`` are the limits of the proxy, by default those of a run.
    """
    context, trust = tls_contexts(names)
    log: list[Mapping[str, JsonValue]] = []
    with ExitStack() as stack:
        secure, open_to_all = LoopbackServer(tls, None if bare else context), LoopbackServer(plain)
        stack.callback(secure.close)
        stack.callback(open_to_all.close)
        found = {**dict.fromkeys(names, ("127.0.0.1",)), **(addresses or {})}
        ports = {443: secure.port, 80: open_to_all.port}
        rules = ProxyRules(names=found, ports=ports, trusted=("127.0.0.1/32",))
        gateway = Gateway(log.append, rules=rules, caps=caps)
        stack.callback(gateway.close)
        yield EgressWorld(gateway, log, secure, open_to_all, trust)


def port_of(session: EgressSession, index: int = 0) -> int:
    """Serve a forwarded port of ``session`` on a local port of this machine, and return the local port."""
    listener = socket.create_server(("127.0.0.1", 0))
    port: int = listener.getsockname()[1]
    session.forwarded_ports[index].serve(listener)
    return port


def ask(port: int, request: bytes) -> bytes:
    """Send ``request`` to a proxy, and return all data that the proxy sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        connection.sendall(request)
        return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """Return all data until the connection ends or is reset."""
    pieces = []
    with suppress(ConnectionError, ssl.SSLError):
        while piece := connection.recv(65536):
            pieces.append(piece)
    return b"".join(pieces)


def connected(port: int, target: str = f"{HOST}:443") -> socket.socket:
    """Return a connection to ``target`` through a tunnel of the proxy at ``port``.

    Raises ``AssertionError`` if the proxy refuses the tunnel.
    """
    connection = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
    connection.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += connection.recv(1) or b"\r\n\r\n"
    assert head.startswith(b"HTTP/1.1 200 "), head
    return connection


def secured(port: int, trust: ssl.SSLContext, host: str = HOST, name: str | None = None) -> ssl.SSLSocket:
    """Return a TLS connection through a proxy's tunnel to ``host``. ``name`` is the server name (default: ``host``)."""
    return trust.wrap_socket(connected(port, f"{host}:443"), server_hostname=name or host)
