"""Resolve an image reference for an engine: find the image, pull it if it is missing, or say how to get it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import docker.errors

from securebench.engine.client import refusal
from securebench.errors import ImageError
from securebench.images.engine_images import inspect, load_into_engine
from securebench.images.ensure import how_to_get, unavailable
from securebench.images.model import ResolvedImage
from securebench.images.reference import LOCAL_PREFIX, check_reference, is_image_id
from securebench.images.store.image_store import ImageStore
from securebench.images.store.index import ImageSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from securebench.engine.client import Engine
    from securebench.errors import InfrastructureError


def resolve(
    engine: Engine,
    reference: str,
    on_progress: Callable[[str], None] | None = None,
    store: ImageStore | None = None,
) -> ResolvedImage:
    """Return the image that ``reference`` currently refers to on ``engine``. ``on_progress`` receives progress lines.

    If ``store`` (by default, the store of this user) has an image for ``reference`` that did not come from an engine,
    that image is used instead of the engine's. It is loaded into the engine, so the same image runs with every driver.

    Raises :class:`ImageError` (``image-unavailable``) with a hint on how to get the image, :class:`ConfigError`
    (``image-reference-invalid``), and the errors of the store and of :meth:`Engine.doing`.
    """
    check_reference(reference)
    report = on_progress or _silent
    found = _from_store(engine, store or ImageStore(), reference, report) or inspect(engine, reference)
    if found is None and not reference.startswith((LOCAL_PREFIX, "sha256:")):
        _pull(engine, reference, report)
        found = inspect(engine, reference)
    if found is None:
        raise unavailable(reference)
    return _resolved(reference, found)


def _from_store(
    engine: Engine, store: ImageStore, reference: str, report: Callable[[str], None]
) -> dict[str, Any] | None:
    """Load the store's image into the engine if needed, and return the engine's description of it.

    Returns ``None`` if the store lacks the image, or if the engine does not find the image after loading it. Also
    returns ``None`` for an image that the store copied from an engine, unless ``reference`` is an id.
    """
    found, origin = store.find(reference), store.origin(reference)
    if found is None or (origin and origin.source is ImageSource.ENGINE and not is_image_id(reference)):
        return None
    loaded = inspect(engine, found.id)
    if loaded is None:
        load_into_engine(engine, store, reference, report)
        loaded = inspect(engine, found.id) or inspect(engine, reference)
    return loaded


def _pull(engine: Engine, reference: str, on_progress: Callable[[str], None]) -> None:
    on_progress(f"pulling {reference}")
    with engine.doing(f"pull the image {reference}"):
        try:
            _follow(engine.client.pull(reference, stream=True, decode=True), reference, on_progress)
        except docker.errors.APIError as error:
            raise _not_pulled(reference, str(error.explanation or error)) from error


def _follow(events: Iterable[Mapping[str, Any]], reference: str, on_progress: Callable[[str], None]) -> None:
    error = ""
    for event in events:  # read to the end, even after an error, to free the connection
        error = error or str(event.get("error", ""))
        layer = f"{event['id']}: " if event.get("id") else ""
        # Byte counts arrive many times a second and are less useful than the steps.
        if event.get("status") and not event.get("progressDetail"):
            on_progress(f"{layer}{event['status']}")
    if error:
        raise _not_pulled(reference, error)


def _resolved(reference: str, found: Mapping[str, Any]) -> ResolvedImage:
    config = found.get("Config") or {}
    variables = (entry.partition("=") for entry in config.get("Env") or ())
    return ResolvedImage(
        reference=reference,
        id=found["Id"],
        environment={name: value for name, _, value in variables},
        workdir=config.get("WorkingDir") or "/",
        user=config.get("User") or "",
        architecture=found.get("Architecture", ""),
        size_bytes=int(found.get("Size", 0)),
        volumes=tuple(sorted(config.get("Volumes") or ())),
    )


def _not_pulled(reference: str, why: str) -> InfrastructureError:
    error = refusal(f"pull the image {reference}", why.strip(), ImageError)
    error.hint = error.hint or how_to_get(reference)
    return error


def _silent(_line: str) -> None:
    """Ignore progress."""
