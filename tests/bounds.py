"""Bounds on time that hold on a busy machine, too."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def processor_seconds(limit: float) -> Iterator[None]:
    """Fail if the block uses a processor for longer than ``limit``: what other processes do does not count.

    For work that only computes. What blocks instead is ended by the time limit of the test.
    """
    started = time.process_time()
    yield
    used = time.process_time() - started
    assert used < limit, f"it used {used:.2f} s of processor time"
