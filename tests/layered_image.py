"""Images for tests: an image of the store with one layer added on top."""

from __future__ import annotations

from typing import TYPE_CHECKING

from image_archives import layer as archive
from securebench.images.build.derived.compose import Additions, Base, add_image
from securebench.images.store.index import ImageSource, Origin

if TYPE_CHECKING:
    from image_archives import Part
    from securebench.images.store.image_store import ImageStore

BASE_IMAGE = "securebench/python:3.11"


def add_layered_image(
    store: ImageStore, reference: str, *parts: Part, workdir: str = "", beneath: str = BASE_IMAGE
) -> str:
    """Add the image ``reference`` to ``store``: ``beneath`` plus a layer of ``parts``. Return its id."""
    found = store.find(beneath)
    assert found is not None, f"{beneath} is not in the store"
    base = Base(found.id, *store.documents(found.id))
    with store.incoming(Origin(ImageSource.ARCHIVE, "tests")) as incoming:
        layer = incoming.take([archive(*parts)])
        image_id = add_image(incoming, base, [layer], Additions(workdir=workdir))
        incoming.name(image_id, reference)
    return image_id
