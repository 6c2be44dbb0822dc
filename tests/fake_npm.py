"""An npm registry on this machine, which has the packages that a test makes and does wrong what the test wants."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import sys
import tarfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Fault: TypeAlias = "Callable[[Handler, bytes], None]"


def entry(name: str, data: bytes = b"", mode: int = 0o644, kind: bytes = tarfile.REGTYPE, link: str = "") -> Any:
    """Return a member of an archive, whatever it is called and leads to, and its content."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.type, info.linkname = len(data), mode, kind, link
    return info, data


def archive(*entries: Any) -> bytes:
    """Return a gzipped tar archive of ``entries``."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0)


def package(name: str, version: str, executable: str, *more: Any, data: bytes = b"#!/bin/sh\n") -> bytes:
    """Return the archive of a package with an executable, and ``more`` members."""
    described = json.dumps({"name": name, "version": version}).encode()
    return archive(entry("package/package.json", described), entry(f"package/{executable}", data, 0o755), *more)


def integrity(data: bytes) -> str:
    """Return the integrity of an archive, as npm writes it."""
    return f"sha512-{base64.b64encode(hashlib.sha512(data).digest()).decode()}"


@dataclass
class FakeNpm:
    """What the registry has, by path; ``faults`` by the end of a path: each answers one request instead of it.

    ``requests`` are the paths that were asked for, each with what the ``Range`` header said.
    """

    url: str
    documents: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    finished: threading.Event = field(default_factory=threading.Event)

    def publish(self, name: str, version: str, data: bytes, *, tags: Sequence[str] = (), **dist: object) -> str:
        """Have a version of a package, with its archive, and return its integrity; ``dist`` changes what is said."""
        said = {"integrity": integrity(data), "tarball": "http://192.0.2.1/elsewhere.tgz"} | dist
        document = json.dumps({"name": name, "version": version, "dist": said}).encode()
        for version_or_tag in (version, *tags):
            self.documents[f"/{name}/{version_or_tag}"] = document
        self.documents[f"/{name}/-/{name.rpartition('/')[2]}-{version}.tgz"] = data
        return integrity(data)


@contextmanager
def fake_npm() -> Iterator[FakeNpm]:
    """Serve a registry that has nothing yet."""
    server = _Server(("127.0.0.1", 0), Handler)
    npm = FakeNpm(f"http://127.0.0.1:{server.server_address[1]}")
    server.RequestHandlerClass = type("Handler", (Handler,), {"npm": npm})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield npm
    finally:
        npm.finished.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet of clients that hang up: that is what they shall do."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers for what is there, with ranges, unless a fault does."""

    npm: ClassVar[FakeNpm]
    protocol_version = "HTTP/1.1"
    timeout = 20

    def do_GET(self) -> None:
        """Answer one request."""
        path = unquote(self.path)
        self.npm.requests.append((path, self.headers.get("Range", "")))
        data = self.npm.documents.get(path)
        faults = next((found for end, found in self.npm.faults.items() if path.endswith(end) and found), None)
        if faults:
            faults.pop(0)(self, data or b"")
        elif data is None:
            self.answer(404, b"{}")
        elif start := self.headers.get("Range", "").removeprefix("bytes=").removesuffix("-"):
            self.answer(206, data[int(start) :], {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"})
        else:
            self.answer(200, data)

    def answer(self, status: int, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Answer with ``data``."""
        self.head(status, {"Content-Length": str(len(data)), **(headers or {})})
        self.wfile.write(data)

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the header of an answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the server's signature
        """Keep quiet."""


def says(status: int, data: bytes = b"{}", **headers: str) -> Fault:
    """Answer with a status, some data and headers."""
    return lambda handler, _: handler.answer(status, data, headers)


def breaks_after(sent: int) -> Fault:
    """Announce all of it, send the first bytes of it, and hang up."""

    def fault(handler: Handler, data: bytes) -> None:
        handler.head(200, {"Content-Length": str(len(data))})
        handler.wfile.write(data[:sent])
        handler.close_connection = True

    return fault


def waits(reached: threading.Event | None = None, sent: int = 0) -> Fault:
    """Announce all of it, send the first bytes of it, and say nothing more until the test is over."""

    def fault(handler: Handler, data: bytes) -> None:
        handler.head(200, {"Content-Length": str(len(data))})
        handler.wfile.write(data[:sent])
        handler.wfile.flush()
        if reached is not None:
            reached.set()
        handler.close_connection = True
        handler.npm.finished.wait(20)

    return fault
