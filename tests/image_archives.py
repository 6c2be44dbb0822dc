"""Hand-made image archives: layers with any members, even hostile ones, and the documents of an image."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())

Part = tuple[tarfile.TarInfo, bytes]


def file(name: str, data: bytes = b"data\n", *, mode: int = 0o644, owner: tuple[int, int] = (0, 0)) -> Part:
    """Return a regular file."""
    return _part(name, tarfile.REGTYPE, data, mode=mode, owner=owner)


def directory(name: str, *, mode: int = 0o755, owner: tuple[int, int] = (0, 0)) -> Part:
    """Return a directory."""
    return _part(name, tarfile.DIRTYPE, mode=mode, owner=owner)


def symlink(name: str, target: str) -> Part:
    """Return a symbolic link."""
    return _part(name, tarfile.SYMTYPE, link=target, mode=0o777)


def hard_link(name: str, target: str) -> Part:
    """Return a hard link."""
    return _part(name, tarfile.LNKTYPE, link=target)


def special(name: str, kind: bytes) -> Part:
    """Return a device or FIFO."""
    return _part(name, kind)


def whiteout(directory_name: str, name: str) -> Part:
    """Return the marker that removes ``name`` from the layers below."""
    return file(f"{directory_name}/.wh.{name}".removeprefix("/"), b"")


def opaque(directory_name: str) -> Part:
    """Return the marker that removes everything that the layers below have in a directory."""
    return file(f"{directory_name}/.wh..wh..opq", b"")


def with_pax(part: Part, headers: Mapping[str, str]) -> Part:
    """Add extended headers to a member, and return it."""
    part[0].pax_headers = dict(headers)
    return part


def layer(*parts: Part, form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a tar archive of these members, in this order."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form, encoding="utf-8", errors="surrogateescape") as archive:
        for entry, data in parts:
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def digest(data: bytes) -> str:
    """Return the digest of ``data``: ``sha256:HEX``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def config(layers: Sequence[bytes], **inner: object) -> bytes:
    """Return an image's configuration for uncompressed ``layers``."""
    rootfs = {"type": "layers", "diff_ids": [digest(data) for data in layers]}
    return json.dumps({"architecture": ARCHITECTURE, "os": "linux", "config": inner, "rootfs": rootfs}).encode()


def docker_save(layers: Sequence[bytes], names: Sequence[str] = (), **inner: object) -> bytes:
    """Return the archive that ``docker save`` writes for one image."""
    document = config(layers, **inner)
    entry = {
        "Config": f"{digest(document)[7:]}.json",
        "RepoTags": list(names) or None,
        "Layers": [f"{digest(data)[7:]}/layer.tar" for data in layers],
    }
    parts = [file(f"{digest(data)[7:]}/layer.tar", data) for data in layers]
    return layer(*parts, file(str(entry["Config"]), document), file("manifest.json", json.dumps([entry]).encode()))


def layout_files(
    layers: Sequence[bytes], stored: Sequence[bytes] | None = None, name: str = "", **inner: object
) -> dict[str, bytes]:
    """Return the files of an OCI image layout. ``stored`` are the same layers, perhaps compressed."""
    document = config(layers, **inner)
    blobs = list(stored or layers)
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "config": described("application/vnd.oci.image.config.v1+json", document),
            "layers": [described("application/vnd.oci.image.layer.v1.tar", blob) for blob in blobs],
        }
    ).encode()
    found = described("application/vnd.oci.image.manifest.v1+json", manifest)
    if name:
        found["annotations"] = {"org.opencontainers.image.ref.name": name}
    index = json.dumps({"schemaVersion": 2, "manifests": [found]}).encode()
    content = {f"blobs/sha256/{digest(blob)[7:]}": blob for blob in (*blobs, document, manifest)}
    return {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": index} | content


def described(kind: str, data: bytes) -> dict[str, object]:
    """Return an OCI descriptor of ``data``."""
    return {"mediaType": kind, "digest": digest(data), "size": len(data)}


def _part(
    name: str,
    kind: bytes,
    data: bytes = b"",
    *,
    link: str = "",
    mode: int = 0o644,
    owner: tuple[int, int] = (0, 0),
) -> Part:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode, entry.mtime = kind, link, mode, 1_600_000_000
    entry.uid, entry.gid = owner
    entry.size = len(data)
    return entry, data
