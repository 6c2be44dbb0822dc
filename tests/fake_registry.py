"""A registry on this machine, which does what a test wants. An engine takes one on a loopback address without TLS."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes and their media type."""

    kind: str
    data: bytes

    @property
    def digest(self) -> str:
        """Its address."""
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"

    def described(self, **changes: object) -> dict[str, Any]:
        """Return its descriptor, with some of it changed."""
        return {"mediaType": self.kind, "size": len(self.data), "digest": self.digest} | changes


def config_for(architecture: str, roots: Sequence[bytes] = (), **changes: object) -> Blob:
    """Return the configuration of an image that has ``roots``, unpacked tar archives, as layers."""
    content = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": ["FROM_BASE=yes"], "Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [Blob("", root).digest for root in roots]},
        "history": [{"created": "2020-01-01T00:00:00Z"}],
    }
    return Blob(CONFIG, json.dumps(content | changes).encode())


def manifest_of(config: Blob, layers: Sequence[Blob], kind: str = MANIFEST, **changes: object) -> Blob:
    """Return an image's manifest."""
    described = [layer.described() for layer in layers]
    content = {"schemaVersion": 2, "mediaType": kind, "config": config.described(), "layers": described}
    return Blob(kind, json.dumps(content | changes).encode())


def index_of(manifests: Mapping[str, Blob], kind: str = INDEX) -> Blob:
    """Return an index of manifests by platform: ``linux/arm64/v8``."""
    entries = []
    for platform, manifest in manifests.items():
        names = dict(zip(("os", "architecture", "variant"), platform.split("/"), strict=False))
        entries.append(manifest.described(platform=names))
    return Blob(kind, json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": entries}).encode())


def packed(root: bytes) -> Blob:
    """Return the layer that unpacks to the tar archive ``root``."""
    return Blob(LAYER, gzip.compress(root, mtime=0))


@dataclass
class Request:
    """What was asked for: the path, and the headers by their names in lower case."""

    path: str
    headers: Mapping[str, str]


Fault: TypeAlias = "Callable[[Handler], None]"


@dataclass
class FakeRegistry:
    """What the registry has, demands and does wrong, and what it was asked.

    ``tokens`` are the bearer tokens that let one in; empty: everyone is. ``logins`` are the ``user:password`` that get
    a token; empty: everyone does. ``faults`` by the end of a path: each answers one request instead of the registry.
    """

    host: str
    blobs: dict[str, Blob] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    logins: set[str] = field(default_factory=set)
    basic: bool = False
    ranges: bool = True
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    finished: threading.Event = field(default_factory=threading.Event)

    def add(self, *blobs: Blob) -> None:
        """Have ``blobs`` under their digests."""
        self.blobs.update({blob.digest: blob for blob in blobs})

    def publish(self, manifest: Blob, tag: str = "1") -> str:
        """Have ``manifest`` under ``tag``, too, and return the reference to it."""
        self.add(manifest)
        self.blobs[tag] = manifest
        return f"{self.host}/base:{tag}"

    def add_image(self, *roots: bytes, architecture: str = "amd64", tag: str = "1") -> str:
        """Have an image whose layers are the tar archives ``roots``, and return the reference to it."""
        layers, config = [packed(root) for root in roots], config_for(architecture, roots)
        self.add(config, *layers)
        return self.publish(manifest_of(config, layers), tag)

    def asked(self, ending: str) -> list[Request]:
        """Return the requests for paths that end like this."""
        return [request for request in self.requests if request.path.partition("?")[0].endswith(ending)]


@contextmanager
def fake_registry(address: str = "127.0.0.1") -> Iterator[FakeRegistry]:
    """Serve a registry that has nothing yet."""
    server = _Server((address, 0), Handler)
    registry = FakeRegistry(f"{address}:{server.server_address[1]}")
    server.RequestHandlerClass = type("Handler", (Handler,), {"registry": registry})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield registry
    finally:
        registry.finished.set()
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def registry_with(root: bytes, architecture: str) -> Iterator[str]:
    """Serve an image whose one layer is the tar archive ``root``; give its reference."""
    with fake_registry() as registry:
        yield registry.add_image(root, architecture=architecture)


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet of clients that hang up: that is what they shall do."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers the questions of the protocol: is this a registry, who am I, and what has this digest or tag."""

    registry: ClassVar[FakeRegistry]
    protocol_version = "HTTP/1.1"
    timeout = 20

    def do_GET(self) -> None:
        """Answer as the registry, or as its faults would."""
        registry = self.registry
        registry.requests.append(Request(self.path, {name.lower(): value for name, value in self.headers.items()}))
        path, _, _ = self.path.partition("?")
        for ending, faults in registry.faults.items():
            if path.endswith(ending) and faults:
                faults.pop(0)(self)
                return
        if path == "/token":
            self._give_token()
        elif not self._is_let_in():
            self._challenge()
        elif path == "/v2/":
            self.answer(200, "application/json", b"{}")
        else:
            self._give_blob(path.rsplit("/", 1)[-1])

    do_HEAD = do_GET  # noqa: N815 - the server's name for it

    def answer(self, status: int, kind: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Answer with ``data``."""
        self.head(status, {"Content-Type": kind, "Content-Length": str(len(data)), **(headers or {})})
        if self.command == "GET":
            self.wfile.write(data)

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the header of an answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def hang_up(self) -> None:
        """End the connection."""
        self.close_connection = True

    def _give_blob(self, name: str) -> None:
        blob = self.registry.blobs.get(name)
        if blob is None:
            self.answer(404, "application/json", b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')
            return
        extra = {"Docker-Distribution-Api-Version": "registry/2.0", "Docker-Content-Digest": blob.digest}
        start = self.headers.get("Range", "").removeprefix("bytes=").removesuffix("-")
        if start and self.registry.ranges:
            size = len(blob.data)
            extra |= {"Content-Range": f"bytes {start}-{size - 1}/{size}"}
            self.answer(206, blob.kind, blob.data[int(start) :], extra)
        else:
            self.answer(200, blob.kind, blob.data, extra)

    def _is_let_in(self) -> bool:
        registry, sent = self.registry, self.headers.get("Authorization", "")
        if registry.basic:
            return sent in {_basic(login) for login in registry.logins}
        return not registry.tokens or sent in {f"Bearer {token}" for token in registry.tokens}

    def _challenge(self) -> None:
        realm = f'Bearer realm="http://{self.registry.host}/token",service="fake",scope="repository:base:pull"'
        wanted = 'Basic realm="fake"' if self.registry.basic else realm
        self.answer(401, "application/json", b"{}", {"WWW-Authenticate": wanted})

    def _give_token(self) -> None:
        logins = self.registry.logins
        if logins and self.headers.get("Authorization") not in {_basic(login) for login in logins}:
            self.answer(401, "application/json", b"{}")
        else:
            token = next(iter(self.registry.tokens), "none")
            self.answer(200, "application/json", json.dumps({"token": token}).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the server's signature
        """Keep quiet."""


def _basic(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def says(status: int, data: bytes = b"{}", kind: str = "application/json", **headers: str) -> Fault:
    """Answer with a status; ``_`` in a header's name is a hyphen."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.answer(status, kind, data, named)


def redirects(location: str) -> Fault:
    """Lead to elsewhere."""
    return says(307, b"", Location=location)


def breaks_after(blob: Blob, sent: int) -> Fault:
    """Announce all of ``blob``, send the first bytes of what was asked for, and end the connection."""

    def fault(handler: Handler) -> None:
        start = int(handler.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        size = len(blob.data)
        ranged = {"Content-Range": f"bytes {start}-{size - 1}/{size}"} if start else {}
        handler.head(206 if start else 200, {"Content-Length": str(size - start), **ranged})
        handler.wfile.write(blob.data[start : start + sent])
        handler.hang_up()

    return fault


def drips(data: bytes, every: float) -> Fault:
    """Send ``data`` byte by byte, never silent for long."""

    def fault(handler: Handler) -> None:
        handler.hang_up()
        for position in range(len(data)):
            if handler.registry.finished.wait(every):
                return
            try:
                handler.wfile.write(data[position : position + 1])
            except OSError:
                return

    return fault


def stalls(handler: Handler) -> None:
    """Say nothing until the test is over."""
    handler.hang_up()
    handler.registry.finished.wait(20)
