"""The byte stream of an attached process: multiplexed output in one direction, stdin with half-close in the other.

Each frame has a header of eight bytes (stream number, three zeros, big-endian length) and a payload. Payloads are
passed on as they arrive, so a frame of any size needs only one read buffer.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from securebench.errors import EngineError
from securebench.sandboxes.base import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.sandboxes.base import Chunk

_READ = 64 * 1024
_HEADER = 8
_STREAMS = {1: Stream.STDOUT, 2: Stream.STDERR}
_WRITE_SLICE_MS = 100
"""How long a blocked writer sleeps before it checks whether the process was killed: shutting down the local end of a
Unix socket does not wake a thread that waits to write."""
_CHECK_SECONDS = 1.0
"""How long a process may be silent before the engine is asked whether it is still running."""


class Demultiplexer:
    """Splits the stream into output chunks, independent of how it is divided into reads."""

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
            raise EngineError("the engine's output stream is malformed: a frame has an unknown stream number")
        self._stream, self._left = _STREAMS[number], int.from_bytes(size, "big")
        self._header.clear()


class EngineStream:
    """A hijacked connection. One thread receives; sending and closing may come from others.

    ``is_over`` returns whether the process is gone. The engine does not end the stream of an exec whose container
    died, as happens when gVisor runs out of memory.
    """

    def __init__(
        self, connection: socket.socket, stdin: bytes = b"", is_over: Callable[[], bool] = lambda: False
    ) -> None:
        self._connection = connection
        self._is_over = is_over
        self._frames = Demultiplexer()
        self._ready: deque[Chunk] = deque()
        self._pending = memoryview(stdin)
        self._reading = threading.RLock()
        self._writing = threading.RLock()
        self._close_after_pending = False
        self._stdin_over = False
        self._ended = False

    def receive(self, timeout: float | None) -> Chunk | None:
        """Return the next output, or ``None`` at the end. Raises ``TimeoutError`` after ``timeout`` seconds.

        While it waits, it also sends the rest of the initial stdin, so that neither side can block the other.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._reading:
            while not self._ready and not self._ended:
                self._await_readable(deadline)
                self._fill()
            return self._ready.popleft() if self._ready else None

    def send(self, data: bytes) -> None:
        """Write all of ``data``. Raises ``BrokenPipeError`` if the other end is closed, also while it is blocked."""
        with self._writing:
            while self._pending:
                self._write_some()
            self._raise_if_over()
            self._pending = memoryview(data)
            while self._pending:
                self._write_some()
            self._raise_if_over()

    def close_stdin(self) -> None:
        """Close stdin after sending pending data."""
        with self._writing:
            self._close_after_pending = True
            if not self._pending:
                self._half_close()

    def break_pipe(self) -> None:
        """Make every call of :meth:`send` raise ``BrokenPipeError``, including a blocked one."""
        self._stdin_over = True

    def close(self) -> None:
        """Close the connection: readers get the end of the stream, and writers a broken pipe."""
        self._ended = self._stdin_over = True
        with suppress(OSError):  # the engine may have closed it already
            self._connection.shutdown(socket.SHUT_RDWR)
        with self._reading, self._writing:
            self._connection.close()

    def _await_readable(self, deadline: float | None) -> None:
        poll = select.poll()
        feeding = bool(self._pending) and not self._stdin_over
        poll.register(self._connection, select.POLLIN | (select.POLLOUT if feeding else 0))
        over = False
        while not (events := poll.poll(_milliseconds(deadline))):
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError
            if over:  # its last output has had time to arrive
                self._ended = self._stdin_over = True
                return
            over = self._is_over()
        if events[0][1] & select.POLLOUT and self._writing.acquire(blocking=False):
            try:
                self._write_now()
            finally:
                self._writing.release()

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
            self._ended = self._stdin_over = True

    def _write_some(self) -> None:
        poll = select.poll()
        poll.register(self._connection, select.POLLOUT)
        while not poll.poll(_WRITE_SLICE_MS):
            self._raise_if_over()
        self._write_now()

    def _write_now(self) -> None:
        if self._stdin_over:
            self._pending = memoryview(b"")
            return
        try:
            self._pending = self._pending[self._connection.send(self._pending) :]
        except BlockingIOError:
            return
        except OSError:
            self._stdin_over = True
            self._pending = memoryview(b"")
        if not self._pending and self._close_after_pending:
            self._half_close()

    def _half_close(self) -> None:
        if not self._stdin_over:
            self._stdin_over = True
            with suppress(OSError):  # the engine may have closed it already
                self._connection.shutdown(socket.SHUT_WR)

    def _raise_if_over(self) -> None:
        if self._stdin_over:
            self._pending = memoryview(b"")
            raise BrokenPipeError("the process no longer reads its stdin")


def _milliseconds(deadline: float | None) -> float:
    remaining = _CHECK_SECONDS if deadline is None else deadline - time.monotonic()
    return max(0.0, min(remaining, _CHECK_SECONDS)) * 1000
