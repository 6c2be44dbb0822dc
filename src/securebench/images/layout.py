"""The documents of an OCI image layout: index, manifest and image configuration.

They are always untrusted. The code that reads a document limits its size, and this module checks its structure. A
malformed document raises :class:`ImageError` (``image-malformed``) with its name and the place in it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from securebench.fs.archives import malformed
from securebench.images.model import ResolvedImage
from securebench.strict_input.json_text import UnfitJsonError, decode_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
MANIFEST_TYPES = (MANIFEST_TYPE, "application/vnd.docker.distribution.manifest.v2+json")
INDEX_TYPES = (INDEX_TYPE, "application/vnd.docker.distribution.manifest.list.v2+json")

LAYOUT_FILE = "oci-layout"
LAYOUT = {"imageLayoutVersion": "1.0.0"}
INDEX_FILE = "index.json"
REFERENCE_KEY = "org.opencontainers.image.ref.name"

MAX_DOCUMENT = 8 * 1024 * 1024
_MAX_VALUES = 300_000
"""The maximum number of values in a document.

An image may expose every TCP and UDP port, each as a name and an empty object.
"""
MAX_LAYERS = 512
"""The maximum number of layers of an image: four times the limit of any engine."""
MAX_IMAGES = 10_000

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A reference to content: its digest (``sha256:...``), size in bytes, media type and annotations."""

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Any, where: str) -> Descriptor:
        """Read a descriptor. Raises :class:`ImageError` (``image-malformed``)."""
        media_type, digest = text(value, "mediaType", where), text(value, "digest", where)
        size, annotations = value.get("size"), value.get("annotations") or {}
        if not _DIGEST.fullmatch(digest):
            raise malformed(where, f"its digest is {digest[:80]!r}, not 'sha256:' and 64 hexadecimal digits")
        if type(size) is not int or size < 0:
            raise malformed(where, f"its size is {size!r:.80}, not a number of bytes")
        if not isinstance(annotations, dict) or not all(isinstance(note, str) for note in annotations.values()):
            raise malformed(where, "its annotations are not an object whose values are all strings")
        return cls(media_type, digest, size, annotations)

    def to_json(self) -> dict[str, Any]:
        """Return the descriptor as JSON."""
        noted = {"annotations": dict(self.annotations)} if self.annotations else {}
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size} | noted


@dataclass(frozen=True, slots=True)
class ImageManifest:
    """An image: its configuration, whose digest is the image's id, and its layers, the lowest first."""

    config: Descriptor
    layers: tuple[Descriptor, ...]

    @classmethod
    def parse(cls, data: bytes, where: str) -> ImageManifest:
        """Read a manifest. Raises :class:`ImageError` (``image-malformed``)."""
        value = document(data, where)
        config = Descriptor.from_json(value.get("config"), f"{where}: /config")
        layers = items(value, "layers", where)
        return cls(config, tuple(Descriptor.from_json(e, f"{where}: /layers/{i}") for i, e in enumerate(layers)))

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON bytes."""
        layers = [layer.to_json() for layer in self.layers]
        head = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE}
        return encoded(head | {"config": self.config.to_json(), "layers": layers})


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """The fields of an image's configuration that SecureBench uses.

    ``diff_ids`` are the digests of the layers' uncompressed tar archives, lowest first.
    """

    environment: Mapping[str, str]
    workdir: str
    user: str
    volumes: tuple[str, ...]
    os: str
    architecture: str
    diff_ids: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: bytes, where: str) -> ImageConfig:
        """Read a configuration. Raises :class:`ImageError` (``image-malformed``)."""
        value = document(data, where)
        inner = value.get("config") or {}
        if not isinstance(inner, dict):
            raise malformed(f"{where}: /config", "it is not an object")
        volumes = inner.get("Volumes") or {}
        if not isinstance(volumes, dict):
            raise malformed(f"{where}: /config/Volumes", "it is not an object")
        diff_ids = texts(value.get("rootfs") or {}, "diff_ids", f"{where}: /rootfs")
        if not all(map(_DIGEST.fullmatch, diff_ids)):
            raise malformed(f"{where}: /rootfs/diff_ids", "not all of them are digests")
        pairs = (entry.partition("=") for entry in texts(inner, "Env", f"{where}: /config"))
        return cls(
            environment={name: value for name, _, value in pairs},
            workdir=text(inner, "WorkingDir", f"{where}: /config", optional=True) or "/",
            user=text(inner, "User", f"{where}: /config", optional=True),
            volumes=tuple(sorted(volumes)),
            os=text(value, "os", where, optional=True),
            architecture=text(value, "architecture", where, optional=True),
            diff_ids=diff_ids,
            labels=_labels(inner, where),
        )

    def resolved(self, reference: str, image_id: str, size: int) -> ResolvedImage:
        """Return the resolved image with this configuration. ``size`` is the size of all layers in bytes."""
        return ResolvedImage(
            reference=reference,
            id=image_id,
            environment=self.environment,
            workdir=self.workdir,
            user=self.user,
            architecture=self.architecture,
            size_bytes=size,
            volumes=self.volumes,
        )


def _labels(inner: Mapping[str, Any], where: str) -> dict[str, str]:
    labels = inner.get("Labels") or {}
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise malformed(f"{where}: /config/Labels", "it is not an object whose values are all strings")
    return labels


def parse_index(data: bytes, where: str) -> tuple[Descriptor, ...]:
    """Return the descriptors of the manifests in an index. Raises :class:`ImageError` (``image-malformed``)."""
    manifests = items(document(data, where), "manifests", where, limit=MAX_IMAGES)
    return tuple(Descriptor.from_json(entry, f"{where}: /manifests/{i}") for i, entry in enumerate(manifests))


def index_bytes(manifests: Sequence[Descriptor]) -> bytes:
    """Return an index as JSON bytes."""
    entries = [manifest.to_json() for manifest in manifests]
    return encoded({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": entries})


def encoded(value: object) -> bytes:
    """Return the JSON bytes of a value, always the same for the same value."""
    return json.dumps(value, indent=1, sort_keys=True).encode()


def document(data: bytes, where: str) -> dict[str, Any]:
    """Parse ``data`` as a JSON object. Raises :class:`ImageError` (``image-malformed``)."""
    value = _decoded(data, where)
    if not isinstance(value, dict):
        raise malformed(where, "it is not a JSON object")
    return value


def json_list(data: bytes, where: str) -> list[Any]:
    """Parse ``data`` as a JSON list, of limited length. Raises :class:`ImageError` (``image-malformed``)."""
    found = _decoded(data, where)
    if not isinstance(found, list):
        raise malformed(where, "it is not a list")
    return _limited(found, "it", where, MAX_LAYERS)


def text(value: Any, key: str, where: str, *, optional: bool = False) -> str:
    """Return the string at ``key`` of an object. With ``optional``, a missing or null value is an empty string."""
    found = value.get(key) if isinstance(value, dict) else None
    if found is None and optional and isinstance(value, dict):
        return ""
    if not isinstance(found, str):
        raise malformed(where, f"its {key!r} is missing or not a string")
    return found


def items(value: Mapping[str, Any], key: str, where: str, *, limit: int = MAX_LAYERS) -> list[Any]:
    """Return the list at ``key`` of an object, checking its length."""
    found = value.get(key)
    if not isinstance(found, list):
        raise malformed(where, f"its {key!r} is missing or not a list")
    return _limited(found, f"its list {key!r}", where, limit)


def _limited(found: list[Any], what: str, where: str, limit: int) -> list[Any]:
    if len(found) > limit:
        raise malformed(where, f"{what} has {len(found)} entries, more than {limit}")
    return found


def _decoded(data: bytes, where: str) -> Any:
    try:
        return decode_json(data.decode("utf-8"), _MAX_VALUES)[0]
    except (UnfitJsonError, UnicodeDecodeError) as error:
        raise malformed(where, f"it cannot be read as JSON: {error}") from None


def texts(value: Any, key: str, where: str) -> tuple[str, ...]:
    """Return the list of strings at ``key`` of an object; empty if it is missing or null."""
    found = (value.get(key) if isinstance(value, dict) else None) or []
    if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
        raise malformed(where, f"its {key!r} is not a list of strings")
    return tuple(found)
