"""Run a batch of tasks in threads, for evaluation harnesses that run one task per call.

The virtual environments of the harnesses import this module, so it uses only the standard library.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def in_threads(one: Callable[[], str], count: int, at_once: int) -> list[str]:
    """Call ``one`` ``count`` times, at most ``at_once`` calls at the same time. Return the results."""
    with ThreadPoolExecutor(at_once) as pool:
        return [done.result() for done in [pool.submit(one) for _ in range(count)]]
