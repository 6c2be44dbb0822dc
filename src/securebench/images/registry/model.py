"""Platforms, blobs, and downloaded images."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from securebench.images.layout import Descriptor

_ARCHITECTURES: Final[Mapping[str, tuple[str, str]]] = {
    "x86_64": ("amd64", ""),
    "i686": ("386", ""),
    "aarch64": ("arm64", "v8"),
    "armv7l": ("arm", "v7"),
    "armv6l": ("arm", "v6"),
    "loongarch64": ("loong64", ""),
}
"""Maps the kernel's name of a machine type to the architecture and variant in images, if the names differ."""


@dataclass(frozen=True, slots=True)
class Platform:
    """The platform of an image or machine. An empty ``variant`` is the architecture's baseline."""

    os: str
    architecture: str
    variant: str = ""

    @classmethod
    def of_this_machine(cls) -> Platform:
        """Return the platform that this machine runs without emulation."""
        machine = platform.machine()
        architecture, variant = _ARCHITECTURES.get(machine, (machine, ""))
        return cls("linux", architecture, variant)

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


@dataclass(frozen=True, slots=True)
class Fetched:
    """An image from a registry. Its layers are in the caller's :class:`BlobSink`.

    ``manifest`` and ``config`` are the exact bytes that the registry sent. ``reference`` is the requested one, as
    written. ``config_digest`` is the image's id. ``layers`` are in the order in which they are applied; a layer may be
    repeated.
    """

    reference: str
    manifest: bytes
    manifest_digest: str
    media_type: str
    config: bytes
    config_digest: str
    layers: tuple[Descriptor, ...]


class BlobSink(Protocol):
    """Storage for blobs. Several threads call it at once, but never for the same digest."""

    def has(self, digest: str) -> bool:
        """Return whether the sink already has the blob, complete and checked, so that it need not be downloaded."""
        ...

    def write(self, digest: str, size: int, pieces: Iterable[bytes]) -> None:
        """Store a blob under its digest once all ``pieces`` have arrived.

        ``pieces`` may raise, even after the last piece; then nothing is stored. Raises
        :class:`~securebench.errors.ImageError`.
        """
        ...
