"""A place for hostile trees, which are removed by the code under test: nothing else can be trusted to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forbidden_tools import no_tools  # noqa: F401 - a fixture
from securebench.fs.rmtree import make_fresh_directory, make_private_directory, remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    """Give an empty workspace in a private directory."""
    make_private_directory(tmp_path / "workspaces")
    path = tmp_path / "workspaces" / "task"
    make_fresh_directory(path)
    yield path
    remove_tree(path)
