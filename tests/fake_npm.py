"""A fake npm registry on this machine. Tests add packages to it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from fake_server import Content, FakeServer, serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def entry(name: str, data: bytes = b"", mode: int = 0o644, kind: bytes = tarfile.REGTYPE, link: str = "") -> Any:
    """Return an archive member with any name, mode, type and link target, and its content."""
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
    """Return the archive of a package with a ``package.json``, an executable and the members ``more``."""
    described = json.dumps({"name": name, "version": version}).encode()
    return archive(entry("package/package.json", described), entry(f"package/{executable}", data, 0o755), *more)


def integrity(data: bytes) -> str:
    """Return the digest of an archive in the format of npm's field ``integrity``."""
    return f"sha512-{base64.b64encode(hashlib.sha512(data).digest()).decode()}"


@dataclass
class FakeNpm(FakeServer):
    """A registry of packages. ``files`` contains their documents and archives by path."""

    def publish(self, name: str, version: str, data: bytes, *, tags: Sequence[str] = (), **dist: object) -> str:
        """Add a version of a package and return its integrity. ``dist`` overrides fields of the document's ``dist``."""
        described = {"integrity": integrity(data), "tarball": "http://192.0.2.1/elsewhere.tgz"} | dist
        document = json.dumps({"name": name, "version": version, "dist": described}).encode()
        for version_or_tag in (version, *tags):
            self.files[f"/{name}/{version_or_tag}"] = Content(document)
        self.files[f"/{name}/-/{name.rpartition('/')[2]}-{version}.tgz"] = Content(data)
        return integrity(data)

    def find(self, path: str) -> Content | None:
        """Return the content of a path, whose slashes may be percent-encoded."""
        return self.files.get(unquote(path))


@contextmanager
def fake_npm() -> Iterator[FakeNpm]:
    """Serve an empty registry until the context ends."""
    with serving(FakeNpm()) as npm:
        yield npm
