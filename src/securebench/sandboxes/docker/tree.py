"""The unpacked files of an engine's images: in the image store, copied from the engine if they are missing."""

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
    """The trees of an engine's images, by the engine's image ids. Thread-safe."""

    def __init__(self, engine: Engine, store: ImageStore | None) -> None:
        self._engine = engine
        self._store = store
        self._copying = threading.Lock()

    def lease(self, image: ResolvedImage) -> TreeLease:
        """Return the files of ``image``. Raises as :func:`import_from_engine` and :meth:`ImageStore.lease` do."""
        with self._copying:  # once: an image may be large, and many tasks need the same one
            store = self._store = self._store or ImageStore()
            if store.find(image.id) is None:
                import_from_engine(self._engine, store, image.id, lambda _line: None)
            if store.find(image.id) is None:
                raise ImageError(
                    f"the image id of {image.reference} in the engine differs from the one in its exported archive",
                    hint="configure the engine to use its own image store, not containerd's, or use the oci driver",
                )
        return store.lease(image.id)
