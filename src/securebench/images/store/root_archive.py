"""Create an image from a root file system archive: one layer and a generated configuration."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from securebench.fs.archives import ArchiveLimits
from securebench.fs.streams import decompressed
from securebench.images.layout import LAYER_TYPE, encoded
from securebench.images.registry.model import Platform

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from securebench.images.store.incoming import Incoming


@dataclass(frozen=True, slots=True)
class RootConfig:
    """The configuration of an image that is made from a root file system."""

    environment: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def add_root(incoming: Incoming, pieces: Iterable[bytes], config: RootConfig, what: str) -> str:
    """Add the image of a tar archive, compressed or not, for this machine's architecture, and return its id.

    The same archive and configuration always give the same id: the image records no time. ``what`` names the archive in
    errors. Raises :class:`ImageError` (``image-malformed``, ``image-too-large``).
    """
    layer = incoming.take(decompressed(pieces, ArchiveLimits(), what))
    return incoming.add(root_config(config, layer.digest), [replace(layer, media_type=LAYER_TYPE)])


def root_config(config: RootConfig, diff_id: str) -> bytes:
    """Return the configuration of an image for this machine. ``diff_id`` is the digest of its layer's tar archive."""
    platform = Platform.of_this_machine()
    inner = {
        "Env": [f"{name}={value}" for name, value in config.environment.items()],
        "Cmd": list(config.command),
        "Labels": dict(config.labels),
    }
    return encoded(
        {
            "architecture": platform.architecture,
            "os": platform.os,
            "config": {name: value for name, value in inner.items() if value},
            "rootfs": {"type": "layers", "diff_ids": [diff_id]},
            "history": [{"created_by": "securebench"}],
        }
    )
