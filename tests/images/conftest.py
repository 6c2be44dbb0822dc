"""Fixtures for the tests of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from securebench.images.store.image_store import ImageStore
from securebench.images.store.places import DIRECTORY_VARIABLE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageStore:
    """Return an empty image store, which is the default store of this process during the test."""
    directory = tmp_path / "images"
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(directory))
    return ImageStore()
