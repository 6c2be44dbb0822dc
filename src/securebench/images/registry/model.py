"""What a registry is asked for, what it gives, and where that goes."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ARCHITECTURES: Final[Mapping[str, tuple[str, str]]] = {
    "x86_64": ("amd64", ""),
    "i686": ("386", ""),
    "aarch64": ("arm64", "v8"),
    "armv7l": ("arm", "v7"),
    "armv6l": ("arm", "v6"),
    "loongarch64": ("loong64", ""),
}
"""The kernel's names of machines, and the architecture and variant that images are made for. Others are the same."""


@dataclass(frozen=True, slots=True)
class Platform:
    """What an image is made for. An empty ``variant`` is the architecture's plainest."""

    os: str
    architecture: str
    variant: str = ""

    @classmethod
    def of_this_machine(cls) -> Platform:
        """Return what runs here without emulation."""
        machine = platform.machine()
        architecture, variant = _ARCHITECTURES.get(machine, (machine, ""))
        return cls("linux", architecture, variant)

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


@dataclass(frozen=True, slots=True)
class BlobDescriptor:
    """A blob by its digest (``sha256:...``), with its size in bytes and its media type."""

    media_type: str
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """An image whose layers are in the sink. ``manifest`` and ``config`` are the exact bytes; their digests hold.

    ``reference`` is what was asked for, as it was written. ``config_digest`` is the image's id. ``layers`` are in the
    order in which they are applied, repeated ones repeated.
    """

    reference: str
    manifest: bytes
    manifest_digest: str
    media_type: str
    config: bytes
    config_digest: str
    layers: tuple[BlobDescriptor, ...]


class BlobSink(Protocol):
    """Where blobs go. Its methods are called by several threads at once, each digest by one."""

    def has(self, digest: str) -> bool:
        """Say whether the blob is there already, whole and checked: it is then not downloaded."""
        ...

    def write(self, digest: str, size: int, pieces: Iterable[bytes]) -> None:
        """Keep a blob under its digest once ``pieces`` have come to their end and are what was announced.

        ``pieces`` may raise; nothing is then kept. Raises :class:`~securebench.errors.ImageError`.
        """
        ...
