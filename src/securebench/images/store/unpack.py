"""Unpack an image: its layers, one on top of the other, become one directory tree.

The archives are hostile: every write goes through descriptors below the tree's root, no link leads out of it, only
files, directories and links are created, and bytes, members, depth and names have limits. The digest of each layer's
archive must be the one in the image's configuration, whose own digest is the image's id.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from securebench.fs.archives import ArchiveLimits, wrong_digest
from securebench.fs.safe_open import OPEN_DIRECTORY, OPEN_FILE, opened
from securebench.fs.streams import Digester, chunks, decompressed
from securebench.fs.tar_reader import TarReader
from securebench.images.store.tree_builder import TreeBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from securebench.images.store.tree_builder import Unpacked


@dataclass(frozen=True, slots=True)
class Layer:
    """An archive, compressed or not, and ``diff_id``, the digest of the uncompressed tar archive."""

    path: Path
    diff_id: str


def unpack(layers: Sequence[Layer], root: Path, shift: int, limits: ArchiveLimits | None = None) -> Unpacked:
    """Unpack into ``root``, an empty private directory, and return statistics.

    ``shift`` is added to each owner; without one, this user owns everything. Raises :class:`ImageError`
    (``image-malformed``, ``image-too-large``, ``image-blob-mismatch``) and ``OSError``.
    """
    limits = limits or ArchiveLimits()
    with opened(root, OPEN_DIRECTORY) as descriptor:
        builder = TreeBuilder(descriptor, shift, limits)
        try:
            for number, layer in enumerate(layers, start=1):
                size = _unpack_layer(builder, layer, f"layer {number} of {len(layers)}", limits)
                limits = replace(limits, bytes=max(0, limits.bytes - size))
            builder.finish()
        finally:
            builder.close()
    return builder.unpacked


def _unpack_layer(builder: TreeBuilder, layer: Layer, what: str, limits: ArchiveLimits) -> int:
    """Unpack one layer, and return the size of its archive in bytes."""
    with opened(layer.path, OPEN_FILE) as descriptor, os.fdopen(descriptor, "rb", buffering=0, closefd=False) as file:
        digester = Digester()
        reader = TarReader(digester.through(decompressed(chunks(file), limits, what)), what, limits.header)
        builder.begin_layer(what)
        for member in reader:
            builder.add(member, reader.content())
    if digester.digest != layer.diff_id:
        raise wrong_digest(what, layer.diff_id, digester.digest)
    return digester.size
