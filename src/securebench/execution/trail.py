"""What is recorded about a task's execution: tries, durations and the current phase."""

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
    """Records the tries, durations and current phase of one attempt at a task. Not thread safe."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._started_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._start = time.monotonic()
        self._tries: Counter[str] = Counter()
        self._durations: dict[str, float] = {}
        self.phase = FailurePhase.PREFLIGHT

    def try_phase(self, phase: FailurePhase, once: Callable[[], T], control: RunControl) -> T:
        """Call ``once`` and return its result, retrying after a pause on infrastructure failures.

        A failure of the agent or its candidate is a result and is not retried. A :class:`StorageError` is raised at
        once. Raises the last :class:`InfrastructureError`, or :class:`RunStoppedError` if the run is stopped.
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
        """Return the attempt as it appears in a record's provenance. Durations are in seconds."""
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
