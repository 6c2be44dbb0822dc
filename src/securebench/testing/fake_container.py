"""What the processes of one fake container share, and the pipes between them and whoever runs them."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from securebench.sandboxes.base import MIB, Stream
from securebench.sandboxes.forwarding import serve_forwarded_ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from securebench.sandboxes.base import Chunk
    from securebench.sandboxes.forwarding import ForwardedPort
    from securebench.testing.fake_files import FakeFileSystem

PIPE_SIZE = MIB
"""What a fake pipe holds before its writer waits."""

_WAIT_SLICE = 0.05
"""How long anybody sleeps before he looks whether the sandbox was killed."""


class Killed(BaseException):
    """Raised in a fake program when its sandbox ends: not an ``Exception``, so that no program survives it."""


class Cause(Enum):
    """Why a fake container was ended."""

    TIME = auto()
    OUTPUT = auto()
    MEMORY = auto()
    CALLER = auto()


@dataclass(slots=True)
class FakeContainer:
    """What the processes of one fake container share.

    ``forwarded_ports`` are where each forwarded port's listener is, by its port.
    """

    system: FakeFileSystem
    forwarded_ports: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)
    cause: Cause | None = None
    processes: int = 0
    memory: int = 0
    connections: list[socket.socket] = field(default_factory=list)
    lock: threading.RLock = field(init=False)

    def __post_init__(self) -> None:
        self.lock = self.system.lock

    def connect(self, port: int) -> socket.socket:
        """Return a connection to ``port`` of its loopback.

        Raises ``ConnectionRefusedError`` where no forwarded port is.
        """
        self.check()
        if port not in self.forwarded_ports:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        connection = socket.create_connection(self.forwarded_ports[port])
        with self.lock:
            self.connections.append(connection)
            if self.ended.is_set():
                self._hang_up()
        return connection

    def check(self) -> None:
        """Raise :class:`Killed` if it was ended."""
        if self.ended.is_set():
            raise Killed

    def end(self, cause: Cause | None) -> None:
        """End everything in it. The first cause stays."""
        with self.lock:
            if not self.ended.is_set():
                self.cause = cause
                self.ended.set()
                self._hang_up()

    def _hang_up(self) -> None:
        for connection in self.connections:
            with suppress(OSError):  # its program has closed it
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


def open_forwarded_ports(forwarded_ports: Sequence[ForwardedPort]) -> dict[int, tuple[str, int]]:
    """Let ``forwarded_ports`` be served, and return where.

    A fake has no loopback of its own, so they lie on the host's.
    """
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in forwarded_ports]
    addresses = [listener.getsockname() for listener in listeners]
    serve_forwarded_ports(forwarded_ports, listeners)
    return {forwarded_port.port: address for forwarded_port, address in zip(forwarded_ports, addresses, strict=True)}


class FakePipe:
    """Bytes from a writer to a reader; a full one makes its writer wait."""

    def __init__(self, container: FakeContainer) -> None:
        self._container = container
        self._chunks: deque[tuple[Stream, bytes]] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self.writer_done = False
        self.reader_done = False

    def put(self, stream: Stream, data: bytes) -> None:
        """Add ``data``. Raises :class:`Killed` or ``BrokenPipeError``."""
        with self._changed:
            while self._size >= PIPE_SIZE and not self.reader_done:
                self._wait()
            if self.reader_done or self.writer_done:
                raise BrokenPipeError("nobody reads the pipe")
            self._chunks.append((stream, data))
            self._size += len(data)
            self._changed.notify_all()

    def get(self, timeout: float | None = None) -> Chunk | None:
        """Return the next chunk, or ``None`` at the end. Raises ``TimeoutError``."""
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._chunks) or self.writer_done, timeout):
                raise TimeoutError
            if not self._chunks:
                return None
            stream, data = self._chunks.popleft()
            self._size -= len(data)
            self._changed.notify_all()
            return stream, data

    def finish(self, *, writer: bool = False, reader: bool = False) -> None:
        """Say that one side is done."""
        with self._changed:
            self.writer_done = self.writer_done or writer
            self.reader_done = self.reader_done or reader
            self._changed.notify_all()

    def _wait(self) -> None:
        self._changed.wait(_WAIT_SLICE)
        self._container.check()


class FakeStdin:
    """A program's stdin."""

    def __init__(self, pipe: FakePipe, container: FakeContainer) -> None:
        self._pipe = pipe
        self._container = container
        self._buffer = b""

    def read(self) -> bytes:
        """Return everything until its end."""
        while (data := self._more()) is not None:
            self._buffer += data
        taken, self._buffer = self._buffer, b""
        return taken

    def readline(self) -> bytes:
        """Return one line with its newline, or what is left at the end."""
        while b"\n" not in self._buffer and (data := self._more()) is not None:
            self._buffer += data
        line, newline, self._buffer = self._buffer.partition(b"\n")
        return line + newline

    def chunks(self) -> Iterator[bytes]:
        """Yield what comes, as it comes."""
        while (data := self._more()) is not None:
            yield data

    def close(self) -> None:
        """Read no more: whoever writes sees a broken pipe."""
        self._pipe.finish(reader=True)

    def _more(self) -> bytes | None:
        while not self._container.ended.is_set():
            try:
                chunk = self._pipe.get(_WAIT_SLICE)
            except TimeoutError:
                continue
            return None if chunk is None else chunk[1]
        raise Killed
