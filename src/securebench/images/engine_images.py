"""Copying images between an engine and the store.

An image keeps its id in both directions, except with an engine that uses containerd's image store. Such an
engine uses different ids.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import docker
import docker.errors

from securebench.engine.client import connect, refusal
from securebench.errors import EngineError, ImageError, InfrastructureError
from securebench.images.reference import is_image_id
from securebench.images.store.archive import add_archive
from securebench.images.store.index import ImageSource, Origin

_log = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 3600
"""The timeout of requests that copy images: an engine sends nothing while it reads or writes a large image."""

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from securebench.engine.client import Engine
    from securebench.images.store.image_store import ImageStore


def inspect(engine: Engine, reference: str) -> dict[str, Any] | None:
    """Return the engine's description of an image, or ``None``. Raises the errors of :meth:`Engine.doing`."""
    with engine.doing(f"inspect the image {reference}"):
        try:
            return dict(engine.client.inspect_image(reference))  # type: ignore[no-untyped-call]  # untyped in the stubs
        except docker.errors.NotFound:
            return None


def import_from_engine(engine: Engine, store: ImageStore, reference: str, report: Callable[[str], None]) -> None:
    """Copy the engine's image ``reference`` into the store.

    Raises :class:`ImageError` (``image-unavailable``) if the engine lacks it, and the errors of engine and store.
    """
    found = inspect(engine, reference)
    if found is None:
        raise ImageError(f"the engine has no image {reference}", hint="'docker images' lists its images")
    report(f"copying {reference} from the engine")
    with store.incoming(Origin(ImageSource.ENGINE, found["Id"]), int(found.get("Size", 0))) as incoming:
        with engine.doing(f"save the image {reference}"), _slow_client(engine) as client:
            (added,) = add_archive(incoming, client.get_image(found["Id"]), f"the engine's image {reference}")
        report("unpacking")
        store.lease(added.id).close()
        if is_image_id(reference):
            incoming.keep(added.id)
        else:
            incoming.name(added.id, reference)


def load_into_engine(engine: Engine, store: ImageStore, reference: str, report: Callable[[str], None]) -> None:
    """Copy the store's image with this reference or id into the engine.

    If ``reference`` is not an id, the image also has this name in the engine.

    Raises :class:`ImageError` (``image-unavailable``) if the engine rejects it, and the errors of :meth:`Engine.doing`.
    """
    report(f"copying {reference} to the engine")
    error = ""
    with engine.doing(f"load the image {reference}"), _slow_client(engine) as client:
        events = client.load_image(store.saved(reference))  # type: ignore[no-untyped-call]  # untyped in the stubs
        for event in events:
            error = error or str(event.get("error", ""))
    if error:
        raise refusal(f"load the image {reference}", error.strip(), ImageError)


def remove_from_any_engine(reference: str) -> None:
    """Remove ``reference`` from this machine's engine, if an engine can be reached and has this image.

    Errors are only logged.
    """
    try:
        engine = connect()
    except EngineError:
        return
    try:
        if inspect(engine, reference) is not None:
            with engine.doing(f"remove the image {reference}"):
                engine.client.remove_image(reference, force=True)
    except InfrastructureError as error:
        _log.warning("the image %s was not removed: %s", reference, error.message)
    finally:
        engine.close()


@contextmanager
def _slow_client(engine: Engine) -> Iterator[docker.APIClient]:
    """Yield a client with a timeout of :data:`TIMEOUT_SECONDS`."""
    client = docker.APIClient(base_url=engine.endpoint.base_url, version=engine.api, timeout=TIMEOUT_SECONDS)
    client.trust_env = False
    try:
        yield client
    finally:
        client.close()
