"""An image that is being imported: the store gets all of it or, if the import fails, nothing.

Its blobs wait in a work directory that nothing else reads. :meth:`Incoming.add` moves them into the store and lists the
image without a name, so only the importer, which knows the image's id, can run the image to check it.
:meth:`Incoming.name` then names the image in one step, and :meth:`Incoming.keep` keeps it without a name. If the import
ends or is killed before it has named or kept an image, that image is removed.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from securebench.errors import ImageError
from securebench.fs.archives import malformed, wrong_digest
from securebench.fs.durable import sync_file_system, write_all
from securebench.fs.locks import locked
from securebench.fs.streams import Digester
from securebench.images.layout import CONFIG_TYPE, MANIFEST_TYPE, Descriptor, ImageConfig, ImageManifest
from securebench.images.reference import canonical, check_reference
from securebench.images.store.index import Catalogue, Listed, named, read_document
from securebench.images.store.places import explaining
from securebench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from securebench.images.store.index import Origin
    from securebench.images.store.places import StorePaths


class Incoming:
    """An import of one or more images. Created by :meth:`ImageStore.incoming`.

    The class is a ``BlobSink``: several threads may call ``has`` and ``write``. ``origin`` says where the images
    come from. Methods raise :class:`ImageError` (``image-malformed``, ``image-blob-mismatch``,
    ``image-store-damaged``, ``image-store-unusable``) and :class:`DiskFullError`.
    """

    def __init__(self, places: StorePaths, work: Path, origin: Origin) -> None:
        self._places = places
        self._work = work
        self._origin = origin
        self._catalogue = Catalogue(places)
        self._added: dict[str, Listed] = {}

    def has(self, digest: str) -> bool:
        """Return whether this import or the store has the blob. If so, keep it for this import."""
        if self._staged(digest).exists():
            return True
        with explaining(self._places.top):
            try:
                os.link(self._places.blob(digest), self._staged(digest))
            except FileNotFoundError:
                return False
        return True

    def write(self, digest: str, size: int, pieces: Iterable[bytes]) -> None:
        """Store a blob. Raises ``image-blob-mismatch`` unless it has this digest and size."""
        got = self.take(pieces)
        if got.digest != digest:
            raise wrong_digest(f"a blob of {got.size} bytes ({size} bytes were declared)", digest, got.digest)
        if got.size != size:
            raise ImageError(
                f"the blob {digest} has {got.size} bytes, but {size} bytes were declared",
                code="image-blob-mismatch",
                hint="the image's manifest is wrong; build or fetch the image again",
            )

    def take(self, pieces: Iterable[bytes | memoryview]) -> Descriptor:
        """Store a blob, whatever its digest is. Return its descriptor, which has no media type."""
        temporary = self._work / f"blob-{secrets.token_hex(8)}"
        digester = Digester()
        with temporary.open("xb", buffering=0) as file:
            for piece in digester.through(pieces):
                with explaining(self._places.top):  # covers only the write: the source raises its own errors
                    write_all(file.fileno(), piece)
        temporary.replace(self._staged(digester.digest))
        return Descriptor("", digester.digest, digester.size)

    def add(self, config: bytes, layers: Sequence[Descriptor]) -> str:
        """Add an image of these stored layers to the index, without a name, and return its id."""
        known = ImageConfig.parse(config, "the image's configuration")
        if len(known.diff_ids) != len(layers):
            problem = f"it lists {counted(len(known.diff_ids), 'layer')}, but the image has {len(layers)}"
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
        """Return the content of a stored JSON blob. Raises :class:`ImageError` (``image-malformed``)."""
        return read_document(self.path(digest))

    def begins(self, digest: str, size: int) -> bytes:
        """Return the first ``size`` bytes of a stored blob."""
        with self.path(digest).open("rb") as file:
            return file.read(size)

    def name(self, image_id: str, reference: str) -> None:
        """Give an added image the name ``reference``, and take that name from any other image."""
        check_reference(reference)
        self._name(image_id, canonical(reference))

    def keep(self, image_id: str) -> None:
        """Keep an added image, but give it no name."""
        self._name(image_id, "")

    def discard(self) -> bool:
        """Remove the added images that were neither named nor kept. Return whether there were any."""
        with locked(self._places.store_lock), explaining(self._places.top):
            images = self._catalogue.read()
            kept = [image for image in images if image.pending != self._work.name]
            if len(kept) != len(images):
                self._catalogue.write(kept)
        return len(kept) != len(images)

    def _name(self, image_id: str, reference: str) -> None:
        with locked(self._places.store_lock), explaining(self._places.top):
            self._catalogue.write(named(self._catalogue.read(), self._added[image_id], reference))

    def _staged(self, digest: str) -> Path:
        return self._work / digest.removeprefix("sha256:")

    def path(self, digest: str) -> Path:
        """Return the path of a stored blob: in the work directory, or in the store once an added image uses it."""
        staged = self._staged(digest)
        return staged if staged.exists() else self._places.blob(digest)

    def _publish(self, digests: set[str]) -> None:
        for digest in digests:
            if (staged := self._staged(digest)).exists():
                staged.replace(self._places.blob(digest))
        sync_file_system(self._places.top)
