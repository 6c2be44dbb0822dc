"""The byte stream of an attached process: multiplexed output in one direction, stdin with half-close in the other.

Each frame of the output has a header of eight bytes (stream number, three zeros, big-endian length) and a payload.
Payloads are passed on as they arrive, so a frame of any size needs only one read buffer.
"""

from __future__ import annotations

import select
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from securebench.errors import EngineError
from securebench.sandboxes.base import Stream
from securebench.sandboxes.lifecycle import ProcessStreams

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.sandboxes.base import Chunk

_READ = 64 * 1024
_HEADER = 8
_STREAMS = {1: Stream.STDOUT, 2: Stream.STDERR}
_WRITE_SLICE_MS = 100
"""The interval in milliseconds at which a blocked writer checks whether the process was killed.

The check is needed because shutting down the local end of a Unix socket does not wake a thread that waits to write.
"""
_CHECK_SECONDS = 1.0
"""Seconds without output after which the driver asks the engine whether the container of an exec is still running."""


class Demultiplexer:
    """Splits an engine's stream into output chunks. The stream may be passed in pieces of any size."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._stream = Stream.STDOUT
        self._left = 0

    def feed(self, data: bytes) -> list[Chunk]:
        """Return the output in ``data``, in order. Raises :class:`EngineError` if the stream is malformed."""
        chunks: list[Chunk] = []
        view = memoryview(data)
        while view:
            if self._left:
                piece, view = view[: self._left], view[self._left :]
                self._left -= len(piece)
                chunks.append((self._stream, bytes(piece)))
            else:
                missing = _HEADER - len(self._header)
                self._header += view[:missing]
                view = view[missing:]
                self._open_frame()
        return chunks

    def _open_frame(self) -> None:
        if len(self._header) < _HEADER:
            return
        number, padding, size = self._header[0], self._header[1:4], self._header[4:]
        if number not in _STREAMS or any(padding):
            raise EngineError("the engine's output stream is malformed: a frame has an invalid header")
        self._stream, self._left = _STREAMS[number], int.from_bytes(size, "big")
        self._header.clear()


class EngineStream(ProcessStreams):
    """The standard streams of a process over a hijacked connection to the engine.

    ``is_over`` returns whether the process is gone. It is needed because the engine does not end the stream of an exec
    whose container died, as happens when gVisor runs out of memory.
    """

    def __init__(
        self, connection: socket.socket, stdin: bytes = b"", is_over: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__(stdin)
        self._connection = connection
        self._is_over = is_over
        self._frames = Demultiplexer()
        self._ended = False

    def close(self) -> None:
        """Close the connection: readers get the end of the stream, and writers a broken pipe."""
        self._end()
        with suppress(OSError):  # the engine may have closed it already
            self._connection.shutdown(socket.SHUT_RDWR)
        with self._reading, self._writing:
            self._connection.close()

    @property
    def _has_ended(self) -> bool:
        return self._ended

    def _end(self) -> None:
        self._ended = self._broken = True

    def _await_output(self, deadline: float | None) -> None:
        poll = select.poll()
        feeding = bool(self._pending) and not self._broken
        poll.register(self._connection, select.POLLIN | (select.POLLOUT if feeding else 0))
        over = False
        while not (events := poll.poll(_milliseconds(deadline))):
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError
            if over:  # the last output of the process has had time to arrive
                self._end()
                break
            over = self._is_over()
        if events and events[0][1] & select.POLLOUT:
            self._write_if_free()
        self._fill()

    def _fill(self) -> None:
        try:
            data = self._connection.recv(_READ)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if data:
            self._ready.extend(self._frames.feed(data))
        else:
            self._end()

    def _await_room(self) -> None:
        poll = select.poll()
        poll.register(self._connection, select.POLLOUT)
        while not poll.poll(_WRITE_SLICE_MS):
            self._raise_if_broken()

    def _write_some(self, data: memoryview) -> int:
        return self._connection.send(data)

    def _close_stdin(self) -> None:
        if not self._broken:
            self._broken = True
            with suppress(OSError):  # the engine may have closed it already
                self._connection.shutdown(socket.SHUT_WR)


def _milliseconds(deadline: float | None) -> float:
    remaining = _CHECK_SECONDS if deadline is None else deadline - time.monotonic()
    return max(0.0, min(remaining, _CHECK_SECONDS)) * 1000
