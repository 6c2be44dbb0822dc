"""How a driver and its keeper speak."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from securebench.sandboxes.oci.wire import pack_report, receive_frame, send_frame, unpack_report

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Give two connected sockets."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_frame_arrives_as_it_was_sent(pair: tuple[socket.socket, socket.socket]) -> None:
    """Header and document arrive whole, however large and with any bytes, and frames do not run together."""
    ours, theirs = pair
    document = bytes(range(256)) * 8192

    def send() -> None:
        send_frame(ours, {"n": 1}, document)
        send_frame(ours, {"n": 2})

    sender = threading.Thread(target=send)
    sender.start()
    assert receive_frame(theirs) == ({"n": 1}, document, [])
    assert receive_frame(theirs) == ({"n": 2}, b"", [])
    sender.join()


def test_descriptors_arrive_closed_on_exec(pair: tuple[socket.socket, socket.socket]) -> None:
    """Descriptors come with their frame, and would not be inherited by any program that the receiver starts."""
    ours, theirs = pair
    readable, writable = os.pipe()
    send_frame(ours, {}, b"", (readable, writable))
    frame = receive_frame(theirs)
    assert frame is not None
    got = frame[2]
    assert [os.fstat(descriptor).st_ino for descriptor in got] == [os.fstat(readable).st_ino] * 2
    assert not any(os.get_inheritable(descriptor) for descriptor in got)
    for descriptor in (readable, writable, *got):
        os.close(descriptor)


@pytest.mark.parametrize("rest", [b"", b"\0\0", b"\0\0\0\x64{}"])
def test_an_end_is_an_end(pair: tuple[socket.socket, socket.socket], rest: bytes) -> None:
    """A connection that ends, also in the middle of a frame, gives no frame."""
    ours, theirs = pair
    ours.sendall(rest)
    ours.close()
    assert receive_frame(theirs) is None


def test_a_report_comes_back() -> None:
    """A report comes back from its packet."""
    report = {"exit": 3, "log": "é\n"}
    assert unpack_report(pack_report(report)) == report
