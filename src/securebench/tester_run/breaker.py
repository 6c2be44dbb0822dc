"""The circuit breaker: stops a run whose remaining tasks would fail for the same reason as the most recent ones."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from securebench.errors import FailureReason, SecureBenchError
from securebench.results.records.record import VerificationStatus
from securebench.results.records.strict_record import last_line

if TYPE_CHECKING:
    from securebench.results.records.record import TaskRecord
    from securebench.sandboxes.base import SandboxDriver

ERRORS_IN_A_ROW: Final = 5
"""The number of consecutive infrastructure errors on this machine after which a run stops.

After this number of consecutive errors on another node, that node gets no more tasks.
"""

FAILED_STARTS: Final = 5
"""The number of trials after which a run stops if its agent has started in none of them."""

START_SECONDS: Final = 5.0
"""An agent that fails within this many seconds may not have started."""

_SOURCES: Final = {
    FailureReason.PROVIDER_UNAVAILABLE: "the model provider is unavailable: ",
    FailureReason.EGRESS_FAILED: "the egress gateway fails: ",
}
"""How the message about consecutive errors begins, for failure reasons that identify what failed."""


class _FailedStart(NamedTuple):
    """The failure of an agent that seems not to have started. ``stderr`` is the last line of the agent's stderr."""

    message: str
    stderr: str


class Breaker:
    """Watches the records of a run, from any thread.

    If a resumed run already has a record that is not an error, failed starts do not stop the run: the user has seen how
    earlier tasks ended, and has chosen to continue.

    Consecutive errors are counted for each node; this machine is the node ``""``. After too many on this machine, the
    run stops. After too many on another node, that node gets no more tasks. If no node is left, the executor stops the
    run, because only the executor knows all nodes.
    """

    def __init__(self, driver: SandboxDriver, *, is_resumed: bool = False) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._errors: dict[str, int] = {}
        """The number of consecutive infrastructure errors, by node."""
        self._last: dict[str, str] = {}
        self._failed_starts: list[_FailedStart] | None = None if is_resumed else []
        """The failed starts so far.

        It is ``None`` in a resumed run that has records, and after an agent has started or failed in a different way.
        """

    def trips(self, record: TaskRecord, node: str = "") -> str:
        """Return why the run should stop after ``record`` from ``node``; empty if it should continue."""
        if trouble := self._agents_trouble(record):
            return trouble
        in_a_row = self._errors_in_a_row(record, node)
        if record.failure is None or not in_a_row:
            return ""
        if record.failure.reason is FailureReason.STORAGE_FAILED:  # all tasks use the same directory
            return record.failure.message
        if record.failure.reason is FailureReason.ENGINE_UNAVAILABLE and (trouble := self._engine_trouble()):
            return f"the sandbox engine stopped: {trouble}"
        if in_a_row >= ERRORS_IN_A_ROW:
            source = _SOURCES.get(record.failure.reason, "")
            return f"{source}{in_a_row} tasks in a row ended in an infrastructure error: {record.failure.message}"
        return ""

    def distrusts(self, node: str) -> str:
        """Return why ``node`` should get no more tasks, or an empty string if it may get more."""
        with self._lock:
            if self._errors.get(node, 0) < ERRORS_IN_A_ROW:
                return ""
            return f"{ERRORS_IN_A_ROW} tasks in a row ended in an infrastructure error on it: {self._last[node]}"

    def _agents_trouble(self, record: TaskRecord) -> str:
        """Count failed starts. Return why the run should stop because of them; empty if it should continue."""
        start = _failed_start(record)
        with self._lock:
            if self._failed_starts is None:
                return ""
            if start is None or self._failed_starts[:1] not in ([], [start]):
                self._failed_starts = None
                return ""
            self._failed_starts.append(start)
            if len(self._failed_starts) < FAILED_STARTS:
                return ""
        return (
            f"no agent could start: the first {FAILED_STARTS} tasks failed within seconds with the same error: "
            f"{start.message}: {start.stderr}\n    hint: fix the agent and start a new run, or continue with --resume"
        )

    def _errors_in_a_row(self, record: TaskRecord, node: str) -> int:
        """Count ``record``. Return the number of consecutive errors on this machine; 0 for a record from another node.

        An unusable task is not counted, and the result is 0: a task that cannot be judged, because of its rubric for
        example, says nothing about the next task.
        """
        if record.failure is not None and record.failure.reason is FailureReason.TASK_UNUSABLE:
            return 0
        with self._lock:
            is_error = record.status is VerificationStatus.ERROR
            self._errors[node] = self._errors.get(node, 0) + 1 if is_error else 0
            self._last[node] = record.failure.message if record.failure else ""
            return 0 if node else self._errors[node]

    def _engine_trouble(self) -> str:
        try:
            self._driver.info()
        except SecureBenchError as error:
            return str(error)
        return ""


def _failed_start(record: TaskRecord) -> _FailedStart | None:
    """Return how the agent failed if it seems not to have started: it failed quickly and printed only an error message.

    An agent could fake this, but the run would only stop, and leave tasks without a verdict.
    """
    failure, durations = record.failure, record.provenance.get("durations")
    if failure is None or failure.reason is not FailureReason.AGENT_EXIT or not isinstance(durations, dict):
        return None
    seconds, stderr = durations.get("produce"), last_line(record.producer.stderr)
    is_quick = isinstance(seconds, float) and seconds < START_SECONDS
    return _FailedStart(failure.message, stderr) if is_quick and stderr and not record.producer.stdout.strip() else None
