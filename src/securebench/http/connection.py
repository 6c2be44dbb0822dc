"""One GET request over one connection.

Import this module only when it is needed: loading urllib3 takes a tenth of a second.
"""

from __future__ import annotations

import email.utils
import http.client
import ssl
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import unquote, urlsplit

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, LocationParseError
from urllib3.exceptions import TimeoutError as Urllib3TimeoutError
from urllib3.util import make_headers

from securebench import __version__
from securebench.http.errors import StatusError, TooLargeError, UnreachableError

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping

    from urllib3.response import HTTPResponse

    from securebench.http.address import Address
    from securebench.http.timeouts import Deadline

_PIECE: Final = 256 * 1024
_SUCCESS: Final = frozenset({200, 206})
_BUSY: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which a request is retried."""


class Response:
    """The response to one request. Its body has not been read yet. The caller closes the response."""

    def __init__(self, connection: _Connection, response: HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self.status = response.status

    def header(self, name: str) -> str:
        """Return a header's value, joined by commas if it is repeated, or an empty string."""
        return str(self._response.headers.get(name, ""))

    def pieces(self) -> Iterator[bytes]:
        """Yield the body in pieces as they arrive. Raises :class:`UnreachableError` and :class:`DeadlineError`."""
        while True:
            with _explained(self._connection.deadline):
                piece = self._response.read1(_PIECE)
            if not piece:
                # The end of a body without a length looks the same as a connection that the deadline shut down.
                self._connection.deadline.check()
                return
            yield piece

    def read(self, limit: int) -> bytes:
        """Return the body. Raises :class:`TooLargeError` above ``limit`` bytes, and the errors of :meth:`pieces`."""
        data = bytearray()
        for piece in self.pieces():
            data += piece
            if len(data) > limit:
                raise TooLargeError(f"got more than {limit} bytes")
        return bytes(data)

    def checked(self) -> Self:
        """Return this response if its status is 200 or 206. Otherwise close it and raise an error.

        The error is :class:`UnreachableError` if the server is busy, and :class:`StatusError` for any other status.
        """
        if self.status in _SUCCESS:
            return self
        self.close()
        reason = f"HTTP status {self.status} {http.client.responses.get(self.status, '')}".rstrip()
        if self.status in _BUSY:
            raise UnreachableError(reason, retry_after=_seconds(self.header("Retry-After")))
        raise StatusError(reason, self.status)

    def close(self) -> None:
        """Close the connection."""
        self._response.close()
        self._connection.hang_up()


class _Connection(HTTPConnection):
    """A connection that the deadline can interrupt at any time after its TCP socket is connected."""

    deadline: Deadline
    _handle: socket.socket | None = None

    def _new_conn(self) -> socket.socket:
        connection = super()._new_conn()
        self._handle = self.deadline.watch(connection)
        return connection

    def hang_up(self) -> None:
        # This cannot be part of close(), which http.client calls before the body is read.
        self.close()
        if self._handle is not None:
            self.deadline.forget(self._handle)


class _TlsConnection(_Connection, HTTPSConnection):
    pass


def get(address: Address, headers: Mapping[str, str], deadline: Deadline, proxy: str) -> Response:
    """Send one GET request, through the proxy at the URL ``proxy`` unless that is empty; do not follow redirects.

    Return the response, whatever its status. Raises :class:`UnreachableError` and :class:`DeadlineError`.
    """
    deadline.check()
    host, port, login = _parsed(proxy) if proxy else (address.host, address.port, {})
    target, timeout = address.path, deadline.timeouts.connect
    if address.scheme == "https":
        # The default context trusts the system's CAs, or those in SSL_CERT_FILE and SSL_CERT_DIR.
        connection: _Connection = _TlsConnection(host, port, timeout=timeout, ssl_context=ssl.create_default_context())
        if proxy:
            connection.set_tunnel(address.host, address.port, login)
            login = {}  # the login is for the proxy, not for the server behind it
    else:
        connection = _Connection(host, port, timeout=timeout)
        if proxy:
            target = f"{address.origin}{target}"
    connection.deadline = deadline
    try:
        with _explained(deadline):
            connection.connect()
            connection.timeout = deadline.timeouts.read
            sent = {"User-Agent": f"securebench/{__version__}", "Connection": "close", **login, **headers}
            connection.request("GET", target, headers=sent, preload_content=False, decode_content=False)
            return Response(connection, connection.getresponse())
    except BaseException:
        connection.hang_up()
        raise


def _parsed(proxy: str) -> tuple[str, int, dict[str, str]]:
    """Return a proxy's host, port, and the headers that authenticate the user there."""
    try:
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
        host, port = parts.hostname, parts.port or 80
    except ValueError:
        host = None
    if not host:
        raise UnreachableError("the proxy's address is invalid")
    login = None if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return host, port, dict(make_headers(proxy_basic_auth=login))


@contextmanager
def _explained(deadline: Deadline) -> Iterator[None]:
    """Turn everything that a failing connection raises into :class:`UnreachableError` or :class:`DeadlineError`."""
    try:
        yield
    except (OSError, http.client.HTTPException, HTTPError, UnicodeError) as error:
        deadline.check()  # a connection that the deadline shut down looks like a broken one
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise UnreachableError(_reason(cause), untrusted=isinstance(cause, ssl.SSLCertVerificationError)) from error


def _reason(error: BaseException) -> str:
    if isinstance(error, (TimeoutError, Urllib3TimeoutError)):
        return "timed out"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, (LocationParseError, UnicodeError)):
        return "the host name is invalid"
    if isinstance(error, OSError):
        return error.strerror or str(error) or "the connection broke"
    if isinstance(error, http.client.HTTPException):
        return "the response is not valid HTTP"
    return "the connection broke"


def _seconds(retry_after: str) -> float | None:
    """Return the seconds that a ``Retry-After`` value (number or date) asks for; ``None`` if it is empty or invalid."""
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
