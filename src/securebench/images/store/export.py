"""Export an image of the store as the tar archive that ``docker load`` reads, piece by piece."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

from securebench.fs.streams import chunks
from securebench.fs.tar_reader import BLOCK
from securebench.images.layout import encoded
from securebench.images.store.archive import SAVED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.images.layout import Descriptor, ImageManifest
    from securebench.images.store.places import StorePaths


def saved(places: StorePaths, manifest: ImageManifest, reference: str) -> Iterator[bytes]:
    """Yield the archive. ``reference`` is the name of the image in it; empty for none. Raises ``OSError``."""
    names = {blob.digest: f"blobs/sha256/{blob.digest.removeprefix('sha256:')}" for blob in _blobs(manifest)}
    for blob in _blobs(manifest):
        yield _header(names[blob.digest], blob.size)
        yield from _content(places.blob(blob.digest))
        yield bytes(-blob.size % BLOCK)
    entry = {
        "Config": names[manifest.config.digest],
        "RepoTags": [reference] if reference else [],
        "Layers": [names[layer.digest] for layer in manifest.layers],
    }
    document = encoded([entry])
    yield _header(SAVED, len(document))
    yield document + bytes(-len(document) % BLOCK) + bytes(2 * BLOCK)


def _blobs(manifest: ImageManifest) -> list[Descriptor]:
    """Return the configuration and the layers, without duplicates."""
    return list({blob.digest: blob for blob in (manifest.config, *manifest.layers)}.values())


def _header(name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size = size
    return entry.tobuf(tarfile.GNU_FORMAT)


def _content(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from chunks(file)
