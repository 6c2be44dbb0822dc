"""A fake HTTP server on this machine, in which tests can inject faults. The fake registries extend it."""

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
    """The content of a path: its bytes, their media type, and additional headers of the response."""

    data: bytes
    kind: str = "application/octet-stream"
    headers: Mapping[str, str] = {}


@dataclass
class Request:
    """A received request: its path with the query, and its headers by their names in lower case."""

    path: str
    headers: Mapping[str, str]

    @property
    def start(self) -> int:
        """The position of the first requested byte, from the ``Range`` header: 0 if there is none."""
        return int(self.headers.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))


@dataclass
class FakeServer:
    """A server of ``files`` by path. The keys of ``faults`` are ends of paths; each fault replaces one response.

    ``requests`` lists the received requests. Without ``ranges``, the server ignores ``Range`` headers. ``finished``
    is set when the server stops.
    """

    host: str = ""
    files: dict[str, Content] = field(default_factory=dict)
    ranges: bool = True
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    finished: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """The server's base URL."""
        return f"http://{self.host}"

    def requests_for(self, ending: str) -> list[Request]:
        """Return the requests whose paths, without the query, end with ``ending``."""
        return [request for request in self.requests if request.path.partition("?")[0].endswith(ending)]

    def find(self, path: str) -> Content | None:
        """Return the content of a path, or ``None``."""
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
    """Run ``fake`` on a free port of ``address`` until the context ends."""
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
    """A handler of requests. ``target`` is the requested path without the query, ``request_`` the whole request."""

    fake: ClassVar[FakeServer]
    protocol_version = "HTTP/1.1"
    timeout = 20
    target: str
    request_: Request

    def do_GET(self) -> None:
        """Record the request, and answer it with the next fault for its path, or normally if there is none."""
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
        """Send a complete response with the body ``data``."""
        self.head(status, {"Content-Type": kind, "Content-Length": str(len(data)), **(headers or {})})
        if self.command == "GET":
            self.wfile.write(data)

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the status and the headers of a response."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def begin(self, sent: int) -> None:
        """Announce the whole requested content, but send only its first ``sent`` bytes."""
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
    """Return a fault that answers with ``status``. A ``_`` in a header's name stands for a hyphen."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.answer(status, data, kind, named)


def redirects(location: str) -> Fault:
    """Return a fault that redirects to ``location``."""
    return says(307, b"", Location=location)


def breaks_after(sent: int) -> Fault:
    """Return a fault that announces the whole content, sends its first ``sent`` bytes and closes the connection."""
    return lambda handler: handler.begin(sent)


def waits(reached: threading.Event | None = None, sent: int = 0) -> Fault:
    """Return a fault that announces the whole content, but sends only its first ``sent`` bytes until the test ends.

    It sets ``reached`` after it has sent them.
    """

    def fault(handler: Handler) -> None:
        handler.begin(sent)
        if reached is not None:
            reached.set()
        handler.fake.finished.wait(20)

    return fault


def stalls(handler: Handler) -> None:
    """Send nothing until the test ends. Unlike the functions around it, this function is itself a fault."""
    handler.close_connection = True
    handler.fake.finished.wait(20)


def drips(data: bytes, every: float) -> Fault:
    """Return a fault that sends ``data`` byte by byte, one each ``every`` seconds."""

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
