"""The scripted provider: an HTTP server on loopback that supports the APIs in ``wires.py``."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from securebench.testing.provider.answering import Answering
from securebench.testing.provider.faults import always
from securebench.testing.provider.handler import Handler

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.testing.provider.answering import Received, ScriptBook, TextBook
    from securebench.testing.provider.faults import Delivery, FaultPlan
    from securebench.testing.provider.steps import Fault, Script


@dataclass(frozen=True, slots=True)
class Tls:
    """A certificate for 127.0.0.1 or ``localhost``, and its key, as PEM files."""

    certificate: Path
    key: Path


class ScriptedProvider:
    """A provider whose model follows a script. The server runs at ``url`` inside the ``with`` block.

    ``url`` does not include the API's version and does not end with a slash. Raises ``OSError`` if the port is
    unavailable.

    * A client with a shell tool gets the answers of ``script``, which may be a function that chooses a script.
    * A client without a shell tool gets the answer that ``texts`` chooses. If ``texts`` is ``None``, the client gets
      the answer "Scripted.", to which ``fault`` does not apply.
    * The gateway's test request gets the answer "Scripted.", to which ``fault`` applies.

    ``fault`` is a fault in each answer of the model, or a plan that chooses the fault for each answer.
    """

    def __init__(
        self,
        script: Script | ScriptBook,
        *,
        texts: TextBook | None = None,
        tls: Tls | None = None,
        fault: Fault | FaultPlan | None = None,
        models: tuple[str, ...] = ("scripted-model",),
        port: int = 0,
    ) -> None:
        book = script if callable(script) else lambda _conversation: script
        plan = fault if callable(fault) else (lambda _request: None) if fault is None else always(fault)
        self._answering = Answering(book, texts, plan, models)
        self._server = _Server(port, self._answering, tls)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="provider")
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self._server.server_port}"

    @property
    def requests(self) -> tuple[Received, ...]:
        """The requests so far, in order. If they are too many or too large, only the latest are kept."""
        return self._answering.received()

    @property
    def keys_seen(self) -> frozenset[str]:
        """The API keys of the requests, at most 4,096 of them."""
        return self._answering.keys()

    def close(self) -> None:
        """Stop the server and all connections. Idempotent. Raises the first error of the server itself."""
        self._server.stopped.set()
        if self._thread.ident is not None:
            self._server.shutdown()
            self._server.end_connections()
            self._thread.join()
        self._server.server_close()
        if self._server.errors:
            raise self._server.errors[0]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = False  # close() waits for the threads

    def __init__(self, port: int, answering: Answering, tls: Tls | None) -> None:
        self.stopped = threading.Event()
        self.errors: list[BaseException] = []
        self._answering = answering
        self._context = None if tls is None else _context(tls)
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), Handler)

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Delivery:
        """Return the response for a client."""
        return self._answering.answer(method, path, headers, body)

    def end_connections(self) -> None:
        """Shut down open connections, which ends their threads."""
        for connection in tuple(self._connections):
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection. The thread that serves it does the TLS handshake, at the first read."""
        connection, address = super().get_request()
        if self._context is not None:
            connection = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection, and close it."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's
        """Keep the first error of the server itself. ``OSError`` is ignored: clients may disconnect at any time."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError) and not self.errors:
            self.errors.append(error)


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    context.set_alpn_protocols(["http/1.1"])
    return context
