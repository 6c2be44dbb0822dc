"""An HTTP server on this machine that misbehaves as a test asks. The fake registries are built on it."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T", bound="FakeServer")
Fault: TypeAlias = "Callable[[Handler], None]"


class Content(NamedTuple):
    """What a path has: its bytes, their media type, and more headers of the response."""

    data: bytes
    kind: str = "application/octet-stream"
    headers: Mapping[str, str] = {}


@dataclass
class Request:
    """What was requested: the path, and the headers by their names in lower case."""

    path: str
    headers: Mapping[str, str]

    @property
    def start(self) -> int:
        """The first byte that a ``Range`` header asks for."""
        return int(self.headers.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))


@dataclass
class FakeServer:
    """What the server has, by path; ``faults`` by the end of a path: each answers one request instead of the content.

    ``requests`` lists what it was asked. Without ``ranges`` it always sends a file from its beginning.
    """

    host: str = ""
    files: dict[str, Content] = field(default_factory=dict)
    ranges: bool = True
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    finished: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://{self.host}"

    def requests_for(self, ending: str) -> list[Request]:
        """Return the requests for paths that end like this."""
        return [request for request in self.requests if request.path.partition("?")[0].endswith(ending)]

    def find(self, path: str) -> Content | None:
        """Return what a path has."""
        return self.files.get(path)

    def respond(self, handler: Handler) -> None:
        """Answer a request for which there is no fault."""
        content = self.find(handler.target)
        if content is None:
            handler.answer(404, b"{}")
        elif (start := handler.request_.start) and self.ranges:
            size = len(content.data)
            extra = {**content.headers, "Content-Range": f"bytes {start}-{size - 1}/{size}"}
            handler.answer(206, content.data[start:], content.kind, extra)
        else:
            handler.answer(200, content.data, content.kind, content.headers)


@contextmanager
def serving(fake: T, address: str = "127.0.0.1") -> Iterator[T]:
    """Run ``fake``."""
    server = _Server((address, 0), type("Handler", (Handler,), {"fake": fake}))
    fake.host = f"{address}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        fake.finished.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hang up: tests interrupt downloads."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers one request. ``target`` is its path without the query, and ``request_`` all of it."""

    fake: ClassVar[FakeServer]
    protocol_version = "HTTP/1.1"
    timeout = 20
    target: str
    request_: Request

    def do_GET(self) -> None:
        """Answer with a fault, or as the server does."""
        fake = self.fake
        self.target = self.path.partition("?")[0]
        self.request_ = Request(self.path, {name.lower(): value for name, value in self.headers.items()})
        fake.requests.append(self.request_)
        faults = next((found for ending, found in fake.faults.items() if found and self.target.endswith(ending)), None)
        if faults:
            faults.pop(0)(self)
        else:
            fake.respond(self)

    do_HEAD = do_GET  # noqa: N815 - the base class's name for it

    def answer(
        self, status: int, data: bytes, kind: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer with ``data``."""
        self.head(status, {"Content-Type": kind, "Content-Length": str(len(data)), **(headers or {})})
        if self.command == "GET":
            self.wfile.write(data)

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the header of a response."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def begin(self, sent: int) -> None:
        """Announce all that is left of the content, and send its first bytes."""
        content = self.fake.find(self.target) or Content(b"")
        start, size = self.request_.start, len(content.data)
        ranged = {"Content-Range": f"bytes {start}-{size - 1}/{size}"} if start else {}
        self.head(206 if start else 200, {"Content-Length": str(size - start), **content.headers, **ranged})
        self.wfile.write(content.data[start : start + sent])
        self.wfile.flush()
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's signature
        """Print nothing."""


def says(status: int, data: bytes = b"{}", kind: str = "application/json", **headers: str) -> Fault:
    """Answer with a status; ``_`` in a header's name is a hyphen."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.answer(status, data, kind, named)


def redirects(location: str) -> Fault:
    """Redirect to ``location``."""
    return says(307, b"", Location=location)


def breaks_after(sent: int) -> Fault:
    """Announce everything, send the first bytes of what was requested, and hang up."""
    return lambda handler: handler.begin(sent)


def waits(reached: threading.Event | None = None, sent: int = 0) -> Fault:
    """Announce everything, send the first bytes, and nothing more until the test is over."""

    def fault(handler: Handler) -> None:
        handler.begin(sent)
        if reached is not None:
            reached.set()
        handler.fake.finished.wait(20)

    return fault


def stalls(handler: Handler) -> None:
    """Send nothing until the test is over."""
    handler.close_connection = True
    handler.fake.finished.wait(20)


def drips(data: bytes, every: float) -> Fault:
    """Send ``data`` byte by byte, never silent for long."""

    def fault(handler: Handler) -> None:
        handler.close_connection = True
        for position in range(len(data)):
            if handler.fake.finished.wait(every):
                return
            try:
                handler.wfile.write(data[position : position + 1])
            except OSError:
                return

    return fault
