"""An agent session: what a harness does while one agent works on one task, such as egress and event parsing.

The agent's output is bounded for events and records, decoded, and never trusted.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from securebench.errors import EgressError
from securebench.plurals import counted
from securebench.progress import AgentOutput
from securebench.sandboxes.base import Stream
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.egress.gateway import EgressSession
    from securebench.egress.model import EgressPlan, EgressReport
    from securebench.errors import CandidateError, InfrastructureError
    from securebench.harnesses.base import ProduceContext
    from securebench.progress import Reporter
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import Chunk, CommandResult, ForwardedPort, Sandbox
    from securebench.tasks import AgentView

MAX_RECORDED_BYTES: Final = 64 * 1024
"""Maximum bytes of each stream that a record keeps."""

MAX_LINE_BYTES: Final = 1024 * 1024
"""Maximum bytes of a reported line. Longer lines are dropped, not split: half a secret would not be redacted."""

MAX_REPORTED_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of each stream that are reported in one try. The rest is dropped, so as not to flood a terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnd:
    """How an agent ended, as its harness judges it. ``failure`` overrides the failure derived from the exit code.

    ``stdout``, unless it is ``None``, replaces the program's stdout in the record. A ``fault`` means that the
    infrastructure failed, not the agent; the other fields then describe what the agent used up to that point.
    """

    failure: CandidateError | None = None
    fault: InfrastructureError | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    trajectory: str = ""
    stdout: str | None = None


class AgentSession:
    """A session of one agent on one task: a context manager around the life of its sandbox.

    This base class is for a plain command: it opens no egress and parses no output.
    """

    forwarded_ports: tuple[ForwardedPort, ...] = ()
    environment: Mapping[str, str] = {}

    def start(self, sandbox: Sandbox) -> None:
        """Receive the sandbox in which the agent will run. Closing the sandbox, from any thread, ends the agent."""

    def on_output(self, chunk: Chunk) -> None:
        """Receive a chunk of the agent's output."""

    def end(
        self, result: CommandResult, candidate: CandidateArtifact | None, failure: CandidateError | None
    ) -> SessionEnd:
        """Return how the agent ended. Called after all its processes are gone.

        ``candidate`` is its sealed candidate. ``failure`` is derived from the exit code, the time limit and so on.
        """
        del result, candidate
        return SessionEnd(failure=failure)

    def void(self, fault: InfrastructureError) -> SessionEnd:
        """Return what the agent used before ``fault`` ended it. Called after all its processes are gone."""
        return SessionEnd(fault=fault)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Release everything. Raises no error while another one propagates."""


class EgressAgentSession(AgentSession):
    """A session with egress. If the gateway dies, the sandbox is closed and the fault is an :class:`EgressError`."""

    def __init__(self, session: EgressSession) -> None:
        self._session = session
        self.forwarded_ports = session.forwarded_ports
        self.environment = session.environment

    def start(self, sandbox: Sandbox) -> None:
        """See :meth:`AgentSession.start`."""
        self._session.on_death(sandbox.close)

    def end(
        self, result: CommandResult, candidate: CandidateArtifact | None, failure: CandidateError | None
    ) -> SessionEnd:
        """See :meth:`AgentSession.end`. Returns a fault if the gateway died."""
        del result, candidate
        try:
            report = self._session.close()
        except EgressError as error:
            return SessionEnd(fault=error)
        return SessionEnd(failure=failure, metadata={"usage": {"egress": egress_of(report)}})

    def void(self, fault: InfrastructureError) -> SessionEnd:
        """See :meth:`AgentSession.void`. If the gateway died, that is the cause, so its error replaces ``fault``."""
        try:
            report = self._session.close()
        except EgressError as error:
            return SessionEnd(fault=error)
        return SessionEnd(fault=fault, metadata={"usage": {"egress": egress_of(report)}})

    def __exit__(self, *_: object) -> None:
        """See :meth:`AgentSession.__exit__`."""
        # end() or void() has already returned this error. If neither was called, another error propagates.
        with suppress(EgressError):
            self._session.close()


def open_egress(view: AgentView, plan: EgressPlan, context: ProduceContext) -> EgressSession:
    """Open the egress of one trial of a task. Raises :class:`EgressError`."""
    if context.gateway is None:
        raise EgressError("this run has no egress for its agents")
    return context.gateway.open(TrialId(view.task_id, context.trial), plan)


def egress_of(report: EgressReport) -> dict[str, JsonValue]:
    """Return the proxy's report as it appears in a record."""
    return {"decisions": dict(report.decisions), "hosts": dict(report.hosts), "bytes": report.bytes}


def recorded(data: bytes) -> str:
    """Return the beginning of ``data`` as text, followed by the number of bytes left out, if any.

    The record escapes control characters, so they are kept here.
    """
    text = data[:MAX_RECORDED_BYTES].decode("utf-8", "replace")
    rest = len(data) - MAX_RECORDED_BYTES
    return f"{text}\n[{counted(rest, 'more byte')}]\n" if rest > 0 else text


class OutputReporter:
    """Reports chunks of output as ``agent_output`` events of whole lines."""

    def __init__(self, report: Reporter) -> None:
        self._report = report
        self._lines = {stream: _Lines() for stream in Stream}

    def __call__(self, chunk: Chunk) -> None:
        """Add one chunk."""
        stream, data = chunk
        self._emit(stream, self._lines[stream].take(data))

    def finish(self) -> None:
        """Report the last, unterminated line of each stream."""
        for stream, lines in self._lines.items():
            self._emit(stream, lines.rest())

    def _emit(self, stream: Stream, data: bytes) -> None:
        if data:
            self._report.emit(AgentOutput(stream=stream.value, text=data.decode("utf-8", "replace")))


class _Lines:
    """Splits one stream into whole lines. A line that exceeds a limit is dropped as a whole."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._left = MAX_REPORTED_BYTES
        self._is_left_out = False
        """Whether the beginning of the current line was dropped."""

    def take(self, data: bytes) -> bytes:
        """Add ``data`` and return the lines that are complete."""
        taken, self._left = data[: self._left], self._left - min(len(data), self._left)
        if self._is_left_out:
            _, line_end, taken = taken.partition(b"\n")
            self._is_left_out = not line_end
        self._waiting += taken
        end = self._waiting.rfind(b"\n") + 1
        first = self._waiting.find(b"\n") + 1  # of the lines in ``_waiting``, only the first may be long
        whole = bytes(self._waiting[first if first - 1 > MAX_LINE_BYTES else 0 : end])
        del self._waiting[:end]
        if len(self._waiting) > MAX_LINE_BYTES or (self._waiting and not self._left):
            self._waiting.clear()
            self._is_left_out = True
        return whole

    def rest(self) -> bytes:
        """Return the last, unterminated line."""
        rest = bytes(self._waiting)
        self._waiting.clear()
        return rest
