"""A registry for each test, and no credentials of whoever runs it."""

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
    """Give the directory where ``docker login`` keeps credentials: an empty one."""
    directory = tmp_path / "docker"
    directory.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(directory))
    return directory


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """Give a registry that has nothing yet."""
    with fake_registry() as server:
        yield server
