"""Images between an engine and the store, whole: what one has, the other can have under the same id."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import docker
import docker.errors

from securebench.engine.client import refusal
from securebench.errors import ImageError
from securebench.images.reference import is_image_id
from securebench.images.store.archive import add_archive
from securebench.images.store.index import ImageSource, Origin

PATIENCE: Final = 3600
"""Seconds of silence: an engine says nothing while it reads or writes a large image."""

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from securebench.engine.client import Engine
    from securebench.images.store.image_store import ImageStore


def inspect(engine: Engine, reference: str) -> dict[str, Any] | None:
    """Return what the engine says of an image; ``None`` if it has none. Raises what :meth:`Engine.doing` raises."""
    with engine.doing(f"inspect the image {reference}"):
        try:
            return dict(engine.client.inspect_image(reference))  # type: ignore[no-untyped-call]  # so the stubs
        except docker.errors.NotFound:
            return None


def take_from(engine: Engine, store: ImageStore, reference: str, report: Callable[[str], None]) -> None:
    """Let the engine's image of ``reference`` be the store's. Raises as its parts do."""
    found = inspect(engine, reference)
    if found is None:
        raise ImageError(f"the engine has no image {reference}", hint="'docker images' shows what it has")
    report(f"taking {reference} from the engine")
    with store.incoming(Origin(ImageSource.ENGINE, found["Id"]), int(found.get("Size", 0))) as incoming:
        with engine.doing(f"save the image {reference}"), _patient(engine) as client:
            (added,) = add_archive(incoming, client.get_image(found["Id"]), f"the engine's image {reference}")
        report("unpacking")
        store.lease(added.id).close()
        if is_image_id(reference):
            incoming.keep(added.id)
        else:
            incoming.name(added.id, reference)


def give_to(engine: Engine, store: ImageStore, reference: str, report: Callable[[str], None]) -> None:
    """Let the store's image of ``reference``, or of an id, be the engine's, under that name.

    Raises :class:`ImageError` (``image-unavailable``) if the engine refuses it, and what :meth:`Engine.doing` raises.
    """
    report(f"giving {reference} to the engine")
    error = ""
    with engine.doing(f"load the image {reference}"), _patient(engine) as client:
        events = client.load_image(store.saved(reference))  # type: ignore[no-untyped-call]  # so the stubs
        for event in events:
            error = error or str(event.get("error", ""))
    if error:
        raise refusal(f"load the image {reference}", error.strip(), ImageError)


@contextmanager
def _patient(engine: Engine) -> Iterator[docker.APIClient]:
    """Give a client that waits."""
    client = docker.APIClient(base_url=engine.endpoint.base_url, version=engine.api, timeout=PATIENCE)
    client.trust_env = False
    try:
        yield client
    finally:
        client.close()
