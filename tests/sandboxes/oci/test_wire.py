"""How a driver and its supervisor speak."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from securebench.sandboxes.oci.wire import receive_frame, receive_report, send_frame, send_report

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


@pytest.fixture
def channel() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Give the two ends of a job's packet socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def test_a_report_comes_back(channel: tuple[socket.socket, socket.socket]) -> None:
    """A report arrives as it was sent, without a descriptor; after the end there is none."""
    ours, theirs = channel
    report = {"exit": 3, "log": "é\n"}
    send_report(ours, report)
    assert receive_report(theirs) == (report, [])
    ours.close()
    assert receive_report(theirs) is None


def test_a_report_brings_descriptors(channel: tuple[socket.socket, socket.socket]) -> None:
    """Descriptors come with their report, and would not be inherited by any program that the receiver starts."""
    ours, theirs = channel
    sent = os.pipe()
    send_report(ours, {"exit": 0}, *sent)
    received = receive_report(theirs)
    assert received is not None
    report, descriptors = received
    assert report == {"exit": 0}
    assert [os.fstat(one).st_ino for one in descriptors] == [os.fstat(one).st_ino for one in sent]
    assert not any(map(os.get_inheritable, descriptors))
    for descriptor in (*sent, *descriptors):
        os.close(descriptor)
