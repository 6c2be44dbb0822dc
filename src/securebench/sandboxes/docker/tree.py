"""The files of an engine's images on this host: in the image store, taken from the engine where they are not there."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from securebench.errors import ImageError
from securebench.images.engine_images import import_from_engine
from securebench.images.store.image_store import ImageStore

if TYPE_CHECKING:
    from securebench.engine.client import Engine
    from securebench.images.model import ResolvedImage
    from securebench.images.store.leases import TreeLease


class EngineTrees:
    """The trees of an engine's images, by the ids that these have there. Thread safe."""

    def __init__(self, engine: Engine, store: ImageStore | None) -> None:
        self._engine = engine
        self._store = store
        self._taking = threading.Lock()

    def lease(self, image: ResolvedImage) -> TreeLease:
        """Return the files of ``image``. Raises what :func:`import_from_engine` and :meth:`ImageStore.lease` raise."""
        with self._taking:  # once: an image may be large, and many tasks want the same one
            store = self._store = self._store or ImageStore()
            if store.find(image.id) is None:
                import_from_engine(self._engine, store, image.id, lambda _line: None)
            if store.find(image.id) is None:
                raise ImageError(
                    f"the engine has {image.reference} under an id that its archive of it has not",
                    hint="let the engine keep images in its own store, not containerd's, or use the oci driver",
                )
        return store.lease(image.id)
