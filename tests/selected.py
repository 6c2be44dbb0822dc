"""Choose which variants of a test run each time. The others run with ``--long``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def variants(names: Iterable[str], always: Callable[[str], bool]) -> list[Any]:
    """Return a parameter for each name, marked as long unless ``always`` of it."""
    return [pytest.param(name, marks=() if always(name) else pytest.mark.long) for name in names]


def small_trap(name: str) -> bool:
    """Return whether a hostile tree is made in little time. The large ones are always tried where they are sealed."""
    return name not in {"many_files", "sparse_files"}
