"""A Unix socket in front of the engine's, which can be cut."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path


class CuttableSocket:
    """Passes bytes on between ``path`` and the engine, until :meth:`cut`: then nobody listens there any more."""

    def __init__(self, path: Path, engine: str) -> None:
        self.path = path
        self._engine = engine
        self._listener = socket.socket(socket.AF_UNIX)
        self._connections: list[socket.socket] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        """End every connection, and take no more."""
        self.path.unlink(missing_ok=True)
        with self._lock:
            for one in (self._listener, *self._connections):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
            self._connections.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            upstream = socket.socket(socket.AF_UNIX)
            upstream.connect(self._engine)
            with self._lock:
                self._connections += [client, upstream]
            threading.Thread(target=self._pump, args=(client, upstream), daemon=True).start()

    def _pump(self, client: socket.socket, upstream: socket.socket) -> None:
        """Pass on both ways; the end of one direction is passed on too, as attached streams need it."""
        other = {client: upstream, upstream: client}
        with suppress(OSError, ValueError, KeyError), selectors.DefaultSelector() as selector:
            for one in other:
                selector.register(one, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select():
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    data = source.recv(65536)
                    if data:
                        other[source].sendall(data)
                    else:
                        selector.unregister(source)
                        other[source].shutdown(socket.SHUT_WR)
