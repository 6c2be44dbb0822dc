"""One task's work of an agent with a provider: its events heard, its way out held, its end judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from securebench.harnesses.attendance import EgressAttendance, Ending, egress_of
from securebench.harnesses.events import EventReader
from securebench.harnesses.outcomes import Evidence, judge
from securebench.sandboxes.base import Stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.errors import CandidateError
    from securebench.harnesses.claims import Account
    from securebench.network.gateway import Session
    from securebench.network.model import EgressReport, RelayReport
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import Chunk, CommandResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Attended:
    """What is attended: the program's account of itself, variables for its sandbox, and which agent it is."""

    account: Account
    environment: Mapping[str, str] = field(default_factory=dict)
    agent: Mapping[str, JsonValue] = field(default_factory=dict)


class ProviderAttendance(EgressAttendance):
    """Hears the events of one agent and judges its end by what the relay saw."""

    def __init__(self, session: Session, attended: Attended) -> None:
        super().__init__(session)
        self.environment = {**session.environment, **attended.environment}
        self._account = attended.account
        self._agent = attended.agent
        self._reader = EventReader(attended.account.take)

    def hear(self, chunk: Chunk) -> None:
        """See :meth:`Attendance.hear`."""
        stream, data = chunk
        if stream is Stream.STDOUT:
            self._reader.feed(data)

    def end(self, result: CommandResult, candidate: CandidateArtifact | None, failure: CandidateError | None) -> Ending:
        """See :meth:`Attendance.end`. Raises :class:`EgressError`, and as :func:`judge` does."""
        del result
        self._reader.finish()
        report = self._session.close()
        claims = self._account.claims
        judgement = judge(
            Evidence(claims=claims, relay=report.relay, failure=failure, has_candidate=candidate is not None)
        )
        return Ending(
            failure=judgement.failure,
            metadata={"agent": dict(self._agent), "outcome": judgement.outcome.value, "usage": self._usage(report)},
            trajectory=self._account.trajectory.text(),
            stdout=claims.message or None,
        )

    def _usage(self, report: EgressReport) -> dict[str, JsonValue]:
        """Return all counts. Tokens are the relay's where there is one: no agent can write those."""
        claims = self._account.claims
        usage: dict[str, JsonValue] = {
            **claims.tokens,
            "turns": claims.turns,
            "cost_usd": claims.cost_usd,
            "denials": claims.denials,
            "events_skipped": self._reader.skipped,
            "egress": egress_of(report),
        }
        return usage if report.relay is None else usage | _relayed(report.relay)


def _relayed(relay: RelayReport) -> dict[str, JsonValue]:
    return {
        "input_tokens": relay.input_tokens,
        "output_tokens": relay.output_tokens,
        "requests": relay.requests,
        "relay": {
            "answered": relay.answered,
            "statuses": dict(relay.statuses),
            "refused": dict(relay.refused),
            "bytes": relay.bytes,
            "trouble": None if relay.trouble is None else relay.trouble.value,
        },
    }
