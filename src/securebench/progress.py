"""Progress: typed events, and the one place that guards a run against its own observers.

A :class:`Reporter` is handed down through the run; a sink is any callable that takes an event. A sink that raises
is dropped after one warning: progress never changes a verdict and never stops a run.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from securebench.resources import JsonValue

_log = logging.getLogger(__name__)


class EventKind(StrEnum):
    """Every event that a run reports."""

    RUN_START = "run_start"
    RESUME = "resume"
    TASK_START = "task_start"
    PRODUCER_START = "producer_start"
    PRODUCER_DONE = "producer_done"
    VERIFIER_START = "verifier_start"
    VERIFIER_POLICY_DENIED = "verifier_policy_denied"
    VERIFIER_DONE = "verifier_done"
    TASK_DONE = "task_done"
    SANDBOX_CREATE = "sandbox_create"
    SANDBOX_START = "sandbox_start"
    SANDBOX_COMMAND = "sandbox_command"
    SANDBOX_RESULT = "sandbox_result"
    AGENT_OUTPUT = "agent_output"
    RUN_DONE = "run_done"


_SUMMARY: Final = (
    "run_id benchmark_id output_dir ending verification_status tasks passed failed errors pending not_run scored "
    "pass_rate passed_by_assurance families usage problems"
)

EVENT_FIELDS: Final[Mapping[EventKind, tuple[str, ...]]] = MappingProxyType(
    {
        EventKind.RUN_START: ("run_id", "benchmark_id", "tasks", "to_do", "workers", "output_dir"),
        EventKind.RESUME: ("kept", "redone", "tasks"),
        EventKind.TASK_START: ("family", "attempt"),
        EventKind.PRODUCER_START: (),
        EventKind.PRODUCER_DONE: ("reason", "duration_seconds"),
        EventKind.VERIFIER_START: ("verifier", "version"),
        EventKind.VERIFIER_POLICY_DENIED: ("commands",),
        EventKind.VERIFIER_DONE: ("passed", "reason"),
        EventKind.TASK_DONE: ("family", "status", "reason", "message", "assurance"),
        EventKind.SANDBOX_CREATE: ("image", "network"),
        EventKind.SANDBOX_START: (),
        EventKind.SANDBOX_COMMAND: ("command",),
        EventKind.SANDBOX_RESULT: ("exit_code", "timed_out", "duration_seconds", "output"),
        EventKind.AGENT_OUTPUT: ("stream", "text"),
        EventKind.RUN_DONE: tuple(_SUMMARY.split()),
    }
)
"""The keys of each event's data. Tests hold every call of :meth:`Reporter.emit`, and the reference page, to this."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event. ``time`` is monotonic seconds; ``task_id`` is empty for events of the whole run."""

    kind: EventKind
    task_id: str = ""
    data: Mapping[str, JsonValue] = field(default_factory=dict)
    time: float = field(default_factory=time.monotonic)


class Reporter:
    """Hands events to sinks, from any thread, in one order. ``task`` binds one to a task.

    Events whose kind is ``muted`` cost nothing and reach nobody.
    """

    def __init__(
        self,
        sinks: Iterable[Callable[[Event], None]] = (),
        *,
        task_id: str = "",
        muted: Iterable[EventKind] = (),
    ) -> None:
        self._sinks = list(sinks)
        self._task_id = task_id
        self._muted = frozenset(muted)
        self._lock = threading.Lock()
        self._scrub: Callable[[Mapping[str, JsonValue]], Mapping[str, JsonValue]] | None = None

    def task(
        self,
        task_id: str,
        *,
        scrub: Callable[[Mapping[str, JsonValue]], Mapping[str, JsonValue]] | None = None,
    ) -> Reporter:
        """Return a reporter whose events carry ``task_id``, with the same sinks. ``scrub`` redacts their data."""
        bound = Reporter(task_id=task_id, muted=self._muted)
        bound._sinks, bound._lock, bound._scrub = self._sinks, self._lock, scrub
        return bound

    def emit(self, kind: EventKind, **data: JsonValue) -> None:
        """Report one event. Never raises for what a sink does."""
        if kind in self._muted or not self._sinks:
            return
        event = Event(kind, self._task_id, self._scrub(data) if self._scrub else data)
        with self._lock:
            for sink in list(self._sinks):
                try:
                    sink(event)
                except Exception:  # noqa: BLE001 - an observer must not change what it observes
                    self._sinks.remove(sink)
                    _log.warning("a progress sink failed and was dropped", exc_info=True)
