"""Ensure that an image is in the store. If it is missing there, it is copied from an engine or pulled.

The engine and registry clients are loaded only when needed. A run whose images are all in the store starts without
them, with one exception: if an image was copied from an engine by its name, the engine is asked whether it now has
another image of this name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from securebench.errors import EngineError, ImageError
from securebench.images.reference import LOCAL_PREFIX, check_reference, is_image_id
from securebench.images.store.index import ImageSource, Origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.images.model import ResolvedImage
    from securebench.images.store.image_store import ImageStore


def ensure_image(store: ImageStore, reference: str, on_progress: Callable[[str], None] | None = None) -> ResolvedImage:
    """Return the image ``reference`` from ``store``. If necessary, first copy it from an engine or pull it.

    ``on_progress`` receives lines about the progress. If the store's image was copied from an engine and the engine now
    has a different image of this name, the new image is copied.

    Raises :class:`ImageError` (``image-unavailable``) if the image is neither in the store nor in an engine, and cannot
    be pulled. Also raises :class:`ConfigError` (``image-reference-invalid``), :class:`DiskFullError`, and the errors of
    copying an image from an engine.
    """
    check_reference(reference)
    report = on_progress or _silent
    found, origin = store.find(reference), store.origin(reference)
    if found and origin and (is_image_id(reference) or origin.source is not ImageSource.ENGINE):
        return found
    if not _copy_if_new(store, reference, origin.engine_id if origin else "", report) and not found:
        _pull_or_explain(store, reference, report)
    provided = store.find(reference)
    if provided is None:
        raise unavailable(reference)
    return provided


def pull(store: ImageStore, reference: str, report: Callable[[str], None]) -> ResolvedImage:
    """Download the image that ``reference`` now refers to in its registry, and add it to ``store`` under this name.

    Raises :class:`ConfigError` (``image-reference-invalid``), :class:`ImageError` (``image-unavailable`` if no registry
    has it, and the errors of downloading and unpacking) and :class:`DiskFullError`.
    """
    from securebench.images.layout import Descriptor
    from securebench.images.registry import fetch_image
    from securebench.images.store.archive_files import layer_type

    check_reference(reference)
    if reference.startswith(LOCAL_PREFIX) or is_image_id(reference):
        raise unavailable(reference)
    with store.incoming(Origin(ImageSource.REGISTRY)) as incoming:
        fetched = fetch_image(reference, incoming, report)
        layers = [Descriptor("", layer.digest, layer.size) for layer in fetched.layers]
        image_id = incoming.add(fetched.config, [replace(e, media_type=layer_type(incoming, e)) for e in layers])
        report("unpacking")
        store.lease(image_id).close()
        incoming.name(image_id, reference)
    pulled = store.find(reference)
    assert pulled is not None
    return pulled


def _copy_if_new(store: ImageStore, reference: str, known: str, report: Callable[[str], None]) -> bool:
    """Copy the image from an engine unless its id there equals ``known``. Return whether an engine has the image."""
    from securebench.engine.client import connect
    from securebench.images.engine_images import import_from_engine, inspect

    try:
        engine = connect()
    except EngineError:
        return False
    try:
        found = inspect(engine, reference)
        if found and found["Id"] != known:
            import_from_engine(engine, store, reference, report)
    finally:
        engine.close()
    return found is not None


def _pull_or_explain(store: ImageStore, reference: str, report: Callable[[str], None]) -> None:
    try:
        pull(store, reference, report)
    except ImageError as error:
        raise unavailable(reference, error.message) from error


def unavailable(reference: str, why: str = "") -> ImageError:
    """Return the error for an image that cannot be found, with a hint on how to get it."""
    problem = f"the image {reference} is not on this machine"
    if why and not why.startswith(problem):  # pull() reports the same problem if no registry can have it
        problem += f": {why}"
    return ImageError(problem, hint=how_to_get(reference))


def how_to_get(reference: str) -> str:
    """Return what to do about a missing image."""
    if reference.startswith(LOCAL_PREFIX):
        name = reference.removeprefix(LOCAL_PREFIX)
        if "/" in name:
            pack = name.partition("/")[0]
            return f"build it from the recipes of its pack, {pack}: 'securebench images build PACK/images'"
        return f"build it with 'securebench images build {name}' ('securebench images list' shows what can be built)"
    if is_image_id(reference):
        return "run 'docker save -o FILE ID' on a machine that has it, and 'securebench images import FILE' here"
    return (
        f"import an archive of it ('docker save -o FILE {reference}', 'securebench images import FILE'), or "
        f"download it with 'securebench images pull {reference}'"
    )


def _silent(_line: str) -> None:
    """Ignore progress."""
