"""How the client with which SecureBench itself asks a model, through a relay, reads complete and incomplete answers."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from securebench.harnesses.provider import relay_client
from securebench.harnesses.provider.relay_client import RelayClient

if TYPE_CHECKING:
    from collections.abc import Callable

BODY = b'{"a": 1}'


class OneAnswer:
    """A session with one forwarded port, which sends a fixed answer to one connection."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.forwarded_ports = (self,)

    def on_death(self, call: Callable[[], None]) -> None:
        """Ignore ``call``: this gateway does not die."""

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def serve(self, listener: socket.socket) -> None:
        """Answer one connection."""

        def answer() -> None:
            with listener, listener.accept()[0] as connection:
                connection.sendall(self._answer)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):  # closing with an unread request would reset the connection
                    pass

        threading.Thread(target=answer, daemon=True).start()


def post(answer: bytes) -> tuple[int, bytes]:
    """Return the status and the data that the client returns if the relay sends ``answer``."""
    session: Any = OneAnswer(answer)
    client = RelayClient(session, lambda: None, timeout=10)
    try:
        got = client.post("/x", {}, {})
    finally:
        client.close()
    return got.status, got.data


def head(length: int) -> bytes:
    """Return the head of an answer that announces ``length`` bytes."""
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (head(8) + BODY, (200, BODY)),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n" + BODY + b"\r\n0\r\n\r\n", (200, BODY)),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n" + BODY + b"\r\n", (0, b"")),
        (head(9) + BODY, (0, b"")),
        (head(100) + bytes(100), (0, b"")),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(100), (0, b"")),
        (b"", (0, b"")),
    ],
    ids=["whole", "in chunks", "a chunk is missing", "a byte is missing", "too long", "too long without end", "none"],
)
def test_only_a_whole_answer_has_a_status(
    answer: bytes, got: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C04: an incomplete or too long answer has the status 0, so that it is not taken for an answer of the model."""
    monkeypatch.setattr(relay_client, "MAX_ANSWER", 50)
    assert post(answer) == got
