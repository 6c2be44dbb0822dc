"""The byte stream of an attached process: splitting it into output, sending stdin, and closing it."""

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
    """Return a frame with ``data``, as an engine sends it."""
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


def joined(chunks: list[Chunk]) -> list[Chunk]:
    """Return ``chunks`` with adjacent chunks of the same stream joined, and without empty chunks."""
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
    """The output is the same, in the same order, whatever the sizes of the pieces in which the stream is read."""
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
    """A frame with an unknown stream number or invalid padding raises an engine error."""
    with pytest.raises(EngineError, match="malformed"):
        Demultiplexer().feed(header)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield both ends of a connection: the driver's and the engine's."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(10)
    yield ours, theirs
    ours.close()
    theirs.close()


Pair = tuple[socket.socket, socket.socket]


def test_output_comes_in_order(pair: Pair) -> None:
    """Frames that arrive in pieces are received completely and in order."""
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
    """An initial stdin larger than any buffer is sent while output is received. Then stdin is closed."""
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
    """After stdin was closed, output is still received."""
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
    """Sending after stdin was closed raises ``BrokenPipeError``."""
    stream = EngineStream(pair[0])
    stream.close_stdin()
    with pytest.raises(BrokenPipeError):
        stream.send(b"more")
    stream.close()


def test_a_gone_reader_breaks_the_pipe(pair: Pair) -> None:
    """Sending to a connection that the engine closed raises ``BrokenPipeError``, whatever error the system reports."""
    ours, theirs = pair
    stream = EngineStream(ours)
    theirs.close()
    with pytest.raises(BrokenPipeError):
        stream.send(b"x" * 100_000)
    stream.close()


def test_a_blocked_sender_is_woken(pair: Pair) -> None:
    """A thread that is blocked while sending gets ``BrokenPipeError`` soon after ``break_pipe`` was called."""
    stream = EngineStream(pair[0])
    threading.Timer(0.2, stream.break_pipe).start()
    started = time.monotonic()
    with pytest.raises(BrokenPipeError):
        stream.send(b"x" * 50_000_000)
    assert time.monotonic() - started < 20
    stream.close()


def test_closing_wakes_who_reads(pair: Pair) -> None:
    """Closing the stream wakes another thread that waits for output."""
    stream = EngineStream(pair[0])
    threading.Timer(0.2, stream.close).start()
    assert stream.receive(10) is None


def test_receiving_times_out(pair: Pair) -> None:
    """``TimeoutError`` is raised if no output arrives in time. Later output can still be received."""
    ours, theirs = pair
    stream = EngineStream(ours)
    with pytest.raises(TimeoutError):
        stream.receive(0.05)
    theirs.sendall(frame(1, b"late"))
    assert stream.receive(5) == (Stream.STDOUT, b"late")
    stream.close()


def test_a_process_that_is_gone_ends_a_silent_stream(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """I09: an engine may leave the stream of a dead process open. Receiving still ends after the last output."""
    monkeypatch.setattr("securebench.sandboxes.docker.stream._CHECK_SECONDS", 0.05)
    ours, theirs = pair
    looks = list[bool]()

    def look() -> bool:
        looks.append(len(looks) > 0)
        if len(looks) == 2:
            theirs.sendall(frame(1, b"last"))  # still arriving when the process is found to be gone
        return looks[-1]

    stream = EngineStream(ours, is_over=look)
    assert [stream.receive(10), stream.receive(10)] == [(Stream.STDOUT, b"last"), None]
    assert looks == [False, True, True]
    with pytest.raises(BrokenPipeError):
        stream.send(b"x")
    stream.close()


def test_a_process_that_is_there_is_waited_for(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream of a living process does not end while it is silent: ``receive`` raises ``TimeoutError``."""
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
    """A reset connection ends the output without an error. The exit code is requested separately."""
    ours, theirs = pair
    stream = EngineStream(ours)
    ours.send(b"unread")
    theirs.close()
    assert stream.receive(5) is None
    stream.close()
