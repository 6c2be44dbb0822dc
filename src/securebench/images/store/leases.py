"""Unpacked images, which sandboxes share: each is unpacked once, and not removed while it is leased.

The layers of an image, one on top of the other, become one directory tree. The archives are hostile: every write goes
through descriptors below the tree's root, no link is followed out of it, only files, directories and links are created,
and bytes, members, depth and names have limits. The digest of each layer's uncompressed archive must be the one
in the image's configuration. The digest of the configuration is the image's id.

The lock file of an image contains notes about its tree: the size, and a quick digest of the metadata, to notice
changes. The mtime of the file is when the tree was last used.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

from securebench.errors import ImageError
from securebench.fs.archives import ArchiveLimits, wrong_digest
from securebench.fs.durable import sync_directory, sync_file_system
from securebench.fs.locks import take, take_now
from securebench.fs.safe_open import OPEN_DIRECTORY, OPEN_FILE, TreeRefusedError, opened
from securebench.fs.streams import Digester, chunks, decompressed
from securebench.fs.tar_reader import TarReader
from securebench.fs.walk import STATUS, UNPACKED, EntryKind, Links, TreeRules, walk
from securebench.images.store.ids import tree_shift
from securebench.images.store.places import explaining
from securebench.images.store.temporary import changing, temporary_directory
from securebench.images.store.tree_builder import TreeBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from securebench.images.store.index import Catalogue
    from securebench.images.store.places import StorePaths
    from securebench.images.store.temporary import Trash
    from securebench.images.store.tree_builder import Unpacked

_EVERYTHING = TreeRules(links=Links.ANY, everything=True)

_ROOT: Final = "root"


def fingerprint(root: Path) -> str:
    """Return the digest (hex) of the metadata of everything below ``root``, or an empty string if it cannot be read.

    It covers inodes and ctimes, which no process without raw disk access can reset, so that an unchanged fingerprint
    means unchanged files. A copy of the tree has a different fingerprint.
    """
    digest = hashlib.sha256()
    try:
        for entry in walk(root, UNPACKED, STATUS):
            status = entry.status
            times = status.st_mtime_ns, status.st_ctime_ns
            owner = status.st_uid, status.st_gid
            facts = (entry.path, status.st_mode, *owner, status.st_size, status.st_ino, *times, entry.target)
            digest.update(repr(facts).encode())
    except (OSError, TreeRefusedError):
        return ""
    return digest.hexdigest()


def content_digest(root: Path) -> str:
    """Return the digest (hex) of everything below ``root``: names, types, modes, owners, links and all content.

    Returns an empty string if something cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for entry in walk(root, UNPACKED, _EVERYTHING):
            status = entry.status
            facts = (entry.path, status.st_mode, status.st_uid, status.st_gid, entry.size, entry.target)
            digest.update(repr(facts).encode())
            if entry.kind is EntryKind.FILE:
                for chunk in entry.chunks():
                    digest.update(chunk)
    except (OSError, TreeRefusedError):
        return ""
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Layer:
    """An archive, compressed or not, and ``diff_id``, the digest of the uncompressed tar archive."""

    path: Path
    diff_id: str


def unpack(layers: Sequence[Layer], root: Path, shift: int, limits: ArchiveLimits | None = None) -> Unpacked:
    """Unpack ``layers`` into ``root``, an empty private directory, and return statistics.

    ``shift`` is added to each owner id. If it is 0, the current user owns everything. Raises :class:`ImageError`
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
    """Unpack one layer, and return the size of its uncompressed archive in bytes."""
    with opened(layer.path, OPEN_FILE) as descriptor, os.fdopen(descriptor, "rb", buffering=0, closefd=False) as file:
        digester = Digester()
        reader = TarReader(digester.through(decompressed(chunks(file), limits, what)), what, limits.header)
        builder.begin_layer(what)
        for member in reader:
            builder.add(member, reader.content())
    if digester.digest != layer.diff_id:
        raise wrong_digest(what, layer.diff_id, digester.digest)
    return digester.size


class TreeLease:
    """The right to read an unpacked image. Its directory ``root`` exists until :meth:`close`.

    If SecureBench runs as root, the result of :func:`~securebench.images.store.ids.tree_shift` was added to the owner
    ids of the files. Otherwise, the current user owns all files. Never change the files.
    """

    def __init__(self, root: Path, held: int) -> None:
        self.root = root
        self._held = held

    def close(self) -> None:
        """End the lease. Idempotent."""
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class StoredTree:
    """An image's tree: its size in bytes, and when it was last used, in seconds since 1970."""

    is_unpacked: bool
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
        """Return a lease of a listed image's tree, and unpack it if needed.

        Raises :class:`ImageError` (``image-unavailable``) for an unlisted image, and the errors of :func:`unpack`.
        """
        lock, tree = self._places.lock(image_id), self._places.tree(image_id)
        with explaining(self._places.top):
            while True:
                held = take(lock, shared=True)  # waits while another process unpacks
                if tree.is_dir():
                    os.utime(held)
                    return TreeLease(tree, held)
                os.close(held)
                with self.claimed(image_id) as free:  # does not wait for readers, which may hold the lock for hours
                    if free and not tree.is_dir():
                        self._unpack(image_id)

    def find(self, image_id: str) -> StoredTree | None:
        """Return the description of an image's tree, or ``None`` if the image was never leased."""
        lock = self._places.lock(image_id)
        if not lock.is_file():
            return None
        used_at = lock.stat().st_mtime
        with self.claimed(image_id) as free:
            return StoredTree(
                self._places.tree(image_id).is_dir(), int(_noted(lock).get("bytes", 0)), used_at, in_use=not free
            )

    def is_intact(self, image_id: str, *, thorough: bool = False) -> bool:
        """Return whether an image's tree is unchanged.

        This compares the tree's metadata with the notes in the image's lock file. If ``thorough``, it compares the
        tree's content with that of a newly unpacked tree instead.
        """
        tree = self._places.tree(image_id)
        if not thorough:
            noted = _noted(self._places.lock(image_id)).get("fingerprint")
            return bool(noted) and fingerprint(tree) == noted
        with temporary_directory(self._places) as work:
            try:
                self._unpack_into(work, image_id)
            except (ImageError, FileNotFoundError):  # the archive of a layer is damaged or missing
                return False
            expected = content_digest(work / _ROOT)
            return bool(expected) and content_digest(tree) == expected

    def restore(self, image_id: str) -> None:
        """Remove a tree that was changed, so that the next lease unpacks it again. Raises ``image-in-use``."""
        if self.is_intact(image_id):
            return
        with explaining(self._places.top), changing(self._places) as trash, self.claimed(image_id) as free:
            if not free:
                raise in_use(image_id)
            trash.put(self._places.tree(image_id))

    @contextmanager
    def claimed(self, image_id: str) -> Iterator[bool]:
        """Prevent leases and unpacking of an image while the block runs, and yield true.

        If the image is already leased or being unpacked, prevent nothing, and yield false.
        """
        held = take_now(self._places.lock(image_id))
        try:
            yield held is not None
        finally:
            if held is not None:
                os.close(held)

    def remove(self, image_id: str, trash: Trash) -> None:
        """Move an image's tree, if it exists, to the trash, and delete the image's lock file.

        The caller has claimed the image and holds the store's lock.
        """
        trash.put(self._places.tree(image_id))
        self._places.lock(image_id).unlink()

    def _unpack(self, image_id: str) -> None:
        with temporary_directory(self._places) as work:
            unpacked = self._unpack_into(work, image_id)
            root = work / _ROOT
            notes = {"bytes": unpacked.bytes, "fingerprint": fingerprint(root)}
            self._places.lock(image_id).write_text(json.dumps(notes))
            sync_file_system(root)
            root.rename(self._places.tree(image_id))
            sync_directory(self._places.trees)

    def _unpack_into(self, work: Path, image_id: str) -> Unpacked:
        found = self._catalogue.find(image_id)
        if found is None:
            raise ImageError(f"the image {image_id} is not in the store", hint="see 'securebench images list'")
        _, manifest = found
        diff_ids = self._catalogue.config(manifest).diff_ids
        layers = [
            Layer(self._places.blob(layer.digest), diff_id)
            for layer, diff_id in zip(manifest.layers, diff_ids, strict=True)
        ]
        root = work / _ROOT
        root.mkdir(mode=0o700)
        return unpack(layers, root, tree_shift(), self._limits)


def in_use(reference: str) -> ImageError:
    """Return the error for an image that is leased, usually by a run."""
    return ImageError(
        f"the image {reference} is in use, for example by a run",
        code="image-in-use",
        hint="wait until runs and builds have ended, or stop them",
    )


def _noted(lock: Path) -> Mapping[str, Any]:
    """Return the notes in the lock file of a tree, empty if there are none."""
    try:
        notes = json.loads(lock.read_text())
    except (OSError, ValueError):
        notes = None
    return notes if isinstance(notes, dict) else {}
