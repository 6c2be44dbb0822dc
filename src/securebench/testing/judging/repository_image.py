"""A temporary image with the small repository."""

from __future__ import annotations

import io
import secrets
import tarfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from securebench.errors import ImageError
from securebench.images.build.derived.compose import Additions, Base, add_image
from securebench.images.engine_images import remove_from_any_engine
from securebench.images.ensure import ensure_image
from securebench.images.store.image_store import ImageStore
from securebench.images.store.index import ImageSource, Origin
from securebench.testing.judging.repository import FILES, GIT, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def repository_image(base: str) -> Iterator[str]:
    """Yield the name of an image in the store: the image ``base`` with the repository on top.

    On exit, the image is removed from the store, and from the engine if a driver has loaded it there. If the image is
    still in use, only its name is removed from the store. Close all drivers before the exit.

    Raises the errors of :func:`~securebench.images.ensure.ensure_image` and of the store.
    """
    store = ImageStore()
    reference = f"securebench-audit/repository:{secrets.token_hex(8)}"
    found = ensure_image(store, base)
    with store.incoming(Origin(ImageSource.ARCHIVE, "audit")) as incoming:
        layer = incoming.take([_layer()])
        of_base = Base(found.id, *store.documents(found.id))
        incoming.name(add_image(incoming, of_base, [layer], Additions()), reference)
    try:
        yield reference
    finally:
        remove_from_any_engine(reference)
        try:
            store.remove(reference)
        except ImageError:  # the image is in use: remove its name, so that the next prune removes the image
            store.forget(reference)


def _layer() -> bytes:
    """Return a layer with the repository. A random file in it makes the image's id different each time."""
    texts = {**FILES, ".git/audit": secrets.token_hex(16)}
    files = {**GIT.stored, **{name: text.encode() for name, text in texts.items()}}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{REPOSITORY.strip('/')}/{name}")
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
