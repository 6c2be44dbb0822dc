"""A fake registry for each test, and an empty credentials directory instead of the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fake_registry import fake_registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fake_registry import FakeRegistry


@pytest.fixture(autouse=True)
def docker_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory in which ``docker login`` keeps credentials. It is empty."""
    directory = tmp_path / "docker"
    directory.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(directory))
    return directory


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """Start a registry without images, and return it."""
    with fake_registry() as server:
        yield server
