"""Manifests, indexes and configurations: JSON from a registry, validated before anything else reads it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import ImageError
from securebench.images.registry.model import BlobDescriptor, Platform
from securebench.strict_input.json_text import UnfitJsonError, decode_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.resources import JsonValue

MAX_MANIFEST_BYTES: Final = 4 * 1024 * 1024
"""The limit of registries themselves."""

MAX_CONFIG_BYTES: Final = 8 * 1024 * 1024
MAX_LAYERS: Final = 512
MAX_IMAGE_BYTES: Final = 64 * 1024**3
"""All compressed layers together: several times the largest image of a known benchmark."""

_DOCKER: Final = "application/vnd.docker."
_OCI: Final = "application/vnd.oci.image."
INDEX_TYPES: Final = (f"{_OCI}index.v1+json", f"{_DOCKER}distribution.manifest.list.v2+json")
MANIFEST_TYPES: Final = (f"{_OCI}manifest.v1+json", f"{_DOCKER}distribution.manifest.v2+json")
_SCHEMA_1: Final = f"{_DOCKER}distribution.manifest.v1+"
_CONFIG_TYPES: Final = frozenset({f"{_OCI}config.v1+json", f"{_DOCKER}container.image.v1+json"})
_LAYER_TYPES: Final = frozenset(
    {
        f"{_OCI}layer.v1.tar",
        f"{_OCI}layer.v1.tar+gzip",
        f"{_DOCKER}image.rootfs.diff.tar",
        f"{_DOCKER}image.rootfs.diff.tar.gzip",
    }
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RegistryManifest:
    """One image's manifest: its configuration and layers."""

    media_type: str
    config: BlobDescriptor
    layers: tuple[BlobDescriptor, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """The manifests of one reference, each with its platform."""

    entries: tuple[tuple[Platform, BlobDescriptor], ...]

    def choose(self, wanted: Platform) -> BlobDescriptor | None:
        """Return the manifest for ``wanted``: its own variant before compatible ones."""
        offered = dict(reversed(self.entries))  # the first of two wins
        names = [Platform(wanted.os, wanted.architecture, variant) for variant in _variants(wanted)]
        return next((offered[name] for name in names if name in offered), None)

    def offered(self) -> str:
        """Return the platforms, for messages."""
        return ", ".join(dict.fromkeys(str(platform) for platform, _ in self.entries)) or "nothing"


def digest_of(data: bytes) -> str:
    """Return the digest of ``data``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def parse_object(data: bytes, what: str) -> dict[str, JsonValue]:
    """Return the JSON object ``data``, small and shallow. Raises :class:`ImageError` (``registry-answer-invalid``)."""
    try:
        value, _ = decode_json(data.decode())
    except (UnicodeDecodeError, UnfitJsonError) as error:
        raise _invalid(f"{what} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise _invalid(f"{what} is not a JSON object")
    return value


def parse_manifest(data: bytes, announced: str, what: str) -> RegistryManifest | Index:
    """Return the manifest or index in ``data``, for which the registry declared the media type ``announced``.

    An ambiguous document is refused, because another reader could see another image in it. So is an image in a format
    that is not supported.
    Raises :class:`ImageError`: ``registry-answer-invalid``, ``image-format-unsupported``.
    """
    document = parse_object(data, what)
    media_type = _media_type(document, announced, what)
    if document.get("schemaVersion") == 1 or media_type.startswith(_SCHEMA_1):
        raise _unsupported(
            f"{what} has a manifest of schema 1, which has no digests", "push the image again with a current tool"
        )
    is_index, is_manifest = "manifests" in document, "layers" in document or "config" in document
    if is_index and not is_manifest and media_type in INDEX_TYPES:
        return Index(tuple(_entries(_list(document, "manifests", what), what)))
    if is_manifest and not is_index and media_type in MANIFEST_TYPES:
        return _manifest(document, media_type, what)
    raise _invalid(f"{what} is neither a manifest nor an index ({media_type or 'no media type'})")


def made_for(config: bytes, what: str) -> Platform:
    """Return the platform in an image's configuration. Raises :class:`ImageError`."""
    document = parse_object(config, f"the configuration of {what}")
    return _platform(document)


def _media_type(document: dict[str, JsonValue], announced: str, what: str) -> str:
    own = document.get("mediaType", "")
    header = announced.partition(";")[0].strip().lower()
    known = header.startswith((_DOCKER, _OCI))
    if not isinstance(own, str) or (own and known and own != header):
        raise _invalid(f"{what} declares the type {str(own)[:100]!r}, but the registry declares {header[:100]!r}")
    return own or header


def _manifest(document: dict[str, JsonValue], media_type: str, what: str) -> RegistryManifest:
    config = _descriptor(document.get("config"), what)
    layers = tuple(_descriptor(item, what) for item in _list(document, "layers", what))
    if config.media_type not in _CONFIG_TYPES:
        raise _unsupported(f"{what} is not a container image but {config.media_type[:100]!r}", "check the reference")
    for layer in layers:
        _check_layer(layer, what)
    if config.size > MAX_CONFIG_BYTES or len(layers) > MAX_LAYERS or _total(layers) > MAX_IMAGE_BYTES:
        raise _invalid(f"{what} is too large: {len(layers)} layers, {_total(layers)} bytes")
    return RegistryManifest(media_type, config, layers)


def _check_layer(layer: BlobDescriptor, what: str) -> None:
    if layer.media_type.endswith("+zstd"):
        raise _unsupported(f"{what} has layers compressed with zstd", "use or push a variant compressed with gzip")
    if layer.media_type not in _LAYER_TYPES:
        raise _unsupported(f"{what} has a layer of the type {layer.media_type[:100]!r}", "check the reference")


def _entries(items: Sequence[JsonValue], what: str) -> list[tuple[Platform, BlobDescriptor]]:
    """Return the images in an index. Attestations, which have the platform ``unknown``, are left out."""
    found = []
    for item in items:
        platform = item.get("platform") if isinstance(item, dict) else None
        made = _platform(platform if isinstance(platform, dict) else {})
        if made.os not in ("", "unknown"):
            found.append((made, _descriptor(item, what)))
    return found


def _platform(document: dict[str, JsonValue]) -> Platform:
    names = (document.get(key, "") for key in ("os", "architecture", "variant"))
    return Platform(*(name[:40] if isinstance(name, str) and name.isprintable() else "" for name in names))


def _variants(wanted: Platform) -> tuple[str, ...]:
    """Return the variants that run on ``wanted``, best first."""
    if wanted.architecture == "arm" and wanted.variant in ("v7", "v6"):
        return ("v7", "v6", "v5", "") if wanted.variant == "v7" else ("v6", "v5", "")
    if wanted.architecture == "amd64" and not wanted.variant:
        return ("", "v1")
    return (wanted.variant, "") if wanted.variant else ("", "v8")


def runs_on(made: Platform, machine: Platform) -> bool:
    """Whether an image for the platform ``made`` runs on ``machine`` without emulation."""
    same = (made.os, made.architecture) == (machine.os, machine.architecture)
    return same and made.variant in _variants(machine)


def _descriptor(item: JsonValue, what: str) -> BlobDescriptor:
    values = item if isinstance(item, dict) else {}
    media_type, digest, size = values.get("mediaType"), values.get("digest"), values.get("size")
    if not isinstance(digest, str) or not isinstance(media_type, str) or not _DIGEST.fullmatch(digest):
        raise _invalid(f"{what} has a descriptor without a media type or sha256 digest")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_IMAGE_BYTES:
        raise _invalid(f"{what} has a descriptor with an invalid size")
    return BlobDescriptor(media_type, digest, size)


def _list(document: dict[str, JsonValue], key: str, what: str) -> list[JsonValue]:
    value = document.get(key)
    if not isinstance(value, list):
        raise _invalid(f"{what} has no list of {key}")
    return value


def _total(layers: Sequence[BlobDescriptor]) -> int:
    return sum(layer.size for layer in layers)


def _invalid(message: str) -> ImageError:
    return ImageError(
        message,
        code="registry-answer-invalid",
        hint="check the reference, and any proxy between this machine and the registry",
    )


def _unsupported(message: str, hint: str) -> ImageError:
    return ImageError(message, code="image-format-unsupported", hint=hint)
