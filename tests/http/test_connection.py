"""Any response, even one that is not HTTP, soon results in a body or an ``HttpError``."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.http.address import parse_address
from securebench.http.client import HttpClient
from securebench.http.errors import HttpError
from securebench.http.timeouts import Deadline, Timeouts

if TYPE_CHECKING:
    from collections.abc import Iterator

ONE_TRY = Timeouts(connect=2, read=0.3, total=5, attempts=1, pause=0.01)

OK = b"HTTP/1.1 200 OK\r\n"
BROKEN = [
    b"",
    b"\r\n",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"HTTP/1.1\r\n\r\n",
    b"HTTP/1.1 abc OK\r\n\r\n",
    b"HTTP/1.1 99 Low\r\n\r\n",
    b"HTTP/1.1 999 High\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" * 50,
    OK + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    OK + b"X: a\r\n" * 200 + b"\r\n",
    OK + b"Content-Length: 99999999999999999999\r\n\r\n{}",
    OK + b"Content-Length: 5\r\nContent-Length: 1\r\n\r\n{}",
    OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
    OK + b"Content-Length: 200000\r\n\r\n" + b"a" * 200_000,
    OK + b"\r\n" + b"a" * 200_000,
    b"HTTP/1.1 307 x\r\nLocation: \xff\xfe\r\n\r\n",
    b"HTTP/1.1 307 x\r\nLocation: /\r\nLocation: /x\r\n\r\n",
]
ODD = [
    OK + b"Content-Length: -5\r\n\r\n{}",
    OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    OK + b"\xff\xfe: \xff\r\n\r\n{}",
]


class RawServer:
    """A server that sends ``answer`` to each client and closes the connection."""

    def __init__(self) -> None:
        self.answer = b""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}/"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(self.answer)
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(1)
                connection.recv(65536)

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()


@pytest.fixture(scope="module")
def raw() -> Iterator[RawServer]:
    """Yield a server that sends any bytes, also those that are not HTTP."""
    made = RawServer()
    yield made
    made.close()


def read(raw: RawServer, answer: bytes) -> bytes:
    """Return the body that a client reads from the response ``answer``, within 20 seconds."""
    raw.answer = answer
    started = time.monotonic()
    try:
        return HttpClient(Deadline(ONE_TRY)).read(parse_address(raw.url), 100_000)[0]
    finally:
        assert time.monotonic() - started < 20


@pytest.mark.parametrize("answer", BROKEN, ids=lambda answer: repr(answer[:60]))
def test_a_broken_response_is_an_error(raw: RawServer, answer: bytes) -> None:
    """J19: a response that is incomplete, contradictory, too long or not HTTP is an error. The client does not hang."""
    with pytest.raises(HttpError):
        read(raw, answer)


@pytest.mark.parametrize("answer", ODD, ids=lambda answer: repr(answer[:60]))
def test_an_odd_response_is_read_as_it_is(raw: RawServer, answer: bytes) -> None:
    """H14: a body is never decompressed. It is read even if a header is invalid. Its chunks are joined."""
    assert read(raw, answer) == b"{}"


@given(
    st.lists(
        st.sampled_from([OK, b"HTTP/1.1 ", b"307 x\r\n", b"\r\n", b"Location: ", b"Content-Length: 5\r\n"])
        | st.binary(max_size=20),
        max_size=8,
    )
)
def test_any_bytes_are_a_body_or_an_error(raw: RawServer, pieces: list[bytes]) -> None:
    """Whatever bytes a server sends, no error other than an ``HttpError`` is raised."""
    with suppress(HttpError):
        read(raw, b"".join(pieces))
