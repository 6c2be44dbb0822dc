"""The index of a store: which manifest each reference means, and where each image came from."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

from securebench.errors import ImageError
from securebench.fs.archives import malformed
from securebench.fs.durable import write_whole
from securebench.images.layout import (
    INDEX_FILE,
    MAX_DOCUMENT,
    REFERENCE_KEY,
    Descriptor,
    ImageConfig,
    ImageManifest,
    index_bytes,
    parse_index,
)
from securebench.images.reference import is_image_id
from securebench.images.store.places import explaining

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from securebench.images.model import ResolvedImage
    from securebench.images.store.places import StorePaths

_T = TypeVar("_T")

_SOURCE_KEY: Final = "securebench.source"
_ENGINE_KEY: Final = "securebench.engine.id"
_PENDING_KEY: Final = "securebench.pending"


class ImageSource(StrEnum):
    """Where an image of the store came from."""

    RECIPE = "recipe"
    ARCHIVE = "archive"
    REGISTRY = "registry"
    ENGINE = "engine"
    AGENT = "agent"
    """The archive of an agent program."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an image came from, and the engine's id for it if it came from an engine."""

    source: ImageSource
    engine_id: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """An image of the index. ``reference`` is empty if the image has no name.

    ``pending`` is the name of the import's work directory. ``pending`` becomes empty when the import names the image,
    or decides to keep the image without a name.
    """

    manifest: Descriptor
    reference: str
    origin: Origin
    pending: str = ""

    def to_descriptor(self) -> Descriptor:
        """Return the image as a descriptor of the index."""
        notes = {
            REFERENCE_KEY: self.reference,
            _SOURCE_KEY: self.origin.source.value,
            _ENGINE_KEY: self.origin.engine_id,
            _PENDING_KEY: self.pending,
        }
        return replace(self.manifest, annotations={key: note for key, note in notes.items() if note})

    @classmethod
    def from_descriptor(cls, found: Descriptor) -> Listed:
        """Read what :meth:`to_descriptor` wrote. Entries of other tools count as imported from an archive."""
        notes = found.annotations
        source = notes.get(_SOURCE_KEY, "")
        origin = Origin(
            ImageSource(source) if source in set(ImageSource) else ImageSource.ARCHIVE, notes.get(_ENGINE_KEY, "")
        )
        plain = Descriptor(found.media_type, found.digest, found.size)
        return cls(plain, notes.get(REFERENCE_KEY, ""), origin, notes.get(_PENDING_KEY, ""))


class Catalogue:
    """Reads and writes the index, and reads the documents it refers to. Writers hold the store's lock.

    Methods that read the index or a document may also raise :class:`ImageError` (``image-store-unusable``).
    """

    def __init__(self, places: StorePaths) -> None:
        self._places = places

    def read(self) -> tuple[Listed, ...]:
        """Return all images. Raises :class:`ImageError` (``image-store-damaged``)."""
        if not self._places.exist():
            return ()
        with _detecting_damage(self._places.top):
            data = read_document(self._places.index)
            return tuple(map(Listed.from_descriptor, parse_index(data, INDEX_FILE)))

    def write(self, images: Iterable[Listed]) -> None:
        """Replace the index in one step."""
        write_whole(self._places.index, index_bytes([image.to_descriptor() for image in images]))

    def consistently(self, look: Callable[[], _T]) -> _T:
        """Return the result of ``look``, which reads the index and its documents. Raises the errors of ``look``.

        If a document is missing and the index has changed meanwhile, ``look`` is called again: an image is removed from
        the index before its documents are deleted. With an unchanged index, a missing document is damage. Readers hold
        no lock: they would have to wait while a prune runs, or while an import flushes its data to disk.
        """
        while True:
            before = self._written()
            try:
                return look()
            except (ImageError, FileNotFoundError) as error:
                lost = isinstance(error, FileNotFoundError) or error.code == "image-store-damaged"
                if not lost or self._written() == before:
                    raise

    def find(self, reference: str) -> tuple[Listed, ImageManifest] | None:
        """Return the image with this canonical reference or id, or ``None``."""
        return self.consistently(lambda: self._find(reference))

    def _find(self, reference: str) -> tuple[Listed, ImageManifest] | None:
        for image in self.read():
            if is_image_id(reference):
                manifest = self.manifest(image)
                if manifest.config.digest == reference:
                    return image, manifest
            elif image.reference == reference and not image.pending:
                return image, self.manifest(image)
        return None

    def manifest(self, image: Listed) -> ImageManifest:
        """Return an image's manifest. Raises :class:`ImageError` (``image-store-damaged``)."""
        with _detecting_damage(self._places.top):
            return ImageManifest.parse(self._document(image.manifest), image.manifest.digest)

    def config(self, manifest: ImageManifest) -> ImageConfig:
        """Return an image's configuration. Raises :class:`ImageError` (``image-store-damaged``)."""
        with _detecting_damage(self._places.top):
            return ImageConfig.parse(self._document(manifest.config), manifest.config.digest)

    def written_config(self, manifest: ImageManifest) -> bytes:
        """Return an image's configuration as stored. Raises :class:`ImageError` (``image-store-damaged``)."""
        with _detecting_damage(self._places.top):
            return self._document(manifest.config)

    def resolved(self, reference: str, manifest: ImageManifest) -> ResolvedImage:
        """Return the :class:`ResolvedImage` of ``manifest``, with ``reference`` as its reference.

        Raises :class:`ImageError` (``image-store-damaged``).
        """
        size = sum(layer.size for layer in manifest.layers)
        return self.config(manifest).resolved(reference, manifest.config.digest, size)

    def _written(self) -> bytes:
        """Return the bytes of the index, or ``b""`` if it cannot be read."""
        try:
            return self._places.index.read_bytes()
        except OSError:
            return b""

    def _document(self, wanted: Descriptor) -> bytes:
        return read_document(self._places.blob(wanted.digest))


def named(images: Sequence[Listed], added: Listed, reference: str) -> list[Listed]:
    """Return a copy of ``images`` in which ``added`` has the name ``reference`` and is no longer pending.

    Any other image of this name becomes unnamed. If ``reference`` is empty, ``added`` has no name.
    """
    others = [
        replace(image, reference="") if image.reference == reference else image for image in images if image != added
    ]
    return tidied([*others, replace(added, reference=reference, pending="")])


def tidied(images: Iterable[Listed]) -> list[Listed]:
    """Return ``images`` without duplicates, and without unnamed images that are also listed as named or pending."""
    kept = {(image.manifest.digest, image.reference, image.pending): image for image in images}
    have_names = {image.manifest.digest for image in kept.values() if image.reference or image.pending}
    return [i for i in kept.values() if i.reference or i.pending or i.manifest.digest not in have_names]


def read_document(path: Path) -> bytes:
    """Return the content of a file of limited size.

    Raises :class:`ImageError` (``image-malformed``) if the file is missing or too large, or if ``path`` is a directory.
    Raises :class:`OSError` if the file cannot be read now, for example without permission or with too many files open.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_DOCUMENT + 1)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise malformed(path.name, f"it cannot be read: {error.strerror}") from None
    if len(data) > MAX_DOCUMENT:
        raise malformed(path.name, f"it is larger than {MAX_DOCUMENT} bytes")
    return data


@contextmanager
def _detecting_damage(top: Path) -> Iterator[None]:
    """Report a missing or malformed document as damage.

    Pass on other read errors, because they do not prove damage.
    """
    try:
        with explaining(top):
            yield
    except ImageError as error:
        if error.code == "image-store-unusable":
            raise
        raise ImageError(
            f"the image store {top} is damaged: {error.message}",
            code="image-store-damaged",
            hint=f"delete {top}, then build, pull or import the images again",
        ) from error
