"""The session of an agent with a provider: parse the agent's events, provide its egress, judge how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from securebench.egress.model import PROVIDER_TROUBLES, EgressReport, ProbeReport, Trouble
from securebench.errors import EgressError, InfrastructureError
from securebench.harnesses.agent_session import EgressAgentSession, SessionEnd, egress_of
from securebench.harnesses.provider.events.stream import EventReader
from securebench.harnesses.provider.outcomes import JudgedOutcome, OutcomeEvidence, judge, outcome_of
from securebench.harnesses.provider.self_report import SelfReport
from securebench.money import in_usd
from securebench.sandboxes.base import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.egress.gateway import EgressSession
    from securebench.egress.model import RelayReport
    from securebench.errors import CandidateError
    from securebench.harnesses.provider.self_report import EventParser
    from securebench.money import TokenPrices
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import Chunk, CommandResult


PAUSE_SECONDS: Final = 1.0
"""Seconds between probes that succeed. Several probes are sent because a provider may fail intermittently."""

QUESTIONS: Final = 3
"""Number of probes that must succeed before a provider counts as working.

If the agent met a rate limit, one such probe is enough.
"""

RATE_LIMIT_PAUSES: Final = (5.0, 20.0, 40.0)
"""Seconds before each new probe of a provider that answered with a rate limit. Limits are per minute: after a minute,
the quota that the agent's own requests used is free again, so a limit that persists is not the agent's doing.
"""

_MAX_PAUSE: Final = 60.0
"""The longest ``Retry-After`` that is respected, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAgent:
    """The agent of a session: its identity for the record, and how to read what it reports.

    Without a ``parser``, no events are read. ``is_trusted``: the agent's program comes with SecureBench, and nothing
    else runs before the model's first answer. ``is_streamed``: the agent requests answers as streams. An agent that
    exits with one of the ``gave_up_exit_codes`` gave up.
    """

    identity: Mapping[str, JsonValue] = field(default_factory=dict)
    parser: EventParser | None = None
    is_trusted: bool = False
    is_streamed: bool = True
    gave_up_exit_codes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSetup:
    """The agent of a session, and how to reach its provider.

    ``model`` is the configured name. ``ask`` takes the name of a model, and the gateway then probes this model.
    ``pause`` sleeps for some seconds. ``environment`` are the sandbox variables that hold the agent's key or a
    placeholder.
    """

    agent: SessionAgent
    model: str
    ask: Callable[[str], ProbeReport]
    pause: Callable[[float], None]
    prices: TokenPrices | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


class ProviderSession(EgressAgentSession):
    """Parses the events of one agent, and judges how it ended: see :func:`judge`."""

    def __init__(self, session: EgressSession, setup: ProviderSetup) -> None:
        super().__init__(session)
        self.environment = {**session.environment, **setup.environment}
        self._parser = setup.agent.parser
        self._self_report = self._parser.self_report if self._parser else SelfReport(answered=True)
        self._setup = setup
        self._probes: list[ProbeReport] = []
        self._reader = EventReader(self._parser.take) if self._parser else None

    def on_output(self, chunk: Chunk) -> None:
        """See :meth:`AgentSession.on_output`."""
        stream, data = chunk
        if self._reader and stream is Stream.STDOUT:
            self._reader.feed(data)

    def end(
        self, result: CommandResult, candidate: CandidateArtifact | None, failure: CandidateError | None
    ) -> SessionEnd:
        """See :meth:`AgentSession.end`. Uses :func:`judge`."""
        self._finish_events()
        if result.exit_code in self._setup.agent.gave_up_exit_codes:
            self._self_report.gave_up = True
        try:
            report = self._session.close()
        except EgressError as error:
            return self._ending(error, EgressReport())
        evidence = OutcomeEvidence(
            self_report=self._self_report,
            is_trusted=self._setup.agent.is_trusted,
            is_streamed=self._setup.agent.is_streamed,
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
        self._finish_events()
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
                **({"agent": dict(self._setup.agent.identity)} if self._setup.agent.identity else {}),
                **({"outcome": outcome.value} if outcome else {}),
                "usage": self._usage(report),
            },
            trajectory=self._parser.trajectory.text() if self._parser else "",
            stdout=self._self_report.message or None,
        )

    def _finish_events(self) -> None:
        if self._reader:
            self._reader.finish()

    def _ask_provider(self, trouble: Trouble, relay: RelayReport | None) -> ProbeReport:
        """Probe the provider until it is clear whether it works, and return the last result.

        The agent is dead, so it cannot influence the probes. A single failed probe is enough to blame the provider,
        because a provider may fail intermittently. A rate limit counts only if it lasts longer than a minute, because
        the agent alone could have caused a shorter one.
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
        """Return all counts. The relay's token counts, and its cost if prices are known, replace the agent's own."""
        relayed: dict[str, JsonValue] = _relayed(report.relay) if report.relay else {}
        probes = probes_of(self._probes, self._setup.prices)
        if report.relay and report.relay.micro_usd is not None:
            relayed["cost_usd"] = in_usd(report.relay.micro_usd)
        return {
            **(self._reported(self._reader) if self._reader else {}),
            "egress": egress_of(report),
            **({"probes": probes} if self._probes else {}),
            **relayed,
        }

    def _reported(self, reader: EventReader) -> dict[str, JsonValue]:
        """Return the counts and warnings of the agent's self-report."""
        self_report = self._self_report
        return {
            **self_report.tokens,
            "turns": self_report.turns,
            "cost_usd": self_report.cost_usd,
            "denials": self_report.denials,
            "events_skipped": reader.skipped,
            **({"warnings": list(self_report.warnings)} if self_report.warnings else {}),
        }


def probes_of(probes: Sequence[ProbeReport], prices: TokenPrices | None) -> dict[str, JsonValue]:
    """Return the gateway's own probes, for a record. Their cost is included if there are ``prices``."""
    troubles: list[JsonValue] = [probe.trouble.value if probe.trouble else None for probe in probes]
    input_tokens = sum(probe.input_tokens for probe in probes)
    output_tokens = sum(probe.output_tokens for probe in probes)
    return {
        "requests": len(probes),
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        **({"cost_usd": in_usd(prices.cost(input_tokens, output_tokens))} if prices else {}),
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
            **unreported(relay),
        },
    }


def unreported(relay: RelayReport) -> dict[str, JsonValue]:
    """Return what incomplete answers may have used in addition to the counted tokens and costs, for a record."""
    return {
        **({"unreported_tokens": relay.unreported_tokens} if relay.unreported_tokens else {}),
        **({"unreported_usd": in_usd(relay.unreported_micro_usd)} if relay.unreported_micro_usd else {}),
    }
