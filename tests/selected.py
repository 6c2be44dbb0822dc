"""Choose which variants of a test always run. The others run only with ``--long``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def variants(names: Iterable[str], always: Callable[[str], bool]) -> list[Any]:
    """Return a test parameter for each name, with the mark ``long`` unless ``always(name)`` is true."""
    return [pytest.param(name, marks=() if always(name) else pytest.mark.long) for name in names]


def small_trap(name: str) -> bool:
    """Return whether a hostile directory tree is quick to create.

    The tests of snapshots do not use this function: they always run with all trees.
    """
    return name not in {"many_files", "sparse_files"}
