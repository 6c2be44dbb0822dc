"""Import images from files: a ``docker save`` archive, an OCI image layout, or a root file system.

A layout may be a directory or a tar archive. Any tar archive may be compressed. A root file system becomes an image
with one layer and a generated configuration.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import ConfigError, ImageError
from securebench.fs.archives import ArchiveLimits, malformed, wrong_digest
from securebench.fs.streams import chunks, decompressed
from securebench.images.layout import (
    INDEX_FILE,
    INDEX_TYPES,
    LAYER_TYPE,
    REFERENCE_KEY,
    Descriptor,
    ImageConfig,
    ImageManifest,
    encoded,
    json_list,
    parse_index,
    text,
    texts,
)
from securebench.images.reference import check_reference, is_image_id
from securebench.images.registry.documents import Index, parse_manifest, runs_on
from securebench.images.registry.model import Platform
from securebench.images.store.archive_files import (
    DirectoryFiles,
    TarFiles,
    document,
    is_image_archive,
    layer_type,
)
from securebench.images.store.index import ImageSource, Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from securebench.images.store.archive_files import Files
    from securebench.images.store.image_store import ImageStore
    from securebench.images.store.incoming import Incoming

SAVED: Final = "manifest.json"
"""The file that lists the images of a ``docker save`` archive."""

_CONTAINERD_NAME: Final = "io.containerd.image.name"


@dataclass(frozen=True, slots=True)
class RootConfig:
    """The configuration of an image that is made from a root file system."""

    environment: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def add_root(incoming: Incoming, pieces: Iterable[bytes], config: RootConfig, what: str) -> str:
    """Add an image whose root file system is a tar archive, compressed or not, and return its id.

    On machines of one architecture, the same archive and configuration always result in the same id. ``what`` names the
    archive in errors. Raises :class:`ImageError` (``image-malformed``, ``image-too-large``).
    """
    layer = incoming.take(decompressed(pieces, ArchiveLimits(), what))
    return incoming.add(root_config(config, layer.digest), [replace(layer, media_type=LAYER_TYPE)])


def root_config(config: RootConfig, diff_id: str) -> bytes:
    """Return the configuration of a single-layer image for this machine.

    ``diff_id`` is the digest of the layer's uncompressed tar archive.
    """
    platform = Platform.of_this_machine()
    inner = {
        "Env": [f"{name}={value}" for name, value in config.environment.items()],
        "Cmd": list(config.command),
        "Labels": dict(config.labels),
    }
    return encoded(
        {
            "architecture": platform.architecture,
            "os": platform.os,
            "config": {name: value for name, value in inner.items() if value},
            "rootfs": {"type": "layers", "diff_ids": [diff_id]},
            "history": [{"created_by": "securebench"}],
        }
    )


@dataclass(frozen=True, slots=True)
class Added:
    """An image of an archive that is being imported: its id, and its references in the archive."""

    id: str
    names: tuple[str, ...]


def add_path(incoming: Incoming, path: Path) -> tuple[Added, ...]:
    """Add all images of a file or directory.

    Raises :class:`ImageError` (``image-malformed``, ``image-too-large``, ``image-blob-mismatch``,
    ``image-platform-missing``), and ``OSError`` if ``path`` cannot be read.
    """
    if stat.S_ISDIR(path.stat().st_mode):
        return _from_layout(DirectoryFiles(path, incoming), incoming)
    limits = ArchiveLimits()
    with path.open("rb") as file:
        holds_images = is_image_archive(decompressed(chunks(file), limits, str(path)), str(path), limits)
        file.seek(0)
        if holds_images:
            return add_archive(incoming, decompressed(chunks(file), limits, str(path)), str(path))
        return (Added(add_root(incoming, chunks(file), RootConfig(), str(path)), ()),)


def add_archive(incoming: Incoming, pieces: Iterable[bytes], what: str) -> tuple[Added, ...]:
    """Add all images of a tar archive: one that ``docker save`` wrote, or an OCI image layout.

    Raises the same errors as :func:`add_path`.
    """
    files = TarFiles(pieces, what, incoming, ArchiveLimits())
    return _from_docker_save(files, incoming) if files.has(SAVED) else _from_layout(files, incoming)


def _from_docker_save(files: Files, incoming: Incoming) -> tuple[Added, ...]:
    where = f"{files.what}: {SAVED}"
    entries = json_list(document(files, incoming, SAVED), where)
    return tuple(_saved_image(files, incoming, entry, f"{where}: /{i}") for i, entry in enumerate(entries))


def _saved_image(files: Files, incoming: Incoming, entry: Any, where: str) -> Added:
    config = document(files, incoming, text(entry, "Config", where))
    layers = [files.take(name) for name in texts(entry, "Layers", where)]
    typed = [replace(layer, media_type=layer_type(incoming, layer)) for layer in layers]
    return Added(
        _add_image(incoming, config, typed, where), tuple(filter(_is_reference, texts(entry, "RepoTags", where)))
    )


def _from_layout(files: Files, incoming: Incoming) -> tuple[Added, ...]:
    index = parse_index(document(files, incoming, INDEX_FILE), f"{files.what}: {INDEX_FILE}")
    return tuple(_layout_image(files, incoming, found) for found in index)


def _layout_image(files: Files, incoming: Incoming, found: Descriptor) -> Added:
    where = f"{files.what}: {found.digest}"
    data = incoming.read(_import_blob(files, found).digest)
    if found.media_type in INDEX_TYPES:
        chosen = _choose_platform(data, found.media_type, where)
        data = incoming.read(_import_blob(files, chosen).digest)
    manifest = ImageManifest.parse(data, where)
    config = incoming.read(_import_blob(files, manifest.config).digest)
    layers = [_import_blob(files, layer) for layer in manifest.layers]
    typed = [replace(layer, media_type=layer_type(incoming, layer)) for layer in layers]
    names = (found.annotations.get(key, "") for key in (_CONTAINERD_NAME, REFERENCE_KEY))
    return Added(_add_image(incoming, config, typed, where), tuple(name for name in names if _is_reference(name))[:1])


def _choose_platform(data: bytes, media_type: str, where: str) -> Descriptor:
    machine = Platform.of_this_machine()
    try:
        index = parse_manifest(data, media_type, where)
    except ImageError as error:
        raise malformed(where, error.message) from None
    chosen = index.choose(machine) if isinstance(index, Index) else None
    if chosen is None:
        raise _wrong_platform(where, "it has no image for this platform", machine)
    return chosen


def _import_blob(files: Files, wanted: Descriptor) -> Descriptor:
    got = files.take(f"blobs/sha256/{wanted.digest.removeprefix('sha256:')}")
    if (got.digest, got.size) != (wanted.digest, wanted.size):
        raise wrong_digest(f"{files.what}: a blob of {got.size} bytes", wanted.digest, got.digest)
    return got


def _add_image(incoming: Incoming, config: bytes, layers: list[Descriptor], where: str) -> str:
    machine = Platform.of_this_machine()
    known = ImageConfig.parse(config, where)
    built_for = Platform(known.os or machine.os, known.architecture or machine.architecture)
    if not runs_on(built_for, machine):
        raise _wrong_platform(where, f"the image is for {built_for}", machine)
    return incoming.add(config, layers)


def _wrong_platform(where: str, problem: str, machine: Platform) -> ImageError:
    return ImageError(
        f"{where}: {problem} (this machine is {machine})",
        code="image-platform-missing",
        hint="save or build the image for this machine's platform",
    )


def _is_reference(name: str) -> bool:
    """Return whether ``name`` is a complete reference, unlike an image id or a tag without a name."""
    if ":" not in name or is_image_id(name):
        return False
    try:
        check_reference(name)
    except ConfigError:
        return False
    return True


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
            f"cannot name the images in {path} (number of images: {len(added)}; names: {names})",
            code="image-name-needed",
            hint="pass '--name REF' for an archive of one image; in other archives, each image needs a name",
        )
    return [(image.id, reference) for image in added for reference in image.names]
