"""Image stores in which a power failure interrupts an import, an unpacking or a removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from power_loss.disk import tree_at
from power_loss.scenarios import import_image
from securebench.images.store.image_store import ImageStore

if TYPE_CHECKING:
    from pathlib import Path

    from power_loss.conftest import Survive
    from power_loss.disk import State

IMPORTED = (None, "one", "two", "one")
"""The texts of the images that the scenario imports with the same name, in order. At first, there is none."""


def test_images_are_whole_or_absent(root: Path, survive: Survive) -> None:
    """After a power failure, an imported image is there, unpacks to its whole tree, and more images can be imported.

    Its name refers to the last image that was promised, or to the one that was being imported.
    """

    def check(state: State) -> None:
        store = ImageStore(root / "images")
        for prune in (False, True):
            if prune:
                store.prune()
            found = store.find("tool:1")
            done = len(state.promises)
            assert (found.environment["TEXT"] if found else None) in IMPORTED[done : done + 2]
            if found:
                require_whole_tree(store, found.id, found.environment["TEXT"])
        for text in ("one", "two"):
            require_whole_tree(store, import_image(store, text), text)

    survive("images", check=check, at_least=200)


def require_whole_tree(store: ImageStore, image_id: str, text: str) -> None:
    """Fail unless the image unpacks to the files that were imported with ``text``."""
    with store.lease(image_id) as lease:
        assert tree_at(lease.root) == {"etc": {"os": text.encode()}, "bin": {"sh": text.encode()}}
