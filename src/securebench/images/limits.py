"""How large an image may be: what bounds the work of reading one that was made to be too much."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLimits:
    """Bounds of one image, generous for real ones. What exceeds one raises ``ImageError`` (``image-too-large``)."""

    bytes: int = 64 * GIB
    """Of all layers together, as archives and again as files."""
    members: int = 2_000_000
    """Of all layers together."""
    depth: int = 256
    """Directories above a file."""
    header: int = 1024 * 1024
    """Bytes of one extended header of an archive: names, attributes."""
    ratio: int = 200
    """Bytes for each compressed byte, once there are more than ``ratio_floor``."""
    ratio_floor: int = GIB
