"""Unpacked images, shared: each is unpacked once, read by many, and not removed while one of them lives.

The file of an image's lock holds what is known of its tree; its time is when the tree was last used.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from securebench.errors import ImageError
from securebench.fs.durable import sync_directory, sync_file_system
from securebench.fs.locks import take
from securebench.images.store.ids import tree_shift
from securebench.images.store.places import explaining
from securebench.images.store.temporary import temporary_directory
from securebench.images.store.unpack import Layer, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.fs.archives import ArchiveLimits
    from securebench.images.store.index import Catalogue
    from securebench.images.store.places import StorePaths
    from securebench.images.store.temporary import Trash


class TreeLease:
    """The right to read an unpacked image: ``root`` is its directory, and stays until :meth:`close`.

    The files belong to the ids of the image plus :func:`~securebench.images.store.ids.tree_shift`. Nobody may change
    them.
    """

    def __init__(self, root: Path, held: int) -> None:
        self.root = root
        self._held = held

    def close(self) -> None:
        """Let go of it. Idempotent."""
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class StoredTree:
    """What is known of an image's tree: its size in bytes, when it was last used, in seconds since 1970."""

    is_there: bool
    size_bytes: int
    used_at: float
    in_use: bool


class Trees:
    """The unpacked images of a store."""

    def __init__(self, places: StorePaths, catalogue: Catalogue, limits: ArchiveLimits) -> None:
        self._places = places
        self._catalogue = catalogue
        self._limits = limits

    def lease(self, image_id: str) -> TreeLease:
        """Return the tree of an image of the list, unpacked now if it is not. Raises as :func:`unpack` does."""
        lock, tree = self._places.lock(image_id), self._places.tree(image_id)
        with explaining(self._places.top):
            while True:
                held = take(lock, shared=True)  # which waits while somebody unpacks
                assert held is not None
                if tree.is_dir():
                    os.utime(held)
                    return TreeLease(tree, held)
                os.close(held)
                with self.claimed(image_id) as free:  # and never waits for who reads: that may take hours
                    if free and not tree.is_dir():
                        self._unpack(image_id)

    def find(self, image_id: str) -> StoredTree | None:
        """Say what is known of an image's tree; ``None`` if it was never unpacked."""
        lock = self._places.lock(image_id)
        if not lock.is_file():
            return None
        used_at = lock.stat().st_mtime
        with self.claimed(image_id) as free:
            return StoredTree(self._places.tree(image_id).is_dir(), _noted_size(lock), used_at, in_use=not free)

    @contextmanager
    def claimed(self, image_id: str) -> Iterator[bool]:
        """Keep an image from being leased or unpacked in this block, and say whether that could be: not if it is."""
        held = take(self._places.lock(image_id), wait=False)
        try:
            yield held is not None
        finally:
            if held is not None:
                os.close(held)

    def remove(self, image_id: str, trash: Trash) -> None:
        """Move a tree to the trash, if it was unpacked. The caller has claimed it and holds the store's lock."""
        trash.put(self._places.tree(image_id))
        self._places.lock(image_id).unlink()

    def _unpack(self, image_id: str) -> None:
        found = self._catalogue.find(image_id)
        if found is None:
            raise ImageError(f"the image {image_id} is not in the store", hint="see 'securebench images list'")
        _, manifest = found
        diff_ids = self._catalogue.config(manifest).diff_ids
        layers = [
            Layer(self._places.blob(layer.digest), diff_id)
            for layer, diff_id in zip(manifest.layers, diff_ids, strict=True)
        ]
        with temporary_directory(self._places) as work:
            root = work / "root"
            root.mkdir(mode=0o700)
            unpacked = unpack(layers, root, tree_shift(), self._limits)
            self._places.lock(image_id).write_text(json.dumps({"bytes": unpacked.bytes}))
            sync_file_system(root)
            root.rename(self._places.tree(image_id))
            sync_directory(self._places.trees)


def _noted_size(lock: Path) -> int:
    try:
        return int(json.loads(lock.read_text())["bytes"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
