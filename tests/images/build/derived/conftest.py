"""Fixtures for the tests of derived images: a small base image in a temporary store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from image_archives import config, digest, directory, file, layer
from securebench.images.layout import LAYER_TYPE, Descriptor
from securebench.images.store.index import ImageSource, Origin

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.images.store.image_store import ImageStore

BASE = "base:1"
BASE_LAYER = layer(directory("etc"), file("etc/os", b"one\n"), directory("app"), file("app/old", b"old\n"))


@pytest.fixture
def based(own_store: ImageStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ImageStore:
    """Return a store with the image ``base:1``. There is no engine to get other images from."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    with own_store.incoming(Origin(ImageSource.ARCHIVE)) as incoming:
        taken = incoming.take([BASE_LAYER])
        document = config([BASE_LAYER], Env=["PATH=/bin", "KEPT=yes"], Labels={"of": "base"}, WorkingDir="/etc")
        image_id = incoming.add(document, [Descriptor(LAYER_TYPE, taken.digest, taken.size)])
        incoming.name(image_id, BASE)
    assert taken.digest == digest(BASE_LAYER)
    return own_store
