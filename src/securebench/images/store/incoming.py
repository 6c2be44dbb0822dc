"""An image on its way into the store: all of it, checked and named, or nothing.

Its blobs wait in a place of work, where nobody looks for them. :meth:`Incoming.add` moves them into the store and puts
the image on the list, without a name: only who knows its id can run it, to check it. :meth:`Incoming.name` names it,
in one step. What has no name when the work ends, or is killed, goes.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from securebench.fs.archives import malformed, wrong_digest
from securebench.fs.durable import sync_file_system, write_all
from securebench.fs.locks import locked
from securebench.fs.streams import Digester
from securebench.images.layout import CONFIG_TYPE, MANIFEST_TYPE, Descriptor, ImageConfig, ImageManifest
from securebench.images.reference import canonical, check_reference
from securebench.images.store.index import Catalogue, Listed, named, read_document
from securebench.images.store.places import explaining

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from securebench.images.store.index import Origin
    from securebench.images.store.places import StorePaths


class Incoming:
    """One image on its way. It is a sink of blobs: ``has`` and ``write`` may be called by several threads.

    Made by :meth:`ImageStore.incoming`. ``origin`` says where the image comes from. Methods raise
    :class:`ImageError` (``image-malformed``, ``image-blob-mismatch``, ``image-store-unusable``) and
    :class:`DiskFullError`.
    """

    def __init__(self, places: StorePaths, work: Path, origin: Origin) -> None:
        self._places = places
        self._work = work
        self._origin = origin
        self._catalogue = Catalogue(places)
        self._added: dict[str, Listed] = {}

    def has(self, digest: str) -> bool:
        """Say whether the store has this blob; it is then kept for this image."""
        if self._waiting(digest).exists():
            return True
        with explaining(self._places.top):
            try:
                os.link(self._places.blob(digest), self._waiting(digest))
            except FileNotFoundError:
                return False
        return True

    def write(self, digest: str, size: int, pieces: Iterable[bytes]) -> None:
        """Take a blob, which must have this digest and size."""
        got = self.take(pieces)
        if (got.digest, got.size) != (digest, size):
            raise wrong_digest(f"a blob of {got.size} bytes, announced as {size}", digest, got.digest)

    def take(self, pieces: Iterable[bytes | memoryview]) -> Descriptor:
        """Take a blob, whatever it is, and say what it was. Its media type is left empty."""
        temporary = self._work / f"blob-{secrets.token_hex(8)}"
        digester = Digester()
        with temporary.open("xb", buffering=0) as file:
            for piece in digester.through(pieces):
                with explaining(self._places.top):  # and not what the source of the pieces raises
                    write_all(file.fileno(), piece)
        temporary.replace(self._waiting(digester.digest))
        return Descriptor("", digester.digest, digester.size)

    def add(self, config: bytes, layers: Sequence[Descriptor]) -> str:
        """Put the image of these layers, which were taken, on the list without a name, and return its id."""
        known = ImageConfig.parse(config, "the image's configuration")
        if len(known.diff_ids) != len(layers):
            problem = f"it names {len(known.diff_ids)} layers, and the image has {len(layers)}"
            raise malformed("the image's configuration", problem)
        described = replace(self.take([config]), media_type=CONFIG_TYPE)
        manifest = self.take([ImageManifest(described, tuple(layers)).to_bytes()])
        image = Listed(replace(manifest, media_type=MANIFEST_TYPE), "", self._origin, pending=self._work.name)
        with locked(self._places.store_lock), explaining(self._places.top):
            self._publish({manifest.digest, described.digest, *(layer.digest for layer in layers)})
            self._catalogue.write([*self._catalogue.read(), image])
        self._added[described.digest] = image
        return described.digest

    def read(self, digest: str) -> bytes:
        """Return a blob that was taken, a document. Raises :class:`ImageError` (``image-malformed``)."""
        return read_document(self.path(digest))

    def begins(self, digest: str, size: int) -> bytes:
        """Return the first bytes of a blob that was taken."""
        with self.path(digest).open("rb") as file:
            return file.read(size)

    def name(self, image_id: str, reference: str) -> None:
        """Let ``reference`` mean an image that was added, in place of what it meant before."""
        check_reference(reference)
        self._name(image_id, canonical(reference))

    def keep(self, image_id: str) -> None:
        """Let an image that was added stay, without a name."""
        self._name(image_id, "")

    def discard(self) -> bool:
        """Take what was added and not named off the list, and say whether there was such."""
        with locked(self._places.store_lock), explaining(self._places.top):
            images = self._catalogue.read()
            kept = [image for image in images if image.pending != self._work.name]
            if len(kept) != len(images):
                self._catalogue.write(kept)
        return len(kept) != len(images)

    def _name(self, image_id: str, reference: str) -> None:
        with locked(self._places.store_lock), explaining(self._places.top):
            self._catalogue.write(named(self._catalogue.read(), self._added[image_id], reference))

    def _waiting(self, digest: str) -> Path:
        return self._work / digest.removeprefix("sha256:")

    def path(self, digest: str) -> Path:
        """Return where a blob that was taken is: it waits, or an image that was added has brought it in."""
        waiting = self._waiting(digest)
        return waiting if waiting.exists() else self._places.blob(digest)

    def _publish(self, digests: set[str]) -> None:
        for digest in digests:
            if (waiting := self._waiting(digest)).exists():
                waiting.replace(self._places.blob(digest))
        sync_file_system(self._places.top)
