"""From an image reference to an image of the store: found there, taken from an engine, pulled, or explained.

What speaks to engines and registries is loaded when one is asked: a run whose images are here starts without it.
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


def provide(store: ImageStore, reference: str, on_progress: Callable[[str], None] | None = None) -> ResolvedImage:
    """Return the image that ``reference`` means now, in ``store`` afterwards. ``on_progress`` is given lines meanwhile.

    An image that came from an engine follows that engine: where its name has moved there, it is taken anew. Raises
    :class:`ConfigError` (``image-reference-invalid``), :class:`ImageError` (``image-unavailable`` with a hint, and what
    pulling and unpacking raise), :class:`DiskFullError`.
    """
    check_reference(reference)
    report = on_progress or _silent
    found, origin = store.find(reference), store.origin(reference)
    if found and origin and (is_image_id(reference) or origin.source is not ImageSource.ENGINE):
        return found
    if not _take_if_new(store, reference, origin.engine_id if origin else "", report) and not found:
        _pull_or_explain(store, reference, report)
    provided = store.find(reference)
    if provided is None:
        raise unavailable(reference)
    return provided


def pull(store: ImageStore, reference: str, report: Callable[[str], None]) -> ResolvedImage:
    """Download what ``reference`` means to its registry now, and name it so.

    Raises :class:`ConfigError` (``image-reference-invalid``), :class:`ImageError` (``image-unavailable`` for what no
    registry has, and what the registry's client raises).
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


def _take_if_new(store: ImageStore, reference: str, known: str, report: Callable[[str], None]) -> bool:
    """Take the image from an engine if that has it and it is not ``known``, and say whether the engine has it."""
    from securebench.engine.client import connect
    from securebench.images.engine_images import inspect, take_from

    try:
        engine = connect()
    except EngineError:
        return False
    try:
        found = inspect(engine, reference)
        if found and found["Id"] != known:
            take_from(engine, store, reference, report)
    finally:
        engine.close()
    return found is not None


def _pull_or_explain(store: ImageStore, reference: str, report: Callable[[str], None]) -> None:
    try:
        pull(store, reference, report)
    except ImageError as error:
        raise unavailable(reference, error.message) from error


def unavailable(reference: str, why: str = "") -> ImageError:
    """Return the error for an image that cannot be had, which says how to get it."""
    problem = f"the image {reference} is not on this machine"
    if why and not why.startswith(problem):  # a name that no registry has is explained by these very words
        problem += f": {why}"
    return ImageError(problem, hint=how_to_get(reference))


def how_to_get(reference: str) -> str:
    """Say what to do about an image that is not there."""
    if reference.startswith(LOCAL_PREFIX):
        name = reference.removeprefix(LOCAL_PREFIX)
        if "/" in name:
            pack = name.partition("/")[0]
            return f"build it from the recipes of its pack, {pack}: 'securebench images build PACK/images'"
        return f"build it with 'securebench images build {name}' ('securebench images list' shows what can be built)"
    if is_image_id(reference):
        return "bring it from where it is: 'docker save -o FILE ID' there, 'securebench images import FILE' here"
    return (
        f"'securebench images import FILE' takes an archive of it ('docker save -o FILE {reference}'), and "
        f"'securebench images pull {reference}' asks its registry"
    )


def _silent(_line: str) -> None:
    """Stand in for a listener."""
