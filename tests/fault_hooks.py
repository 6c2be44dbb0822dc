"""Hooks at fault points of the process in which the tests run."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from securebench import faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from securebench.faults import FaultPoint


@contextmanager
def hooked(hook: Callable[[FaultPoint, str], None]) -> Iterator[None]:
    """Call ``hook`` at each fault point that this process reaches, until the context ends."""
    faults.install(hook)
    try:
        yield
    finally:
        faults.install(None)
