"""The circuit breaker: when the machine is broken, a run does not burn through its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.errors import FailureReason, SecureBenchError
from securebench.results.record import VerificationStatus

if TYPE_CHECKING:
    from securebench.results.record import Entry
    from securebench.sandboxes.base import SandboxDriver

ERRORS_IN_A_ROW: Final = 5
"""So many infrastructure errors with no verdict between them end a run: the next task would fare no better."""


class Breaker:
    """Watches the records of a run."""

    def __init__(self, driver: SandboxDriver) -> None:
        self._driver = driver
        self._errors = 0

    def trips(self, entry: Entry) -> str:
        """Return why the run should end after ``entry``; empty if it should go on."""
        if entry.status is not VerificationStatus.ERROR:
            self._errors = 0
            return ""
        self._errors += 1
        if entry.reason == FailureReason.ENGINE_UNAVAILABLE and (trouble := self._engine_trouble()):
            return f"the sandbox engine is gone: {trouble}"
        if self._errors >= ERRORS_IN_A_ROW:
            return f"{self._errors} tasks in a row ended in an infrastructure error, the last with: {entry.message}"
        return ""

    def _engine_trouble(self) -> str:
        try:
            self._driver.info()
        except SecureBenchError as error:
            return str(error)
        return ""
