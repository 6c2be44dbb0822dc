"""Body data that one end of an HTTP connection has already received."""

from __future__ import annotations

import asyncio

import h11
import pytest

from securebench.egress.http_streams import HttpPeer

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def peer_after(received: bytes) -> HttpPeer:
    """Return a client that has sent a request and read the first chunk of the response body ``received``."""
    # These tests use neither the reader nor the writer.
    peer = HttpPeer(h11.CLIENT, asyncio.StreamReader.__new__(asyncio.StreamReader), None)  # type: ignore[arg-type]
    peer.connection.send(h11.Request(method="GET", target="/", headers=[("host", "api.test")]))
    peer.connection.send(h11.EndOfMessage())
    peer.connection.receive_data(HEAD + received)
    assert isinstance(peer.connection.next_event(), h11.Response)
    assert peer.connection.next_event() == h11.Data(data=b"one ", chunk_start=True, chunk_end=True)
    return peer


def test_what_has_arrived_comes_together() -> None:
    """``arrived`` joins all received chunks, and reports whether the end of the body was received."""
    chunks = b"4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n"
    assert peer_after(chunks).arrived() == (b"two three", False)
    assert peer_after(chunks + b"0\r\n\r\n").arrived() == (b"two three", True)
    assert peer_after(b"4\r\none \r\n").arrived() == (b"", False)


def test_data_before_an_error_is_not_lost() -> None:
    """A malformed chunk raises an error only after the valid data before it was returned."""
    peer = peer_after(b"4\r\none \r\n4\r\ntwo \r\nnonsense\r\n")
    assert peer.arrived() == (b"two ", False)
    with pytest.raises(h11.RemoteProtocolError):
        peer.connection.next_event()
