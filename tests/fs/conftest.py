"""A workspace for hostile trees. The code under test removes it, because other code may not be able to."""

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
    """Yield an empty workspace in a private directory."""
    make_private_directory(tmp_path / "workspaces")
    path = tmp_path / "workspaces" / "task"
    make_fresh_directory(path)
    yield path
    remove_tree(path)
