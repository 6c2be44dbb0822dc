"""Batches of harnesses that run one task per call. Also runs in their own environments."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def in_threads(one: Callable[[], str], count: int, at_once: int) -> list[str]:
    """Return what ``count`` calls of ``one`` return, ``at_once`` of them at the same time."""
    with ThreadPoolExecutor(at_once) as pool:
        return [done.result() for done in [pool.submit(one) for _ in range(count)]]
