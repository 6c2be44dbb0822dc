"""A registry on this machine that has one image. An engine takes a registry on a loopback address without TLS."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@dataclass(frozen=True, slots=True)
class _Blob:
    kind: str
    data: bytes

    @property
    def digest(self) -> str:
        return _digest(self.data)

    def described(self) -> dict[str, object]:
        return {"mediaType": self.kind, "size": len(self.data), "digest": self.digest}


@contextmanager
def registry_with(root: bytes, architecture: str) -> Iterator[str]:
    """Serve an image whose one layer is the tar archive ``root``; give its reference."""
    layer = _Blob(_LAYER, gzip.compress(root, mtime=0))
    content = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": ["FROM_BASE=yes"], "Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(root)]},
        "history": [{"created": "2020-01-01T00:00:00Z"}],
    }
    config = _Blob(_CONFIG, json.dumps(content).encode())
    described = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": config.described()}
    manifest = _Blob(_MANIFEST, json.dumps(described | {"layers": [layer.described()]}).encode())
    blobs = {blob.digest: blob for blob in (layer, config, manifest)} | {"1": manifest}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"blobs": blobs}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}/base:1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    blobs: ClassVar[Mapping[str, _Blob]] = {}
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer the two questions of the protocol: is this a registry, and what has this digest or tag."""
        name = self.path.rsplit("/", 1)[-1]
        if self.path == "/v2/":
            self._answer(200, "application/json", b"{}")
        elif name in self.blobs:
            self._answer(200, self.blobs[name].kind, self.blobs[name].data)
        else:
            self._answer(404, "application/json", b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')

    do_HEAD = do_GET  # noqa: N815 - the server's name for it

    def _answer(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Docker-Content-Digest", _digest(data))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the server's signature
        """Keep quiet."""


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
