"""Manifests, indexes and configurations: JSON from a registry, validated before anything else reads it."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import ImageError
from securebench.images.layout import INDEX_TYPES, MANIFEST_TYPES, MAX_IMAGES, Descriptor, document, items
from securebench.images.registry.model import Platform

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_MANIFEST_BYTES: Final = 4 * 1024 * 1024
"""The maximum size of a manifest or an index, in bytes. Registries have the same limit."""

MAX_CONFIG_BYTES: Final = 8 * 1024 * 1024
MAX_IMAGE_BYTES: Final = 64 * 1024**3
"""The maximum size of all compressed layers together, in bytes: several times the largest known benchmark image."""

_DOCKER: Final = "application/vnd.docker."
_OCI: Final = "application/vnd.oci.image."
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


@dataclass(frozen=True, slots=True)
class RegistryManifest:
    """One image's manifest: its configuration and layers."""

    media_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """The manifests of one reference, each with its platform."""

    entries: tuple[tuple[Platform, Descriptor], ...]

    def choose(self, wanted: Platform) -> Descriptor | None:
        """Return the manifest for ``wanted``, or ``None``. The same variant is preferred to compatible ones."""
        offered = dict(reversed(self.entries))  # of two entries for a platform, the first wins
        names = [Platform(wanted.os, wanted.architecture, variant) for variant in _variants(wanted)]
        return next((offered[name] for name in names if name in offered), None)

    def offered(self) -> str:
        """Return the end of a message that says for which platforms the index has images."""
        names = ", ".join(dict.fromkeys(str(platform) for platform, _ in self.entries))
        return f"only for {names}" if names else "because its index lists no images"


def digest_of(data: bytes) -> str:
    """Return the digest of ``data``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@contextmanager
def _answers() -> Iterator[None]:
    """Turn ``image-malformed`` into ``registry-answer-invalid``: a registry sent the malformed document."""
    try:
        yield
    except ImageError as error:
        raise (_invalid(error.message) if error.code == "image-malformed" else error) from None


def parse_object(data: bytes, what: str) -> dict[str, Any]:
    """Parse ``data`` as a JSON object. Raises :class:`ImageError` (``registry-answer-invalid``)."""
    with _answers():
        return document(data, what)


def parse_manifest(data: bytes, announced: str, what: str) -> RegistryManifest | Index:
    """Return the manifest or index in ``data``, for which the registry declared the media type ``announced``.

    An ambiguous document is refused, because another program could read a different image from it. An image in an
    unsupported format is refused, too.

    Raises :class:`ImageError`: ``registry-answer-invalid``, ``image-format-unsupported``.
    """
    value = parse_object(data, what)
    media_type = _media_type(value, announced, what)
    if value.get("schemaVersion") == 1 or media_type.startswith(_SCHEMA_1):
        raise _unsupported(
            f"{what} has a manifest of schema 1, which is obsolete", "push the image again with a current tool"
        )
    is_index, is_manifest = "manifests" in value, "layers" in value or "config" in value
    with _answers():
        if is_index and not is_manifest and media_type in INDEX_TYPES:
            return Index(tuple(_entries(items(value, "manifests", what, limit=MAX_IMAGES), what)))
        if is_manifest and not is_index and media_type in MANIFEST_TYPES:
            return _manifest(value, media_type, what)
    raise _invalid(f"{what} is neither a manifest nor an index ({media_type or 'no media type'})")


def made_for(config: bytes, what: str) -> Platform:
    """Return the platform in an image's configuration. Raises :class:`ImageError`."""
    return _platform(parse_object(config, f"the configuration of {what}"))


def _media_type(value: dict[str, Any], announced: str, what: str) -> str:
    own = value.get("mediaType", "")
    header = announced.partition(";")[0].strip().lower()
    known = header.startswith((_DOCKER, _OCI))
    if not isinstance(own, str) or (own and known and own != header):
        raise _invalid(f"{what} declares the type {str(own)[:100]!r}, but the registry declares {header[:100]!r}")
    return own or header


def _manifest(value: dict[str, Any], media_type: str, what: str) -> RegistryManifest:
    config = Descriptor.from_json(value.get("config"), what)
    layers = tuple(Descriptor.from_json(item, what) for item in items(value, "layers", what))
    if config.media_type not in _CONFIG_TYPES:
        raise _unsupported(f"{what} is not a container image but {config.media_type[:100]!r}", "check the reference")
    for layer in layers:
        _check_layer(layer, what)
    total = sum(layer.size for layer in layers)
    if config.size > MAX_CONFIG_BYTES or total > MAX_IMAGE_BYTES:
        raise _invalid(f"{what} is too large: {config.size} bytes of configuration, {total} bytes of layers")
    return RegistryManifest(media_type, config, layers)


def _check_layer(layer: Descriptor, what: str) -> None:
    if layer.media_type.endswith("+zstd"):
        raise _unsupported(f"{what} has layers compressed with zstd", "use or push a variant compressed with gzip")
    if layer.media_type not in _LAYER_TYPES:
        raise _unsupported(f"{what} has the unsupported layer type {layer.media_type[:100]!r}", "check the reference")


def _entries(entries: Sequence[Any], what: str) -> list[tuple[Platform, Descriptor]]:
    """Return the images in an index. Skip attestations (platform ``unknown``) and entries without a platform."""
    found = []
    for item in entries:
        platform = item.get("platform") if isinstance(item, dict) else None
        made = _platform(platform if isinstance(platform, dict) else {})
        if made.os not in ("", "unknown"):
            found.append((made, Descriptor.from_json(item, what)))
    return found


def _platform(value: dict[str, Any]) -> Platform:
    names = (value.get(key, "") for key in ("os", "architecture", "variant"))
    return Platform(*(name[:40] if isinstance(name, str) and name.isprintable() else "" for name in names))


def _variants(wanted: Platform) -> tuple[str, ...]:
    """Return the variants that run on ``wanted``, best first."""
    if wanted.architecture == "arm" and wanted.variant in ("v7", "v6"):
        return ("v7", "v6", "v5", "") if wanted.variant == "v7" else ("v6", "v5", "")
    if wanted.architecture == "amd64" and not wanted.variant:
        return ("", "v1")
    return (wanted.variant, "") if wanted.variant else ("", "v8")


def runs_on(made: Platform, machine: Platform) -> bool:
    """Return whether an image for the platform ``made`` runs on ``machine`` without emulation."""
    same = (made.os, made.architecture) == (machine.os, machine.architecture)
    return same and made.variant in _variants(machine)


def _invalid(message: str) -> ImageError:
    return ImageError(
        message,
        code="registry-answer-invalid",
        hint="check the reference, and any proxy between this machine and the registry",
    )


def _unsupported(message: str, hint: str) -> ImageError:
    return ImageError(message, code="image-format-unsupported", hint=hint)
