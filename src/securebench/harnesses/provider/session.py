"""The session of an agent with a provider: parse its events, provide its egress, judge how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from securebench.egress.model import PROVIDER_TROUBLES, EgressReport, ProbeReport, Trouble
from securebench.errors import EgressError, InfrastructureError
from securebench.harnesses.agent_session import EgressAgentSession, SessionEnd, egress_of
from securebench.harnesses.provider.events import EventReader
from securebench.harnesses.provider.outcomes import JudgedOutcome, OutcomeEvidence, judge, outcome_of
from securebench.sandboxes.base import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.egress.gateway import EgressSession
    from securebench.egress.model import RelayReport
    from securebench.errors import CandidateError
    from securebench.harnesses.provider.self_report import EventParser
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import Chunk, CommandResult


PAUSE_SECONDS: Final = 1.0
"""Seconds between probes of a provider that works: it may fail intermittently."""

QUESTIONS: Final = 3
"""Successful probes before a provider counts as working."""

RATE_LIMIT_PAUSES: Final = (5.0, 20.0, 40.0)
"""Seconds before each new probe of a provider that limits its rate.
Limits are per minute: after a minute, the quota that the agent's own requests used is free again, so a limit that
persists is not the agent's doing.
"""

_MAX_PAUSE: Final = 60.0
"""The longest ``Retry-After`` that is respected, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSetup:
    """The event parser, the sandbox variables and the agent's identity.

    ``ask`` makes the gateway probe the model of this name; ``model`` is the configured one.
    """

    parser: EventParser
    model: str
    ask: Callable[[str], ProbeReport]
    pause: Callable[[float], None]
    environment: Mapping[str, str] = field(default_factory=dict)
    agent: Mapping[str, JsonValue] = field(default_factory=dict)


class ProviderSession(EgressAgentSession):
    """Parses the events of one agent, and judges how it ended by the relay's report."""

    def __init__(self, session: EgressSession, setup: ProviderSetup) -> None:
        super().__init__(session)
        self.environment = {**session.environment, **setup.environment}
        self._parser = setup.parser
        self._agent = setup.agent
        self._setup = setup
        self._probes: list[ProbeReport] = []
        self._reader = EventReader(setup.parser.take)

    def on_output(self, chunk: Chunk) -> None:
        """See :meth:`AgentSession.on_output`."""
        stream, data = chunk
        if stream is Stream.STDOUT:
            self._reader.feed(data)

    def end(
        self, result: CommandResult, candidate: CandidateArtifact | None, failure: CandidateError | None
    ) -> SessionEnd:
        """See :meth:`AgentSession.end`. Uses :func:`judge`."""
        del result
        self._reader.finish()
        try:
            report = self._session.close()
        except EgressError as error:
            return self._ending(error, EgressReport())
        evidence = OutcomeEvidence(
            self_report=self._parser.self_report,
            relay=report.relay,
            failure=failure,
            has_candidate=candidate is not None,
            ask_provider=lambda trouble: self._ask_provider(trouble, report.relay),
        )
        try:
            return self._ending(judge(evidence), report)
        except InfrastructureError as error:
            return self._ending(error, report)

    def void(self, fault: InfrastructureError) -> SessionEnd:
        """See :meth:`AgentSession.void`. If the gateway died, that is the cause, so its error replaces ``fault``."""
        self._reader.finish()
        try:
            return self._ending(fault, self._session.close())
        except EgressError as error:
            return self._ending(error, EgressReport())

    def _ending(self, end: JudgedOutcome | InfrastructureError, report: EgressReport) -> SessionEnd:
        if isinstance(end, InfrastructureError):
            outcome, failure, fault = outcome_of(end), None, end
        else:
            outcome, failure, fault = end.outcome, end.failure, None
        return SessionEnd(
            failure=failure,
            fault=fault,
            metadata={
                "agent": dict(self._agent),
                **({"outcome": outcome.value} if outcome else {}),
                "usage": self._usage(report),
            },
            trajectory=self._parser.trajectory.text(),
            stdout=self._parser.self_report.message or None,
        )

    def _ask_provider(self, trouble: Trouble, relay: RelayReport | None) -> ProbeReport:
        """Probe the provider after the agent is dead and can no longer influence the result.

        One failed probe of several is enough: a provider may fail intermittently. A rate limit must last longer than
        a minute, because the agent alone could have caused a shorter one.
        """
        model = relay.model if relay and relay.model else self._setup.model
        pauses = iter(RATE_LIMIT_PAUSES)
        for _ in range(QUESTIONS + len(RATE_LIMIT_PAUSES)):
            report = self._setup.ask(model)
            self._probes.append(report)
            if report.trouble is Trouble.RATE_LIMITED and (pause := next(pauses, None)) is not None:
                self._setup.pause(max(pause, min(report.retry_after or 0.0, _MAX_PAUSE)))
                continue
            working = sum(probe.trouble not in PROVIDER_TROUBLES for probe in self._probes)
            if report.trouble in PROVIDER_TROUBLES or working >= (1 if trouble is Trouble.RATE_LIMITED else QUESTIONS):
                break
            self._setup.pause(PAUSE_SECONDS)
        return report

    def _usage(self, report: EgressReport) -> dict[str, JsonValue]:
        """Return all counts. Token counts come from the relay if there is one: agents cannot forge those."""
        self_report = self._parser.self_report
        usage: dict[str, JsonValue] = {
            **self_report.tokens,
            "turns": self_report.turns,
            "cost_usd": self_report.cost_usd,
            "denials": self_report.denials,
            "events_skipped": self._reader.skipped,
            "egress": egress_of(report),
            **({"warnings": list(self_report.warnings)} if self_report.warnings else {}),
            **({"probes": probes_of(self._probes)} if self._probes else {}),
        }
        return usage if report.relay is None else usage | _relayed(report.relay)


def probes_of(probes: Sequence[ProbeReport]) -> dict[str, JsonValue]:
    """Return the gateway's own probes, for a record."""
    troubles: list[JsonValue] = [probe.trouble.value if probe.trouble else None for probe in probes]
    return {
        "requests": len(probes),
        "input_tokens": sum(probe.input_tokens for probe in probes),
        "output_tokens": sum(probe.output_tokens for probe in probes),
        "troubles": troubles,
    }


def _relayed(relay: RelayReport) -> dict[str, JsonValue]:
    return {
        "input_tokens": relay.input_tokens,
        "output_tokens": relay.output_tokens,
        "requests": relay.requests,
        "relay": {
            "answered": relay.answered,
            "forgiven": relay.forgiven,
            "models": dict(relay.models),
            "statuses": dict(relay.statuses),
            "refused": dict(relay.refused),
            "bytes": relay.bytes,
            "trouble": None if relay.trouble is None else relay.trouble.value,
        },
    }
