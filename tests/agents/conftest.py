"""Fixtures for tests of agent programs: a fake npm registry on this machine, and an empty store for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fake_npm import FakeNpm, fake_npm
from securebench.agents.registry import NpmRegistry
from securebench.agents.store import AgentStore
from securebench.http.timeouts import Timeouts
from securebench.images.store.image_store import ImageStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IMPATIENT = Timeouts(connect=2.0, read=1.0, total=10.0, attempts=3, pause=0.01)


@pytest.fixture
def npm() -> Iterator[FakeNpm]:
    """Yield a fake registry without packages."""
    with fake_npm() as npm:
        yield npm


@pytest.fixture
def registry(npm: FakeNpm) -> NpmRegistry:
    """Return a client of the fake registry with short timeouts."""
    return NpmRegistry(npm.url, IMPATIENT)


@pytest.fixture
def cache(tmp_path: Path, registry: NpmRegistry) -> Iterator[AgentStore]:
    """Yield an empty agent store that downloads from the fake registry."""
    with AgentStore(ImageStore(tmp_path / "images"), registry) as store:
        yield store
