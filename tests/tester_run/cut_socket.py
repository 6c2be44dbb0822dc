"""A Unix socket in front of the socket of an engine. Tests can cut its connections or make them hang."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path


class CuttableSocket:
    """A socket at ``path`` that forwards bytes to and from the engine until :meth:`cut` closes and removes it.

    :meth:`restore` creates it again. After :meth:`hang`, it accepts connections but forwards nothing.
    """

    def __init__(self, path: Path, engine: str) -> None:
        self.path = path
        self._engine = engine
        self._connections: list[socket.socket] = []
        self._lock = threading.Lock()
        self._flows = threading.Event()

    def __enter__(self) -> Self:
        self.restore()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def restore(self) -> None:
        """Listen at ``path``, for the first time or after :meth:`cut`."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        self._flows.set()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def hang(self) -> None:
        """Forward nothing until the next :meth:`cut`."""
        self._flows.clear()

    def cut(self) -> None:
        """Close all connections, and accept no more."""
        self.path.unlink(missing_ok=True)
        with self._lock:
            for one in (self._listener, *self._connections):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
            self._connections.clear()
        self._flows.set()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            upstream = socket.socket(socket.AF_UNIX)
            upstream.connect(self._engine)
            with self._lock:
                self._connections += [client, upstream]
            threading.Thread(target=self._pump, args=(client, upstream), daemon=True).start()

    def _pump(self, client: socket.socket, upstream: socket.socket) -> None:
        """Forward bytes in both directions.

        Also forward the end of each direction, because attached streams need it.
        """
        other = {client: upstream, upstream: client}
        with suppress(OSError, ValueError, KeyError), selectors.DefaultSelector() as selector:
            for one in other:
                selector.register(one, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select():
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    data = source.recv(65536)
                    self._flows.wait()
                    if data:
                        other[source].sendall(data)
                    else:
                        selector.unregister(source)
                        other[source].shutdown(socket.SHUT_WR)
