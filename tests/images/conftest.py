"""Fixtures of the images' tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from securebench.images.store.image_store import ImageStore
from securebench.images.store.places import DIRECTORY_VARIABLE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageStore:
    """Give an empty image store, which is this process's default while the test runs."""
    directory = tmp_path / "images"
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(directory))
    return ImageStore()
