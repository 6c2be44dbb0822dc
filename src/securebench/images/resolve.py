"""From an image reference to the id that runs: looked up, pulled if it is missing, or explained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import docker.errors

from securebench.engine.client import refusal
from securebench.errors import ImageError
from securebench.images.engine_images import give_to, inspect
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
    """Return the image that ``reference`` means on ``engine`` now. ``on_progress`` is given lines while it is fetched.

    What ``store`` (by default, this user's) has under the reference from elsewhere than an engine goes before what the
    engine has, and is loaded into the engine: so the same id runs whatever makes the sandboxes. Raises
    :class:`ImageError` (``image-unavailable``) whose hint says how to get it, :class:`ConfigError`
    (``image-reference-invalid``), or :class:`EngineError`.
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
    """Return what the engine says of the store's image, which it gets if it lacks it; ``None`` if there is none."""
    found, origin = store.find(reference), store.origin(reference)
    if found is None or (origin and origin.source is ImageSource.ENGINE and not is_image_id(reference)):
        return None
    there = inspect(engine, found.id)
    if there is None:
        give_to(engine, store, reference, report)
        there = inspect(engine, found.id) or inspect(engine, reference)
    return there


def _pull(engine: Engine, reference: str, on_progress: Callable[[str], None]) -> None:
    on_progress(f"pulling {reference}")
    with engine.doing(f"pull the image {reference}"):
        try:
            _follow(engine.client.pull(reference, stream=True, decode=True), reference, on_progress)
        except docker.errors.APIError as error:
            raise _not_pulled(reference, str(error.explanation or error)) from error


def _follow(events: Iterable[Mapping[str, Any]], reference: str, on_progress: Callable[[str], None]) -> None:
    error = ""
    for event in events:  # to its end, also after an error: only then is the connection free again
        error = error or str(event.get("error", ""))
        layer = f"{event['id']}: " if event.get("id") else ""
        # Byte counts come many times a second and say less than the steps.
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
    """Stand in for a listener."""
