"""A fake image registry on this machine. Engines accept a registry without TLS if its address is loopback."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fake_server import Content, FakeServer, serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fake_server import Handler

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
        """The digest by which a registry addresses the blob."""
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"

    def described(self, **changes: object) -> dict[str, Any]:
        """Return the blob's descriptor, with ``changes`` to its fields."""
        return {"mediaType": self.kind, "size": len(self.data), "digest": self.digest} | changes


def config_for(architecture: str, roots: Sequence[bytes] = (), **changes: object) -> Blob:
    """Return the configuration of an image whose layers are ``roots``, which are uncompressed tar archives."""
    content = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": ["FROM_BASE=yes"], "Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [Blob("", root).digest for root in roots]},
        "history": [{"created": "2020-01-01T00:00:00Z"}],
    }
    return Blob(CONFIG, json.dumps(content | changes).encode())


def manifest_of(config: Blob, layers: Sequence[Blob], kind: str = MANIFEST, **changes: object) -> Blob:
    """Return the manifest of an image, with ``changes`` to its fields."""
    described = [layer.described() for layer in layers]
    content = {"schemaVersion": 2, "mediaType": kind, "config": config.described(), "layers": described}
    return Blob(kind, json.dumps(content | changes).encode())


def index_of(manifests: Mapping[str, Blob], kind: str = INDEX) -> Blob:
    """Return an index of ``manifests``. Their keys are platforms such as ``linux/arm64/v8``."""
    entries = []
    for platform, manifest in manifests.items():
        names = dict(zip(("os", "architecture", "variant"), platform.split("/"), strict=False))
        entries.append(manifest.described(platform=names))
    return Blob(kind, json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": entries}).encode())


def packed(root: bytes) -> Blob:
    """Return the tar archive ``root`` as a gzipped layer."""
    return Blob(LAYER, gzip.compress(root, mtime=0))


@dataclass
class FakeRegistry(FakeServer):
    """A registry with ``blobs`` by digest or tag. It can require authentication.

    ``tokens`` are the accepted bearer tokens; if there are none, every request is accepted. ``logins`` are the
    ``user:password`` pairs that get a token; if there are none, everyone gets one. With ``basic``, each request
    needs a login instead of a token.
    """

    blobs: dict[str, Blob] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    logins: set[str] = field(default_factory=set)
    basic: bool = False

    def add(self, *blobs: Blob) -> None:
        """Add ``blobs`` under their digests."""
        self.blobs.update({blob.digest: blob for blob in blobs})

    def publish(self, manifest: Blob, tag: str = "1") -> str:
        """Add ``manifest`` under its digest and ``tag``, and return the reference to it."""
        self.add(manifest)
        self.blobs[tag] = manifest
        return f"{self.host}/base:{tag}"

    def add_image(self, *roots: bytes, architecture: str = "amd64", tag: str = "1") -> str:
        """Add an image whose layers are the tar archives ``roots``, and return the reference to it."""
        layers, config = [packed(root) for root in roots], config_for(architecture, roots)
        self.add(config, *layers)
        return self.publish(manifest_of(config, layers), tag)

    def find(self, path: str) -> Content | None:
        """Return the blob whose digest or tag is the last part of ``path``, or ``None``.

        The content of ``/v2/`` is an empty object.
        """
        if path == "/v2/":
            return Content(b"{}", "application/json")
        blob = self.blobs.get(path.rsplit("/", 1)[-1])
        if blob is None:
            return None
        extra = {"Docker-Distribution-Api-Version": "registry/2.0", "Docker-Content-Digest": blob.digest}
        return Content(blob.data, blob.kind, extra)

    def respond(self, handler: Handler) -> None:
        """Answer a request to the registry or to its token server."""
        sent = handler.headers.get("Authorization", "")
        accepted = {_basic(login) for login in self.logins}
        if handler.target == "/token":
            if accepted and sent not in accepted:
                handler.answer(401, b"{}")
            else:
                handler.answer(200, json.dumps({"token": next(iter(self.tokens), "none")}).encode())
            return
        if not self.basic:
            accepted = {f"Bearer {token}" for token in self.tokens}
        if sent in accepted or not (self.basic or self.tokens):
            super().respond(handler)
        else:
            realm = f'Bearer realm="{self.url}/token",service="fake",scope="repository:base:pull"'
            wanted = 'Basic realm="fake"' if self.basic else realm
            handler.answer(401, b"{}", headers={"WWW-Authenticate": wanted})


@contextmanager
def fake_registry(address: str = "127.0.0.1") -> Iterator[FakeRegistry]:
    """Serve an empty registry until the context ends."""
    with serving(FakeRegistry(), address) as registry:
        yield registry


@contextmanager
def registry_with(root: bytes, architecture: str) -> Iterator[str]:
    """Serve an image whose only layer is the tar archive ``root``, and yield its reference."""
    with fake_registry() as registry:
        yield registry.add_image(root, architecture=architecture)


def _basic(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"
