"""One GET over one connection, every wait of which ends. The only place that opens connections to registries."""

from __future__ import annotations

import base64
import http.client
import io
import ssl
import time
import urllib.request
from typing import TYPE_CHECKING, Final, Self, cast
from urllib.parse import unquote, urlsplit

from securebench import __version__

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from _typeshed import WriteableBuffer

    from securebench.images.registry.address import Address
    from securebench.images.registry.patience import Deadline

BROKEN: Final = (OSError, http.client.HTTPException)
"""What a connection that fails raises, at any point. Timeouts and TLS errors are among them."""

_PIECE: Final = 256 * 1024
_TICK: Final = 0.25
"""Seconds after which a silent connection looks whether the download is to end."""


class Answer:
    """The answer to one request: its header has come, its body is still to be read. A context manager."""

    def __init__(self, connection: socket.socket, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self.status = response.status

    def header(self, name: str) -> str:
        """Return a header's value, all of them where it stands several times, or an empty text."""
        return ", ".join(self._response.headers.get_all(name, ()))

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it comes, to where the connection ends: whole or not. Raises :data:`BROKEN`."""
        while piece := self._response.read1(_PIECE):
            yield piece

    def body(self, limit: int) -> bytes | None:
        """Return the whole body, or ``None`` if it is larger than ``limit`` bytes. Raises :data:`BROKEN`."""
        data = bytearray()
        for piece in self.pieces():
            data += piece
            if len(data) > limit:
                return None
        if self._response.length:
            raise http.client.IncompleteRead(b"", self._response.length)
        return bytes(data)

    def close(self) -> None:
        """Let go of the connection, wherever it is."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def get(address: Address, headers: Mapping[str, str], deadline: Deadline) -> Answer:
    """Ask for ``address`` over a new connection. Raises :data:`BROKEN`, and what ``deadline`` raises."""
    deadline.check()
    connection = _opened(address, deadline)
    line = connection.sock
    connection.sock = cast("socket.socket", _Line(line, deadline))
    try:
        connection.request("GET", address.path, headers={"User-Agent": f"securebench/{__version__}", **headers})
        return Answer(line, connection.getresponse())
    except BaseException:
        line.close()
        raise


def _opened(address: Address, deadline: Deadline) -> http.client.HTTPConnection:
    connection = _connection(address, deadline.timeouts.connect)
    try:
        connection.connect()
    except UnicodeError:
        connection.close()
        raise OSError("that is not the name of a host") from None
    except BaseException:
        connection.close()
        raise
    return connection


def _connection(address: Address, timeout: float) -> http.client.HTTPConnection:
    if address.scheme == "http":
        return http.client.HTTPConnection(address.host, address.port, timeout=timeout)
    context = ssl.create_default_context()
    proxy = None if urllib.request.proxy_bypass(address.host) else urllib.request.getproxies().get("https")
    if not proxy:
        return http.client.HTTPSConnection(address.host, address.port, timeout=timeout, context=context)
    host, port, headers = _proxy(proxy)
    connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
    connection.set_tunnel(address.host, address.port, headers)
    return connection


def _proxy(url: str) -> tuple[str, int, dict[str, str]]:
    """Return the host, the port and the headers of the environment's proxy."""
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        port = parts.port or 80
    except ValueError:
        raise OSError("the proxy's address in the environment is not one") from None
    if parts.username is None:
        return parts.hostname or "", port, {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return parts.hostname or "", port, {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


class _Line:
    """A connection as ``http.client`` needs it, and whose reads end: the library knows no limit for a whole answer."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        self._connection = connection
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._connection.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._connection, self._deadline), _PIECE)

    def close(self) -> None:
        """Leave the connection open: the library closes its side of it while the body is still to be read."""


class _Reader(io.RawIOBase):
    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        super().__init__()
        self._connection = connection
        self._deadline = deadline
        connection.settimeout(min(_TICK, deadline.timeouts.read))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        silent_from = time.monotonic()
        while True:
            self._deadline.check()
            try:
                return self._connection.recv_into(buffer)
            except TimeoutError:
                if time.monotonic() - silent_from >= self._deadline.timeouts.read:
                    raise
