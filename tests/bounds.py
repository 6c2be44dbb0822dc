"""Bounds on time that also hold on a busy or slow machine."""

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
"""How long it takes to write and read ``_OBJECTS`` as JSON on a machine for which limits are not extended."""


@contextmanager
def processor_seconds(limit: float) -> Iterator[None]:
    """Fail if the block uses a processor for longer than ``limit``: what other processes do does not count.

    Neither does the kernel's time. On a virtual machine, memory that the host has not provided yet makes the kernel up
    to 20 times as slow: reading 900 MiB took it 0.4 s or 6.4 s. What blocks is ended by the time limit of the test.
    """
    limit = on_this_machine(limit)
    started = os.times().user
    yield
    used = os.times().user - started
    assert used < limit, f"it used {used:.2f} s of processor time, more than {limit:.2f} s"


def on_this_machine(limit: float) -> float:
    """Return ``limit``, or more on a slow machine."""
    return limit * _slowness()


@cache
def _slowness() -> float:
    fastest = min(_reference() for _ in range(3))  # other programs can only add time
    return max(1.0, fastest / _REFERENCE_SECONDS)


def _reference() -> float:
    """Return how long this machine takes for work like that of the tests, most of which is bound by memory."""
    started = time.process_time()
    text = json.dumps([{"number": number, "text": str(number)} for number in range(_OBJECTS)])
    assert len(json.loads(text)) == _OBJECTS
    return time.process_time() - started
