"""The circuit breaker: when the machine is broken, a run does not burn through its tasks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from securebench.errors import FailureReason, SecureBenchError
from securebench.results.record import VerificationStatus

if TYPE_CHECKING:
    from securebench.results.record import TaskRecord
    from securebench.sandboxes.base import SandboxDriver

ERRORS_IN_A_ROW: Final = 5
"""So many infrastructure errors with no verdict between them end a run: the next task would fare no better."""

_WHOSE: Final = {
    FailureReason.PROVIDER_UNAVAILABLE: "the model's provider does not serve this run: ",
    FailureReason.EGRESS_FAILED: "the egress gateway fails: ",
}
"""How the trouble is named that is not this machine's, or not all of it."""


class Breaker:
    """Watches the records of a run. Any thread may ask it."""

    def __init__(self, driver: SandboxDriver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._errors = 0

    def trips(self, record: TaskRecord) -> str:
        """Return why the run should end after ``record``; empty if it should go on."""
        in_a_row = self._count(record)
        if record.failure is None or not in_a_row:
            return ""
        if record.failure.reason is FailureReason.ENGINE_UNAVAILABLE and (trouble := self._engine_trouble()):
            return f"the sandbox engine is gone: {trouble}"
        if in_a_row >= ERRORS_IN_A_ROW:
            whose = _WHOSE.get(record.failure.reason, "")
            return f"{whose}{in_a_row} tasks in a row ended in an infrastructure error: {record.failure.message}"
        return ""

    def _count(self, record: TaskRecord) -> int:
        with self._lock:
            self._errors = self._errors + 1 if record.status is VerificationStatus.ERROR else 0
            return self._errors

    def _engine_trouble(self) -> str:
        try:
            self._driver.info()
        except SecureBenchError as error:
            return str(error)
        return ""
