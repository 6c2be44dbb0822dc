"""Copying the files of an engine's images into the store: each image is copied once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from securebench.errors import ImageError
from securebench.images.model import ResolvedImage
from securebench.images.store.image_store import ImageStore
from securebench.images.store.leases import TreeLease
from securebench.sandboxes.docker import driver as docker_driver
from securebench.sandboxes.docker.driver import DockerDriver, EngineTrees

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.engine.client import Engine

IMAGE = ResolvedImage("app:1", "sha256:" + "a" * 64)


class FakeStore:
    """A fake image store. ``taken`` lists the images that were copied into it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.images: set[str] = set()
        self.taken: list[str] = []

    def find(self, reference: str) -> object:
        """Return an object with the image's id, or ``None`` if the image is not in the store."""
        return SimpleNamespace(id=reference) if reference in self.images else None

    def lease(self, image_id: str) -> TreeLease:
        """Return a lease of an image that must be in the store."""
        assert image_id in self.images
        return TreeLease(self.root, os.open(self.root, os.O_RDONLY))


@pytest.fixture
def fake_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    """Return an empty store. Copying an image from an engine is patched to only add the image's id to the store."""
    found = FakeStore(tmp_path)

    def take(_engine: object, store: FakeStore, reference: str, _report: object) -> None:
        store.taken.append(reference)
        store.images.add(reference)

    monkeypatch.setattr(docker_driver, "import_from_engine", take)
    return found


def trees(store: FakeStore) -> EngineTrees:
    """Return :class:`EngineTrees` for ``store``, without an engine."""
    return EngineTrees(cast("Any", None), cast("Any", store))


def test_an_image_is_taken_once(fake_store: FakeStore) -> None:
    """If eight tasks need an image's files at the same time, the image is copied from the engine once."""
    found = trees(fake_store)
    with ThreadPoolExecutor(8) as pool:
        leases = list(pool.map(lambda _number: found.lease(IMAGE), range(8)))
    assert fake_store.taken == [IMAGE.id]
    for lease in leases:
        lease.close()


def test_what_the_store_has_is_not_taken(fake_store: FakeStore) -> None:
    """An image that is already in the store is not copied from the engine."""
    fake_store.images.add(IMAGE.id)
    trees(fake_store).lease(IMAGE).close()
    assert fake_store.taken == []


def test_an_id_that_the_archive_has_not_is_told(fake_store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """If an engine exports an image under another id, an image error with a hint is raised."""
    monkeypatch.setattr(docker_driver, "import_from_engine", lambda *_arguments: None)
    with pytest.raises(ImageError) as raised:
        trees(fake_store).lease(IMAGE)
    assert raised.value.hint


@pytest.mark.engine
def test_the_files_of_an_engines_image_are_brought(engine: Engine, base_image: ResolvedImage, tmp_path: Path) -> None:
    """Leasing an image copies it from the engine to the store, where it stays under the engine's id."""
    store = ImageStore(tmp_path / "images")
    assert engine.version
    driver = DockerDriver(store=store)
    try:
        with driver.image_tree(base_image) as tree:
            assert (tree.root / "etc/passwd").read_text().startswith("root:")
        assert store.find(base_image.id) is not None
    finally:
        driver.close()
