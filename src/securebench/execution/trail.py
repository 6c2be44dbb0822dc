"""What is noted while a task is executed: tries, times, and how far it came."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from securebench.errors import FailurePhase, InfrastructureError, StorageError
from securebench.execution.retry import pause_before_retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from securebench.execution.context import RunControl
    from securebench.resources import JsonValue

T = TypeVar("T")


class Trail:
    """The trail of one attempt at a task. One thread's own."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._started_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._start = time.monotonic()
        self._tries: Counter[str] = Counter()
        self._durations: dict[str, float] = {}
        self.phase = FailurePhase.PREFLIGHT

    def try_phase(self, phase: FailurePhase, once: Callable[[], T], control: RunControl) -> T:
        """Return what ``once`` returns, called again after a pause when the infrastructure failed it.

        A failure of the agent or its candidate is a result, not a reason to try again; nor is a full disk of ours.
        Raises the last :class:`InfrastructureError`, and :class:`RunStoppedError`.
        """
        self.phase = phase
        with self._timed(phase):
            while True:
                control.check()
                self._tries[phase.value] += 1
                try:
                    return once()
                except StorageError:
                    raise
                except InfrastructureError as error:
                    pause = pause_before_retry(error, self._tries[phase.value])
                    if pause is None:
                        raise
                    control.pause(pause)

    def to_json(self) -> dict[str, JsonValue]:
        """Return what a record's provenance says of the attempt. Durations in seconds."""
        return {
            "attempt": self._attempt,
            "tries": dict(self._tries),
            "started_at": self._started_at,
            "durations": {**self._durations, "total": round(time.monotonic() - self._start, 3)},
        }

    @contextmanager
    def _timed(self, phase: FailurePhase) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self._durations[phase.value] = round(time.monotonic() - start, 3)
