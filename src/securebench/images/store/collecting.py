"""Listing the images of a store, and removing them: by name, down to a budget, or because nothing needs them.

Under the store's lock, an image is removed from the index, then its tree is moved to the trash, and then the blobs that
no other image needs are deleted. The trash is deleted after the lock is released, because deleting a tree takes
seconds. If the process is killed during any of these steps, it leaves only files that a later prune deletes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from securebench.errors import ImageError
from securebench.fs.locks import locked
from securebench.images.reference import canonical, is_image_id
from securebench.images.store.index import ImageSource, tidied
from securebench.images.store.leases import in_use
from securebench.images.store.places import explaining
from securebench.images.store.temporary import changing

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.images.store.index import Catalogue, Listed
    from securebench.images.store.leases import Trees
    from securebench.images.store.places import StorePaths
    from securebench.images.store.temporary import Trash


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEntry:
    """An image of the store. ``reference`` is empty if the image has no name. Sizes are in bytes.

    ``used_at`` is when the image was last leased or, if it was never leased, imported. ``added_at`` is when it was
    imported. Both are in seconds since 1970.
    """

    reference: str
    id: str
    source: ImageSource
    layer_bytes: int
    tree_bytes: int
    used_at: float
    added_at: float
    unpacked: bool
    in_use: bool


@dataclass(frozen=True, slots=True)
class Pruned:
    """The images that a prune removed, and the size of the store before and after, in bytes."""

    removed: tuple[StoreEntry, ...]
    bytes_before: int
    bytes_after: int


class Collector:
    """Lists the images of a store and removes them."""

    def __init__(self, places: StorePaths, catalogue: Catalogue, trees: Trees) -> None:
        self._places = places
        self._catalogue = catalogue
        self._trees = trees

    def entries(self) -> tuple[StoreEntry, ...]:
        """Return all images except those that are still being imported, named ones first."""
        found = [self._entry(image) for image in self._catalogue.read() if not image.pending]
        return tuple(sorted(found, key=lambda entry: (not entry.reference, entry.reference, entry.id)))

    def clear_abandoned(self) -> None:
        """Remove the unfinished work of killed processes."""
        with explaining(self._places.top), changing(self._places) as trash:
            self._clear_abandoned(trash)

    def collect(self) -> None:
        """Remove trees and blobs that no listed image needs."""
        with explaining(self._places.top), changing(self._places) as trash:
            self._collect(trash)

    def forget(self, reference: str) -> None:
        """Remove a canonical reference from its image, which stays."""
        with explaining(self._places.top), locked(self._places.store_lock):
            images = self._catalogue.read()
            self._catalogue.write(tidied(replace(e, reference="") if e.reference == reference else e for e in images))

    def remove(self, reference: str) -> tuple[StoreEntry, ...]:
        """Remove a name from the store, or all names of an image if ``reference`` is its id. Return what was removed.

        An image that loses its last name is removed, too. Raises :class:`ImageError` (``image-unavailable``,
        ``image-in-use``).
        """
        wanted = canonical(reference)
        with explaining(self._places.top), changing(self._places) as trash:
            entries = self.entries()
            doomed = [e for e in entries if wanted == (e.id if is_image_id(wanted) else e.reference)]
            if not doomed:
                raise ImageError(f"the store has no image {reference}", hint="see 'securebench images list'")
            names = {entry.reference for entry in doomed}
            if any(entry.id == doomed[0].id and entry.reference not in names for entry in entries):
                self._unlist(lambda image: image.reference in names)
            elif not self._remove_image(doomed[0].id, trash):
                raise in_use(reference)
            self._collect(trash)
        return tuple(doomed)

    def prune(self, budget_bytes: int | None) -> Pruned:
        """Remove unnamed images and unneeded files, then the least recently used images until the budget is met.

        If ``budget_bytes`` is ``None``, no named image is removed. An image that is in use is never removed.
        """
        with explaining(self._places.top), changing(self._places) as trash:
            before = self._size()
            self._clear_abandoned(trash)
            nameless = [entry for entry in self.entries() if not entry.reference]
            removed = [entry for entry in nameless if self._remove_image(entry.id, trash)]
            self._collect(trash)
            by_age = sorted(self.entries(), key=lambda entry: entry.used_at)
            for entry in by_age if budget_bytes is not None else ():
                if self._size() <= (budget_bytes or 0):
                    break
                if self._remove_image(entry.id, trash):
                    removed += [other for other in by_age if other.id == entry.id]
                    self._collect(trash)
            return Pruned(tuple(removed), before, self._size())

    def _entry(self, image: Listed) -> StoreEntry:
        manifest = self._catalogue.manifest(image)
        image_id = manifest.config.digest
        tree = self._trees.find(image_id)
        came_in = self._places.blob(image.manifest.digest).stat().st_mtime
        return StoreEntry(
            reference=image.reference,
            id=image_id,
            source=image.origin.source,
            layer_bytes=sum(layer.size for layer in manifest.layers),
            tree_bytes=tree.size_bytes if tree else 0,
            used_at=tree.used_at if tree else came_in,
            added_at=came_in,
            unpacked=bool(tree and tree.is_unpacked),
            in_use=bool(tree and tree.in_use),
        )

    def _clear_abandoned(self, trash: Trash) -> None:
        trash.put_abandoned(lambda works: self._unlist(lambda image: image.pending in works))

    def _unlist(self, doomed: Callable[[Listed], bool]) -> None:
        images = self._catalogue.read()
        kept = [image for image in images if not doomed(image)]
        if len(kept) != len(images):
            self._catalogue.write(tidied(kept))

    def _remove_image(self, image_id: str, trash: Trash) -> bool:
        """Remove an image and all of its names, or return ``False`` if it is in use."""
        with self._trees.claimed(image_id) as free:
            if free:
                self._unlist(lambda image: self._catalogue.manifest(image).config.digest == image_id)
                self._trees.remove(image_id, trash)
            return free

    def _collect(self, trash: Trash) -> None:
        """Remove trees and blobs that no listed image needs."""
        images = self._catalogue.read()
        manifests = [self._catalogue.manifest(image) for image in images]
        ids = {manifest.config.digest for manifest in manifests}
        found = {f"sha256:{path.name}" for top in (self._places.trees, self._places.locks) for path in top.iterdir()}
        for image_id in found - ids - {f"sha256:{self._places.store_lock.name}"}:
            with self._trees.claimed(image_id) as free:
                if free:
                    self._trees.remove(image_id, trash)
        needed = {image.manifest.digest for image in images} | ids
        needed |= {layer.digest for manifest in manifests for layer in manifest.layers}
        for path in self._places.blobs.iterdir():
            if f"sha256:{path.name}" not in needed:
                path.unlink()

    def _size(self) -> int:
        """Return the total size of blobs and trees in bytes."""
        blobs = sum(path.stat().st_size for path in self._places.blobs.iterdir())
        trees = {entry.id: entry.tree_bytes for entry in self.entries()}
        return blobs + sum(trees.values())
