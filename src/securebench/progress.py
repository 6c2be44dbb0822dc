"""Progress: one type for each event, and the reporter that keeps observers from affecting a run.

A :class:`Reporter` is handed down through the run; a sink is any callable that accepts an event. A sink that raises
gets no more events, and one warning is logged. So progress never changes a verdict and never stops a run.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from securebench.resources import JsonValue

_log = logging.getLogger(__name__)


class EventKind(StrEnum):
    """The name of each event."""

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


@dataclass(frozen=True, kw_only=True)
class Event:
    """The base of all events. ``time`` is monotonic, in seconds.

    For events of the whole run, ``task_id`` is empty and ``trial`` is 0. The trials of a task are numbered from 1.
    """

    kind: ClassVar[EventKind]
    task_id: str = ""
    trial: int = 0
    time: float = field(default_factory=time.monotonic)

    @property
    def trial_id(self) -> TrialId:
        """The task and the number of its trial."""
        return TrialId(self.task_id, self.trial)

    @property
    def data(self) -> dict[str, JsonValue]:
        """The event's own fields by name, as JSON values.

        The fields of a task's events are redacted like records before sinks get the events.
        """
        return {name: getattr(self, name) for name in _own_fields(type(self))}  # type: ignore[arg-type]  # hashable


@dataclass(frozen=True, kw_only=True)
class RunStart(Event):
    """A run begins: ``tasks`` tasks with ``trials`` trials each. ``to_do`` of these trials still have to be executed.

    ``pack_tasks`` is the number of tasks in the whole pack. ``agent`` is the agent's label. ``budget_usd`` is the
    budget of the run, if it has one. ``cost_usd`` is what earlier attempts and the checks before the
    first task have cost, if that is known.
    """

    kind = EventKind.RUN_START
    run_id: str
    benchmark_id: str
    agent: str
    tasks: int
    trials: int
    pack_tasks: int
    to_do: int
    workers: int
    output_dir: str
    budget_usd: float | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, kw_only=True)
class Resume(Event):
    """A run was resumed: ``kept`` of its ``planned`` trials do not run again.

    ``redone`` trials had ended in an error. They run again.
    """

    kind = EventKind.RESUME
    kept: int
    redone: int
    planned: int


@dataclass(frozen=True, kw_only=True)
class TaskStart(Event):
    """A worker starts a trial of a task. The attempts at a trial are numbered from 1."""

    kind = EventKind.TASK_START
    family: str
    attempt: int


@dataclass(frozen=True, kw_only=True)
class ProducerStart(Event):
    """The agent's phase begins."""

    kind = EventKind.PRODUCER_START


@dataclass(frozen=True, kw_only=True)
class ProducerDone(Event):
    """The agent's phase has ended. ``reason`` is a failure reason, or ``None``."""

    kind = EventKind.PRODUCER_DONE
    reason: str | None
    duration_seconds: float


@dataclass(frozen=True, kw_only=True)
class VerifierStart(Event):
    """Verification begins. ``verifier`` is the verifier's family."""

    kind = EventKind.VERIFIER_START
    verifier: str
    version: str


@dataclass(frozen=True, kw_only=True)
class VerifierPolicyDenied(Event):
    """The tester's policy denies ``commands`` that the row needs."""

    kind = EventKind.VERIFIER_POLICY_DENIED
    commands: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class VerifierDone(Event):
    """The verdict is known. ``reason`` is a failure reason, or ``None`` for a pass."""

    kind = EventKind.VERIFIER_DONE
    passed: bool
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class TaskDone(Event):
    """The record of a trial is on disk.

    ``assurance`` says what the verdict rests on, and is ``None`` without a verdict. ``agent_stderr`` is the last line
    of the agent's stderr, or empty if the task passed or is pending. ``run_cost_usd`` is what the whole run has cost so
    far, if that is known.
    """

    kind = EventKind.TASK_DONE
    family: str
    status: str
    reason: str | None
    message: str
    agent_stderr: str
    assurance: str | None
    run_cost_usd: float | None = None


@dataclass(frozen=True, kw_only=True)
class SandboxCreate(Event):
    """A sandbox was created."""

    kind = EventKind.SANDBOX_CREATE
    image: str
    network: str


@dataclass(frozen=True, kw_only=True)
class SandboxCommand(Event):
    """A command is about to start. For a verifier's command, only the program's name is given."""

    kind = EventKind.SANDBOX_COMMAND
    command: str


@dataclass(frozen=True, kw_only=True)
class SandboxStart(Event):
    """The command that :class:`SandboxCommand` announced has started."""

    kind = EventKind.SANDBOX_START


@dataclass(frozen=True, kw_only=True)
class SandboxResult(Event):
    """The command has ended. ``output`` is the beginning of what it printed, and empty for a verifier's command."""

    kind = EventKind.SANDBOX_RESULT
    exit_code: int | None
    timed_out: bool
    duration_seconds: float
    output: str


@dataclass(frozen=True, kw_only=True)
class AgentOutput(Event):
    """The agent printed ``text``, which consists of whole lines, to ``stream``: ``stdout`` or ``stderr``."""

    kind = EventKind.AGENT_OUTPUT
    stream: str
    text: str


@dataclass(frozen=True, kw_only=True)
class RunDone(Event):
    """The run has ended. ``docs/reference/events.md`` lists the keys of ``summary``."""

    kind = EventKind.RUN_DONE
    summary: Mapping[str, JsonValue]


EVENTS: Final[Mapping[EventKind, type[Event]]] = MappingProxyType({kind.kind: kind for kind in Event.__subclasses__()})
"""The class of each kind of event."""

_COMMON: Final = frozenset(("task_id", "trial", "time"))


@cache
def _own_fields(kind: type[Event]) -> list[str]:
    return [one.name for one in fields(kind) if one.name not in _COMMON]


class Reporter:
    """Hands events to sinks, from any thread, in the order of their times.

    :meth:`task` returns a reporter for one trial. Events whose kind is in ``muted`` are dropped before they are
    redacted.
    """

    def __init__(
        self,
        sinks: Iterable[Callable[[Event], None]] = (),
        *,
        trial: TrialId | None = None,
        muted: Iterable[EventKind] = (),
    ) -> None:
        self._sinks = list(sinks)
        self._trial = trial or TrialId("", 0)
        self._muted = frozenset(muted)
        self._lock = threading.Lock()
        self._scrub: Callable[[Mapping[str, JsonValue]], Mapping[str, JsonValue]] | None = None

    def task(
        self,
        trial: TrialId,
        *,
        scrub: Callable[[Mapping[str, JsonValue]], Mapping[str, JsonValue]] | None = None,
    ) -> Reporter:
        """Return a reporter whose events carry ``trial``, with the same sinks. ``scrub`` redacts the events' fields."""
        bound = Reporter(trial=trial, muted=self._muted)
        bound._sinks, bound._lock, bound._scrub = self._sinks, self._lock, scrub
        return bound

    def emit(self, event: Event) -> None:
        """Report one event. Errors of a sink are not raised."""
        if event.kind in self._muted or not self._sinks:
            return
        redacted = self._redacted(event)
        with self._lock:  # times are taken under the lock, so they have the order of the events
            event = replace(event, **self._trial._asdict(), **redacted, time=time.monotonic())
            for sink in list(self._sinks):
                try:
                    sink(event)
                except Exception:  # noqa: BLE001 - an observer must not change what it observes
                    self._sinks.remove(sink)
                    _log.warning("a progress sink failed and was dropped", exc_info=True)

    def _redacted(self, event: Event) -> dict[str, Any]:
        """Return the event's redacted fields by name, or an empty dictionary if this reporter has no ``scrub``."""
        if self._scrub is None:
            return {}
        # ``scrub`` may also change keys. It gets each field separately, so that the field's name is known afterwards.
        return {name: next(iter(self._scrub({name: value}).values())) for name, value in event.data.items()}
