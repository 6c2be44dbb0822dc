"""Time limits for tests. The limits also work on a busy or slow machine."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_OBJECTS: Final = 50_000
_REFERENCE_SECONDS: Final = 0.07
"""Processor seconds for writing and reading ``_OBJECTS`` objects as JSON.

On a machine that needs more, limits are extended.
"""


@contextmanager
def processor_seconds(limit: float, *, with_kernel: bool = True) -> Iterator[None]:
    """Fail if the block uses more than ``limit`` seconds of processor time. Other processes do not count.

    On a slow machine, the limit is longer.

    Use this for a block that only computes. Waiting takes no processor time: only the test's time limit ends it.

    Without ``with_kernel``, the kernel's time for the block does not count. Use this for a block that reads gigabytes:
    on a virtual machine whose host has not provided the memory yet, reading 900 MiB took 6.4 s instead of 0.4 s.
    """
    limit = on_this_machine(limit)
    clock = time.process_time if with_kernel else _own_seconds
    started = clock()
    yield
    used = clock() - started
    assert used < limit, f"it used {used:.2f} s of processor time, more than {limit:.2f} s"


def _own_seconds() -> float:
    return os.times().user


def on_this_machine(limit: float) -> float:
    """Return ``limit``, or a longer limit on a slow machine."""
    return limit * _slowness()


@cache
def _slowness() -> float:
    fastest = min(_reference() for _ in range(3))  # other programs can only add time
    return max(1.0, fastest / _REFERENCE_SECONDS)


def _reference() -> float:
    """Return the processor seconds of a fixed piece of work that is limited by memory speed, as most tests are."""
    started = time.process_time()
    text = json.dumps([{"number": number, "text": str(number)} for number in range(_OBJECTS)])
    assert len(json.loads(text)) == _OBJECTS
    return time.process_time() - started
