"""Whatever a server sends: an answer, or an error of ours, soon."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulling import AMD64, MemorySink
from securebench.errors import ImageError
from securebench.images.registry import Timeouts, ask, fetch_image

if TYPE_CHECKING:
    from collections.abc import Iterator

ONE_TRY = Timeouts(connect=2, read=0.3, total=5, attempts=1, pause=0.01)

OK = b"HTTP/1.1 200 OK\r\n"
ODD = [
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
    OK + b"Content-Length: -5\r\n\r\n{}",
    OK + b"Content-Length: 99999999999999999999\r\n\r\n{}",
    OK + b"Content-Length: 2\r\nContent-Length: 1\r\n\r\n{}",
    OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
    OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    OK + b"\xff\xfe: \xff\r\n\r\n{}",
    b"HTTP/1.1 307 x\r\nLocation: \xff\xfe\r\n\r\n",
    b"HTTP/1.1 307 x\r\nLocation: /\r\nLocation: /x\r\n\r\n",
    b'HTTP/1.1 401 x\r\nWWW-Authenticate: Bearer realm="https://' + b"a" * 300 + b'/"\r\n\r\n',
    b"HTTP/1.1 401 x\r\nWWW-Authenticate: " + b"Bearer " * 5000 + b"\r\n\r\n",
]


class RawServer:
    """Sends one thing to whoever connects, and hangs up."""

    def __init__(self) -> None:
        self.answer = b""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.recv(65536)
                    connection.sendall(self.answer)
                    connection.shutdown(socket.SHUT_WR)
                    connection.settimeout(1)
                    connection.recv(65536)
                except OSError:
                    continue

    def close(self) -> None:
        """Stop."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()


@pytest.fixture(scope="module")
def server() -> Iterator[RawServer]:
    """Give a server that is no registry."""
    made = RawServer()
    yield made
    made.close()


def told(server: RawServer, answer: bytes) -> ImageError:
    """Return the error that a download ends with."""
    server.answer = answer
    started = time.monotonic()
    with pytest.raises(ImageError) as raised:
        fetch_image(f"{server.host}/base:1", MemorySink(), lambda _: None, AMD64, ONE_TRY)
    assert time.monotonic() - started < 20
    return raised.value


@pytest.mark.parametrize("answer", ODD, ids=lambda answer: repr(answer[:40]))
def test_an_odd_answer_is_an_error_of_ours(server: RawServer, answer: bytes) -> None:
    """J19: what is no HTTP, cut, doubled, endless or mistyped never raises anything else, and never hangs."""
    assert told(server, answer).code in {"registry-unreachable", "registry-answer-invalid", "registry-denied"}


@given(
    st.lists(
        st.sampled_from([OK, b"HTTP/1.1 ", b"307 x\r\n", b"\r\n", b"Location: ", b"Content-Length: 5\r\n"])
        | st.binary(max_size=20),
        max_size=8,
    )
)
def test_any_bytes_are_an_error_of_ours(server: RawServer, pieces: list[bytes]) -> None:
    """Nothing that a server can send raises anything but an error of ours."""
    assert told(server, b"".join(pieces)).code


def test_a_registry_that_answers_is_told_from_one_that_does_not(server: RawServer) -> None:
    """Any answer of HTTP is one: a 401 is what registries usually say."""
    server.answer = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
    ask(server.host, ONE_TRY)
    for answer in (b"", b"SSH-2.0-OpenSSH_9.2\r\n"):
        server.answer = answer
        with pytest.raises(ImageError) as raised:
            ask(server.host, ONE_TRY)
        assert raised.value.code == "registry-unreachable"
