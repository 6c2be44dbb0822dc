"""The byte stream: taken apart however it was cut, fed without deadlock, and closed without hanging."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.errors import EngineError
from securebench.sandboxes.base import Stream
from securebench.sandboxes.docker.stream import Demultiplexer, EngineStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.sandboxes.base import Chunk


def frame(stream: int, data: bytes) -> bytes:
    """Return one frame as an engine sends it."""
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


def joined(chunks: list[Chunk]) -> list[Chunk]:
    """Return chunks with neighbours of the same stream put together."""
    result: list[Chunk] = []
    for stream, data in chunks:
        if result and (result[-1][0] is stream or not data):
            result[-1] = (result[-1][0], result[-1][1] + data)
        elif data:
            result.append((stream, data))
    return result


frames = st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=50)), max_size=8)


@given(frames, st.lists(st.integers(1, 20), min_size=1, max_size=50))
def test_cuts_do_not_matter(sent: list[tuple[int, bytes]], cuts: list[int]) -> None:
    """However the stream is cut into reads, the same output comes out in the same order."""
    data = b"".join(frame(number, payload) for number, payload in sent)
    demultiplexer, received, position, turn = Demultiplexer(), list[tuple[Stream, bytes]](), 0, 0
    while position < len(data):
        step = cuts[turn % len(cuts)]
        received += demultiplexer.feed(data[position : position + step])
        position, turn = position + step, turn + 1
    names = {1: Stream.STDOUT, 2: Stream.STDERR}
    assert joined(received) == joined([(names[number], payload) for number, payload in sent])


@pytest.mark.parametrize("header", [b"\x03\0\0\0\0\0\0\1", b"\0\0\0\0\0\0\0\1", b"\1\1\0\0\0\0\0\1", b"HTTP/1.1"])
def test_a_malformed_stream_is_an_error(header: bytes) -> None:
    """A frame with an unknown stream number is an engine error, not output."""
    with pytest.raises(EngineError, match="malformed"):
        Demultiplexer().feed(header)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Give two ends of a connection: ours and the engine's."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(10)
    yield ours, theirs
    ours.close()
    theirs.close()


Pair = tuple[socket.socket, socket.socket]


def test_output_comes_in_order(pair: Pair) -> None:
    """Frames that come in pieces are received in order, to their end."""
    ours, theirs = pair
    stream = EngineStream(ours)
    whole = frame(1, b"first") + frame(2, b"second")
    theirs.sendall(whole[:11])

    def finish() -> None:
        theirs.sendall(whole[11:])
        theirs.close()

    threading.Timer(0.1, finish).start()
    chunks = []
    while (chunk := stream.receive(5)) is not None:
        chunks.append(chunk)
    assert joined(chunks) == [(Stream.STDOUT, b"first"), (Stream.STDERR, b"second")]
    stream.close()


def test_stdin_is_fed_while_output_is_read(pair: Pair) -> None:
    """An initial stdin larger than any buffer is fed while its reader answers, and ended after it."""
    ours, theirs = pair
    data = b"x" * 3_000_000
    stream = EngineStream(ours, stdin=data)
    stream.close_stdin()
    received = bytearray()

    def echo() -> None:
        while piece := theirs.recv(65536):
            received.extend(piece)
            theirs.sendall(frame(1, piece))
        theirs.close()

    thread = threading.Thread(target=echo)
    thread.start()
    total = 0
    while (chunk := stream.receive(10)) is not None:
        total += len(chunk[1])
    thread.join()
    assert (len(received), total) == (len(data), len(data))
    stream.close()


def test_closing_stdin_half_closes(pair: Pair) -> None:
    """Ending stdin ends one direction: the answer still comes."""
    ours, theirs = pair
    stream = EngineStream(ours)
    stream.send(b"question")
    stream.close_stdin()
    assert theirs.recv(100) == b"question"
    assert theirs.recv(100) == b""
    theirs.sendall(frame(1, b"answer"))
    assert stream.receive(5) == (Stream.STDOUT, b"answer")
    stream.close()


def test_sending_after_stdin_was_ended_breaks(pair: Pair) -> None:
    """Sending after the end of stdin raises."""
    stream = EngineStream(pair[0])
    stream.close_stdin()
    with pytest.raises(BrokenPipeError):
        stream.send(b"more")
    stream.close()


def test_a_gone_reader_breaks_the_pipe(pair: Pair) -> None:
    """Sending to a connection that the engine closed raises ``BrokenPipeError``, whatever the kernel calls it."""
    ours, theirs = pair
    stream = EngineStream(ours)
    theirs.close()
    with pytest.raises(BrokenPipeError):
        stream.send(b"x" * 100_000)
    stream.close()


def test_a_blocked_sender_is_woken(pair: Pair) -> None:
    """A sender that waits for room sees a broken pipe soon after the process was killed."""
    stream = EngineStream(pair[0])
    threading.Timer(0.2, stream.break_pipe).start()
    started = time.monotonic()
    with pytest.raises(BrokenPipeError):
        stream.send(b"x" * 50_000_000)
    assert time.monotonic() - started < 20
    stream.close()


def test_closing_wakes_who_reads(pair: Pair) -> None:
    """Closing from another thread ends a wait for output."""
    stream = EngineStream(pair[0])
    threading.Timer(0.2, stream.close).start()
    assert stream.receive(10) is None


def test_receiving_times_out(pair: Pair) -> None:
    """Nothing in time is a ``TimeoutError``; what comes later is received."""
    ours, theirs = pair
    stream = EngineStream(ours)
    with pytest.raises(TimeoutError):
        stream.receive(0.05)
    theirs.sendall(frame(1, b"late"))
    assert stream.receive(5) == (Stream.STDOUT, b"late")
    stream.close()


def test_a_process_that_is_gone_ends_a_silent_stream(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the engine never ends the stream of a process, that it is gone does, after all that was said (I09)."""
    monkeypatch.setattr("securebench.sandboxes.docker.stream._CHECK_SECONDS", 0.05)
    ours, theirs = pair
    looks = list[bool]()

    def look() -> bool:
        looks.append(len(looks) > 0)
        if len(looks) == 2:
            theirs.sendall(frame(1, b"last"))  # on its way when the end was seen
        return looks[-1]

    stream = EngineStream(ours, is_over=look)
    assert [stream.receive(10), stream.receive(10)] == [(Stream.STDOUT, b"last"), None]
    assert looks == [False, True, True]
    with pytest.raises(BrokenPipeError):
        stream.send(b"x")
    stream.close()


def test_a_process_that_is_there_is_waited_for(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it was looked for in silence, nothing in time is a ``TimeoutError``, not its end."""
    monkeypatch.setattr("securebench.sandboxes.docker.stream._CHECK_SECONDS", 0.01)
    looks = list[float]()

    def look() -> bool:
        looks.append(time.monotonic())
        return False

    stream = EngineStream(pair[0], is_over=look)
    with pytest.raises(TimeoutError):
        stream.receive(0.3)
    assert len(looks) > 2
    stream.close()


def test_a_reset_connection_is_an_end(pair: Pair) -> None:
    """A connection that is reset ends the output: how the process ended is asked elsewhere."""
    ours, theirs = pair
    stream = EngineStream(ours)
    ours.send(b"unread")
    theirs.close()
    assert stream.receive(5) is None
    stream.close()
