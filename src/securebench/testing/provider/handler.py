"""One connection of a client, in its own thread: it reads requests and sends responses."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final

from securebench.testing.provider.bodies import BodyError, read_body
from securebench.testing.provider.faults import Delivery
from securebench.testing.provider.reply import whole

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping
    from typing import Protocol

    from securebench.testing.provider.reply import Reply

    class Serving(Protocol):
        """The interface of the server for a handler: answers requests, and reports when the server has stopped."""

        stopped: threading.Event

        def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Delivery:
            """Return the response."""


_IDLE_SECONDS: Final = 120.0


class Handler(BaseHTTPRequestHandler):
    """Reads requests and sends responses, without logging."""

    protocol_version = "HTTP/1.1"
    server_version = "scripted-provider"
    sys_version = ""
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True
    server: Any

    def handle_any(self) -> None:
        """Answer one request of any method."""
        server: Serving = self.server
        delivery = self._delivery(server)
        if server.stopped.wait(delivery.wait):
            self.close_connection = True
            return
        self._send_head(delivery.reply)
        if self.command != "HEAD":
            self._send_body(delivery, server)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = handle_any  # noqa: N815 - http.server's

    def _delivery(self, server: Serving) -> Delivery:
        headers: dict[str, str] = {}
        for name, value in self.headers.items():
            known = headers.get(name.lower())
            headers[name.lower()] = value if known is None else f"{known}, {value}"
        try:
            body = read_body(self.rfile, headers)
        except BodyError as error:
            self.close_connection = True
            return Delivery(whole(error.status, {"error": {"message": str(error)}}))
        return server.answer(self.command, self.path, headers, body)

    def _send_head(self, reply: Reply) -> None:
        self.send_response(reply.status)
        self.send_header("content-type", reply.content_type)
        if reply.streams:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("content-length", str(sum(map(len, reply.pieces))))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_body(self, delivery: Delivery, server: Serving) -> None:
        """Send the pieces. If the delivery is to be cut, end the connection before the end."""
        left = sys.maxsize if delivery.cut is None else delivery.cut
        for piece in delivery.reply.pieces:
            if left == 0 or server.stopped.wait(delivery.pause):
                break
            self._send_piece(piece[:left], is_chunk=delivery.reply.streams)
            left -= len(piece[:left])
        else:
            if left and delivery.reply.streams:
                self.wfile.write(b"0\r\n\r\n")
            self.close_connection |= left == 0
            return
        self.close_connection = True

    def _send_piece(self, piece: bytes, *, is_chunk: bool) -> None:
        if piece:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunk else piece)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in http.server
        """Log nothing."""
