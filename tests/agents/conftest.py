"""Fixtures of the tests of agent programs: a registry on this machine, a cache of the test's own."""

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
    """Give a registry that has nothing yet."""
    with fake_npm() as npm:
        yield npm


@pytest.fixture
def registry(npm: FakeNpm) -> NpmRegistry:
    """Give it as the program sees it, with little patience."""
    return NpmRegistry(npm.url, IMPATIENT)


@pytest.fixture
def cache(tmp_path: Path, registry: NpmRegistry) -> Iterator[AgentStore]:
    """Give an empty cache that is filled from the test's registry."""
    with AgentStore(ImageStore(tmp_path / "images"), registry) as store:
        yield store
