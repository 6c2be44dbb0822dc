"""Import images from files of the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.errors import ConfigError, ImageError
from securebench.fs.archives import malformed
from securebench.images.reference import check_reference
from securebench.images.store.archive import add_path
from securebench.images.store.index import ImageSource, Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from securebench.images.store.archive import Added
    from securebench.images.store.image_store import ImageStore


def import_path(store: ImageStore, path: Path, name: str, report: Callable[[str], None]) -> tuple[str, ...]:
    """Import all images of a file or directory into the store, and return their references.

    ``name`` is the reference for a single image; if it is empty, the references in the archive are used. If one image
    is invalid, none is imported. Raises :class:`ConfigError` (``image-name-needed``, ``image-reference-invalid``),
    :class:`DiskFullError`, and the :class:`ImageError` of unpacking and of
    :func:`~securebench.images.store.archive.add_path`.
    """
    if name:
        check_reference(name)
    size = path.stat().st_size if path.is_file() else 0
    with store.incoming(Origin(ImageSource.ARCHIVE), size) as incoming:
        report("reading")
        try:
            added = add_path(incoming, path)
        except OSError as error:
            raise malformed(str(path), f"it cannot be read: {error.strerror or error}") from None
        named = _named(added, name, path)
        report("unpacking")
        for image_id in {image_id for image_id, _ in named}:
            _unpack(store, image_id, path)
        for image_id, reference in named:
            incoming.name(image_id, reference)
    return tuple(reference for _, reference in named)


def _unpack(store: ImageStore, image_id: str, path: Path) -> None:
    try:
        store.lease(image_id).close()
    except ImageError as error:
        raise ImageError(f"{path}: {error.message}", code=error.code, hint=error.hint) from error


def _named(added: Sequence[Added], name: str, path: Path) -> list[tuple[str, str]]:
    if name and len(added) == 1:
        return [(added[0].id, name)]
    if name or not added or not all(image.names for image in added):
        names = ", ".join(reference for image in added for reference in image.names) or "none"
        raise ConfigError(
            f"{path} holds {len(added)} images, named: {names}",
            code="image-name-needed",
            hint="pass '--name REF' for an archive of one image; in an archive of several, each needs a name",
        )
    return [(image.id, reference) for image in added for reference in image.names]
