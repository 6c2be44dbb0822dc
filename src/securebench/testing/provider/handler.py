"""One connection of a client, in a thread of its own: requests in, deliveries out."""

from __future__ import annotations

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

    class Answering(Protocol):
        """The server of a handler: says how a request is answered, and when all is over."""

        stopped: threading.Event

        def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Delivery:
            """Return what goes back."""


_IDLE_SECONDS: Final = 120.0


class Handler(BaseHTTPRequestHandler):
    """Reads requests and sends deliveries, without a word on the terminal."""

    protocol_version = "HTTP/1.1"
    server_version = "scripted-provider"
    sys_version = ""
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True
    server: Any

    def handle_any(self) -> None:
        """Answer one request, of whatever method."""
        server: Answering = self.server
        delivery = self._delivery(server)
        if server.stopped.wait(delivery.wait) if delivery.wait else False:
            self.close_connection = True
            return
        self._send_head(delivery.reply)
        if self.command != "HEAD":
            self._send_body(delivery, server)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = handle_any  # noqa: N815 - http.server's

    def _delivery(self, server: Answering) -> Delivery:
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

    def _send_body(self, delivery: Delivery, server: Answering) -> None:
        """Send the pieces, until they end or the delivery is to be cut."""
        left = delivery.cut
        for piece in delivery.reply.pieces:
            if delivery.pause and server.stopped.wait(delivery.pause):
                left = 0
            sent = piece if left is None else piece[:left]
            self._send_piece(sent, is_chunk=delivery.reply.streams)
            if left is not None:
                left -= len(sent)
            if left == 0:
                self.close_connection = True
                return
        if delivery.reply.streams:
            self.wfile.write(b"0\r\n\r\n")

    def _send_piece(self, piece: bytes, *, is_chunk: bool) -> None:
        if piece:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunk else piece)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in http.server
        """Say nothing."""
