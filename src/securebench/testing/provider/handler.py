"""The handler of one client's connection. It reads requests and sends responses, in a thread of its own.

The bodies of requests are read and decompressed with limits.
"""

from __future__ import annotations

import importlib
import sys
import zlib
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final, cast

from securebench.testing.provider.faults import Delivery
from securebench.testing.provider.reply import whole

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping
    from io import BufferedIOBase
    from typing import Protocol

    from securebench.testing.provider.reply import Reply

    class Serving(Protocol):
        """The part of the server that a handler uses. ``stopped`` is set when the server stops."""

        stopped: threading.Event

        def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Delivery:
            """Return the response to a request."""


MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""The maximum size of a request's body, both as received and after decompression."""

_GZIP: Final = 31

_IDLE_SECONDS: Final = 120.0


class BodyError(Exception):
    """A body that cannot be read. ``status`` is the HTTP status to send to the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def read_body(source: BufferedIOBase, headers: Mapping[str, str]) -> bytes:
    """Return a request's body, decompressed. Raises :class:`BodyError` and ``OSError``.

    Names of ``headers`` are in lower case.
    """
    is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
    raw = _chunks(source) if is_chunked else source.read(_size(headers.get("content-length", "0"), 10))
    return _decompressed(raw, headers.get("content-encoding", "identity").lower())


def _size(text: str, base: int) -> int:
    try:
        size = int(text, base)
    except ValueError:
        raise BodyError(400, "the size of the body or of a chunk is not a number") from None
    if not 0 <= size <= MAX_BODY_BYTES:
        raise BodyError(413, "the size of the body or of a chunk is negative or too large")
    return size


def _chunks(source: BufferedIOBase) -> bytes:
    body = bytearray()
    while size := _size(source.readline(1024).split(b";")[0].decode("latin-1"), 16):
        body += source.read(size)
        source.readline(1024)
        if len(body) > MAX_BODY_BYTES:
            raise BodyError(413, "the body is too large")
    while source.readline(1024).strip():
        pass
    return bytes(body)


def _decompressed(raw: bytes, encoding: str) -> bytes:
    """Return a body, decompressed. Raises :class:`BodyError` if it is too large or cannot be decompressed."""
    opened = {"identity": _identity, "gzip": _gunzipped, "zstd": _unzstd}.get(encoding, _unknown)
    body = opened(raw)
    if len(body) > MAX_BODY_BYTES:
        raise BodyError(413, "the body is too large")
    return body


def _identity(raw: bytes) -> bytes:
    return raw


def _unknown(_raw: bytes) -> bytes:
    raise BodyError(415, "the body's encoding is not supported")


def _gunzipped(raw: bytes) -> bytes:
    gzip = zlib.decompressobj(_GZIP)
    try:
        body = gzip.decompress(raw, MAX_BODY_BYTES + 1)
    except zlib.error:
        raise BodyError(400, "the body is not valid gzip data") from None
    if not gzip.eof and len(body) <= MAX_BODY_BYTES:
        raise BodyError(400, "the body's gzip data is incomplete")
    return body


def _unzstd(raw: bytes) -> bytes:
    """Decompress zstd if ``zstandard`` is installed. No known client sends zstd by default."""
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError:
        return _unknown(raw)
    try:
        with zstandard.ZstdDecompressor().stream_reader(raw) as reader:
            return cast("bytes", reader.read(MAX_BODY_BYTES + 1))
    except zstandard.ZstdError:
        raise BodyError(400, "the body is not valid zstd data") from None


class Handler(BaseHTTPRequestHandler):
    """Reads requests and sends responses. Logs nothing."""

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
        """Send the pieces. If the delivery has a ``cut``, close the connection after this many bytes."""
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
