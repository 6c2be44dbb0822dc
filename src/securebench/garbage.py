"""Python's garbage collector, which finds unused objects in reference cycles."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_COLLECT_AFTER: Final = 50_000
"""The number of new objects after which the collector runs. Python 3.11 uses 700."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the collector run rarely. Also usable as a decorator.

    The rows and records of a large pack are millions of objects without cycles, and each full collection visits all of
    them. With the default threshold, resuming a run with 10,000 records spent a fifth of its time on collections.
    """
    before = gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
