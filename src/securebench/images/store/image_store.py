"""The image store: one for all drivers and runs of a user, content-addressed, shared read-only.

Agent programs are images of the store, too. On disk, the store is an OCI image layout (``oci-layout``, ``index.json``,
``blobs``) with unpacked images in ``trees``. An image's id is the digest of its configuration, as in an engine.
Several processes and threads may use a store at once. An image is exported as the archive that ``docker load`` reads.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from securebench.errors import ImageError
from securebench.fs.archives import ArchiveLimits
from securebench.fs.locks import take, take_now
from securebench.fs.streams import chunks
from securebench.fs.tar_reader import BLOCK
from securebench.images.layout import encoded
from securebench.images.reference import canonical, check_reference, is_image_id
from securebench.images.store.archive import SAVED
from securebench.images.store.collecting import Collector
from securebench.images.store.incoming import Incoming
from securebench.images.store.index import Catalogue
from securebench.images.store.leases import TreeLease, Trees
from securebench.images.store.places import StorePaths, default_directory, disk_full, explaining
from securebench.images.store.temporary import temporary_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from securebench.images.layout import Descriptor, ImageManifest
    from securebench.images.model import ResolvedImage
    from securebench.images.store.collecting import Pruned, StoreEntry
    from securebench.images.store.index import Origin

__all__ = ["ImageStore", "TreeLease"]

_COPIES = 2
"""Each image is on disk twice: as an archive and as a tree."""

_MIN_FREE = 256 * 1024 * 1024


def saved(places: StorePaths, manifest: ImageManifest, reference: str) -> Iterator[bytes]:
    """Yield an image as an archive for ``docker load``, with the name ``reference`` unless it is empty.

    Raises ``OSError``.
    """
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


class ImageStore:
    """The store in ``directory``, by default that of this user. Its directories are created when they are first needed.

    All methods may also raise :class:`ImageError` (``image-store-damaged``, ``image-store-unusable``) and
    :class:`DiskFullError`.
    """

    def __init__(self, directory: Path | None = None, limits: ArchiveLimits | None = None) -> None:
        self._places = StorePaths(directory or default_directory())
        self._catalogue = Catalogue(self._places)
        self._trees = Trees(self._places, self._catalogue, limits or ArchiveLimits())
        self._collector = Collector(self._places, self._catalogue, self._trees)

    @property
    def directory(self) -> Path:
        """The directory of the store."""
        return self._places.top

    def find(self, reference: str) -> ResolvedImage | None:
        """Return the image with this reference or id, or ``None`` if the store has no such image.

        Raises :class:`ConfigError` (``image-reference-invalid``).
        """
        check_reference(reference)

        def look() -> ResolvedImage | None:
            found = self._catalogue.find(canonical(reference))
            return self._catalogue.resolved(reference, found[1]) if found else None

        return self._catalogue.consistently(look)

    def origin(self, reference: str) -> Origin | None:
        """Return the origin of the image with this reference or id, or ``None`` if there is no such image."""
        found = self._catalogue.find(canonical(reference))
        return found[0].origin if found else None

    def documents(self, image_id: str) -> tuple[ImageManifest, bytes]:
        """Return an image's manifest, and its configuration as stored.

        Raises :class:`ImageError` (``image-unavailable``).
        """

        def look() -> tuple[ImageManifest, bytes]:
            found = self._catalogue.find(image_id)
            if found is None:
                raise ImageError(f"the store has no image {image_id}", hint="see 'securebench images list'")
            return found[1], self._catalogue.written_config(found[1])

        return self._catalogue.consistently(look)

    def labels(self, reference: str) -> Mapping[str, str]:
        """Return the labels of the image with this reference or id, or no labels if there is no such image."""

        def look() -> Mapping[str, str]:
            found = self._catalogue.find(canonical(reference))
            return self._catalogue.config(found[1]).labels if found else {}

        return self._catalogue.consistently(look)

    def lease(self, image_id: str) -> TreeLease:
        """Return a lease of the image's tree, which is unpacked on first use. The caller closes it.

        Raises :class:`ImageError` (``image-unavailable``, ``image-malformed``, ``image-too-large``,
        ``image-blob-mismatch``).
        """
        self._places.make()
        return self._trees.lease(image_id)

    def tree(self, image_id: str) -> Path:
        """Return where the image is or would be unpacked. Only a lease keeps it there."""
        return self._places.tree(image_id)

    def is_intact(self, image_id: str, *, thorough: bool = False) -> bool:
        """Return whether an unpacked image is unchanged, by its metadata or, if ``thorough``, by all of its content."""
        with explaining(self._places.top):
            return self._trees.is_intact(image_id, thorough=thorough)

    def restore(self, image_id: str) -> None:
        """Remove the image's tree if it was changed, so that the next lease unpacks it again.

        Raises :class:`ImageError` (``image-in-use``).
        """
        self._trees.restore(image_id)

    @contextmanager
    def locked(self, name: str, on_wait: Callable[[], None]) -> Iterator[None]:
        """Hold the lock ``name`` of this store in this block. Call ``on_wait`` first if another process holds it."""
        self._places.make()
        with explaining(self._places.top):
            held = take_now(self._places.locks / name)
            if held is None:
                on_wait()
                held = take(self._places.locks / name)
        try:
            yield
        finally:
            os.close(held)

    @contextmanager
    def incoming(self, origin: Origin, size: int = 0) -> Iterator[Incoming]:
        """Begin and yield an import of images with about ``size`` bytes in total.

        At the end of the ``with`` block, an image of the import is removed unless :meth:`Incoming.name` or
        :meth:`Incoming.keep` was called for the image.

        Raises :class:`DiskFullError` before the import begins if the disk has too little free space for it.
        """
        self._places.make()
        self._collector.clear_abandoned()
        free = shutil.disk_usage(self._places.top).free
        if free < size * _COPIES + _MIN_FREE:
            raise disk_full(
                self._places.top,
                f"{free} bytes are free, but {size * _COPIES + _MIN_FREE} bytes are needed",
            )
        with temporary_directory(self._places) as work:
            incoming = Incoming(self._places, work, origin)
            try:
                yield incoming
            finally:
                if incoming.discard():
                    self._collector.collect()

    def saved(self, reference: str) -> Iterator[bytes]:
        """Return the image with this reference or id as a tar archive for ``docker load``, piece by piece.

        In the archive, the image has the reference as its name, or no name if an id was given. Raises
        :class:`ImageError` (``image-unavailable``).
        """
        found = self._catalogue.find(canonical(reference))
        if found is None:
            raise ImageError(f"the store has no image {reference}", hint="see 'securebench images list'")
        return saved(self._places, found[1], "" if is_image_id(reference) else canonical(reference))

    def forget(self, reference: str) -> None:
        """Remove ``reference`` from its image, if an image has it. The image stays, even if it has no other name."""
        if self._places.exist():
            self._collector.forget(canonical(reference))

    def entries(self) -> tuple[StoreEntry, ...]:
        """Return all images except those that are still being imported, named ones first."""
        return self._catalogue.consistently(self._collector.entries)

    def remove(self, reference: str) -> tuple[StoreEntry, ...]:
        """Remove a name, or all names of an image if ``reference`` is its id. Return what was removed.

        An image that loses its last name is removed, too.

        Raises :class:`ConfigError` (``image-reference-invalid``) and :class:`ImageError` (``image-unavailable``,
        ``image-in-use``).
        """
        check_reference(reference)
        self._places.make()
        return self._collector.remove(reference)

    def prune(self, budget_bytes: int | None = None) -> Pruned:
        """Remove unnamed images and unneeded files, then the least recently used images until the budget is met.

        If ``budget_bytes`` is ``None``, no named image is removed. Images in use stay.
        """
        self._places.make()
        return self._collector.prune(budget_bytes)
