"""What a harness does beside one agent's work: its way out, and what its words mean."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from securebench.errors import EgressError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.egress.gateway import EgressSession
    from securebench.egress.model import EgressPlan, EgressReport
    from securebench.errors import CandidateError, InfrastructureError
    from securebench.harnesses.base import ProduceContext
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import Chunk, CommandResult, Sandbox
    from securebench.sandboxes.forwarding import ForwardedPort


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnd:
    """What an agent's end means, as far as its harness can tell. ``failure`` replaces what its exit code would say.

    ``stdout`` stands in the record in place of what the program printed, if it is not ``None``. With a ``fault`` it was
    not the agent that failed, and the rest is what it used until then.
    """

    failure: CandidateError | None = None
    fault: InfrastructureError | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    trajectory: str = ""
    stdout: str | None = None


class AgentSession:
    """One agent's work on one task, attended. A context manager around the life of its sandbox.

    This one has no way out and understands nothing: a plain command's.
    """

    forwarded_ports: tuple[ForwardedPort, ...] = ()
    environment: Mapping[str, str] = {}

    def start(self, sandbox: Sandbox) -> None:
        """Note the sandbox in which the agent is about to run: closing it, from any thread, ends the work."""

    def on_output(self, chunk: Chunk) -> None:
        """Take what the agent prints, as it comes."""

    def end(
        self, result: CommandResult, candidate: CandidateArtifact | None, failure: CandidateError | None
    ) -> SessionEnd:
        """Say what came of it. Nothing of the agent lives any more; ``candidate`` is what it left to be judged.

        ``failure`` is what the exit code, the time limit and the like say.
        """
        del result, candidate
        return SessionEnd(failure=failure)

    def void(self, fault: InfrastructureError) -> SessionEnd:
        """Say what the agent used until ``fault`` ended its work. Nothing of it lives any more."""
        return SessionEnd(fault=fault)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of everything. Raises nothing of its own while an error is on its way."""


class EgressAgentSession(AgentSession):
    """An agent with a way out. If that dies, so does its sandbox, and its end is an :class:`EgressError`."""

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
        """See :meth:`AgentSession.end`. It is a fault if the way out died."""
        del result, candidate
        try:
            report = self._session.close()
        except EgressError as error:
            return SessionEnd(fault=error)
        return SessionEnd(failure=failure, metadata={"usage": {"egress": egress_of(report)}})

    def void(self, fault: InfrastructureError) -> SessionEnd:
        """See :meth:`AgentSession.void`. If the gateway died, that is why the sandbox ended, so it is the fault."""
        try:
            report = self._session.close()
        except EgressError as error:
            return SessionEnd(fault=error)
        return SessionEnd(fault=fault, metadata={"usage": {"egress": egress_of(report)}})

    def __exit__(self, *_: object) -> None:
        """See :meth:`AgentSession.__exit__`."""
        with suppress(EgressError):  # after end() it is closed; before it another error is on its way
            self._session.close()


def open_egress(task_id: str, plan: EgressPlan, context: ProduceContext) -> EgressSession:
    """Open the way out of one task. Raises :class:`EgressError`."""
    if context.gateway is None:
        raise EgressError("this run has no egress for its agents")
    return context.gateway.open(task_id, plan)


def egress_of(report: EgressReport) -> dict[str, JsonValue]:
    """Return what the proxy did, for a record."""
    return {"decisions": dict(report.decisions), "hosts": dict(report.hosts), "bytes": report.bytes}
