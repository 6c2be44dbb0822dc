"""Test doubles of a Docker Engine: a fake with scripted responses, and a proxy that can cut off the real engine."""

from __future__ import annotations

import json
import re
import socket
import socketserver
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from securebench.engine.endpoint import EngineEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VERSION = {"Version": "20.10.24", "ApiVersion": "1.41", "MinAPIVersion": "1.12"}


def endpoint_of(path: Path) -> EngineEndpoint:
    """Return the endpoint of the Unix socket ``path``."""
    return EngineEndpoint.parse(f"unix://{path}", "the test")


class FakeEngine:
    """An HTTP server on a Unix socket. ``answer`` adds a response; ``requests`` lists the received requests."""

    def __init__(self, path: Path) -> None:
        self.endpoint = endpoint_of(path)
        self.requests: list[tuple[str, str, Any]] = []
        self._answers: list[tuple[re.Pattern[str], Callable[[], tuple[int, bytes]]]] = []
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, answer = engine.find(self.command, self.path, body)
                self.send_response(status)
                if status == HTTPStatus.NO_CONTENT:
                    self.end_headers()
                    return
                self.send_header("Content-Type", "application/json")
                # Chunked, like the responses of a real engine: the SDK can read them as streams or as a whole.
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(answer), answer))

            do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - the names that http.server looks for

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in http.server
                """Log nothing."""

            def address_string(self) -> str:
                return "unix"

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Print no errors of clients that closed their connection."""

        self._server = Server(str(path), Handler)
        self.answer("GET /version", VERSION)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, pattern: str, body: object = None, *, status: int = 200) -> None:
        """Respond with ``body`` to requests whose ``METHOD /path`` matches ``pattern``. The newest match counts."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._answers.insert(0, (re.compile(pattern), lambda: (status, data)))

    def hang(self, pattern: str) -> threading.Event:
        """Delay requests that match ``pattern`` until the returned event is set, for at most 30 seconds."""
        released = threading.Event()

        def wait() -> tuple[int, bytes]:
            released.wait(30)
            return 500, b'{"message": "released"}'

        self._answers.insert(0, (re.compile(pattern), wait))
        return released

    def refuse(self, pattern: str, status: int, message: str) -> None:
        """Respond to requests that match ``pattern`` with an error in the engine's format."""
        self.answer(pattern, {"message": message}, status=status)

    def find(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Return the response to a request, and record the request."""
        self.requests.append((method, path, json.loads(body) if body else None))
        for pattern, answer in self._answers:
            if pattern.search(f"{method} {path}"):
                return answer()
        return 404, b'{"message": "page not found"}'

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()


class EngineProxy:
    """A socket that forwards connections to the real engine until :meth:`cut` is called."""

    def __init__(self, path: Path, target: str = "/var/run/docker.sock") -> None:
        self.endpoint = endpoint_of(path)
        self._path = path
        self._target = target
        self._sockets: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Remove the socket and close all connections, as if the engine had ended."""
        self._path.unlink(missing_ok=True)
        for connection in (self._listener, *self._sockets):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                server.connect(self._target)
                self._sockets += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
