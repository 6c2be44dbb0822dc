"""Sandboxes that several tasks of a run use, one after the other."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from securebench.sandboxes.base import SandboxDriver, SandboxSpec


class Closable(Protocol):
    """Something that can be closed."""

    def close(self) -> None:
        """Close this object."""


KeptT = TypeVar("KeptT", bound=Closable)

_WAIT_SECONDS: Final = 1.0
"""How many seconds to wait for an idle sandbox if at least as many sandboxes are in use as there are cores.

The wait is short because a test that only sleeps occupies a sandbox without using a core. There is no reason to delay
other tests until it ends.
"""


class KeptSandboxes(Generic[KeptT]):
    """Idle sandboxes by spec, at most as many as were ever in use at the same time. Thread-safe.

    Use this class only for sandboxes that never run candidate code. They are created with the run's ``driver``, outside
    any task, so no task's events mention them.
    """

    def __init__(self, driver: SandboxDriver) -> None:
        self.driver = driver
        self._changed = threading.Condition()
        self._cores = len(os.sched_getaffinity(0))
        self._idle: list[tuple[SandboxSpec, KeptT]] = []
        self._in_use = 0
        self._most = 0

    def take(self, spec: SandboxSpec) -> KeptT | None:
        """Return an idle sandbox of ``spec``, or ``None`` if the caller has to start one. Call :meth:`put` afterwards.

        If no sandbox of ``spec`` is idle and at least as many sandboxes are in use as there are cores, wait up to a
        second until a sandbox is given back. Starting a sandbox takes more CPU time than a usual task, so a short run
        would be slower if each of many workers started its own sandbox.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._in_use < self._cores or self._find(spec) is not None, _WAIT_SECONDS)
            self._in_use += 1
            self._most = max(self._most, self._in_use)
            found = self._find(spec)
            if found is None:
                return None
            self._idle.remove(found)
            return found[1]

    def put(self, spec: SandboxSpec, sandbox: KeptT | None) -> None:
        """Give back ``sandbox`` after use, or ``None`` if it was closed.

        If too many sandboxes are idle, close those that have been idle longest.
        """
        with self._changed:
            self._in_use -= 1
            if sandbox is not None:
                self._idle.append((spec, sandbox))
            self._changed.notify_all()
            too_many = max(len(self._idle) - self._most, 0)
            closing, self._idle = self._idle[:too_many], self._idle[too_many:]
        for _, old in closing:
            old.close()

    def close(self) -> None:
        """Close all idle sandboxes."""
        with self._changed:
            closing, self._idle = self._idle, []
        for _, sandbox in closing:
            sandbox.close()

    def _find(self, spec: SandboxSpec) -> tuple[SandboxSpec, KeptT] | None:
        return next((entry for entry in self._idle if entry[0] == spec), None)
