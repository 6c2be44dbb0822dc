"""Judge how an agent's work ended, and tell evidence from claims that the agent can forge.

There are three sources: the sandbox (how the program exited), the relay (the results of its requests) and the
program's own events. The first two are evidence. The third is a claim: any process in the sandbox can write it.

If the relay saw success, no output of the agent can turn a failure into an infrastructure error, and no claim can turn
a success into a failure. The rules are in ``docs/reference/records.md`` ("How an agent program ended") and in
``docs/reference/relay.md`` ("After an agent failed").
"""

# The reasons for the rules:
#
# * A program that comes with SecureBench, without mcp_servers and extra_arguments, runs no untrusted code before the
#   model's first answer. An answer counts from its first byte: the program runs commands while the answer streams, and
#   a command can kill the program.
# * A policy refusal and a used-up budget are never infrastructure errors, because an agent can cause both.
# * An error on the agent's last request proves nothing alone: an agent can flood a provider, request what the account
#   may not use, or leave a slow answer unread.
# * Without a relay (passthrough), the program's claims replace the relay's report, and the record says so. The gateway
#   still probes the provider, unless the provider is a cloud, for which the gateway has no key.

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from securebench.egress.model import PROVIDER_TROUBLES, ProbeReport, RelayReport, Trouble
from securebench.errors import CandidateError, FailurePhase, FailureReason, InfrastructureError, ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.harnesses.provider.self_report import SelfReport


class AgentOutcome(StrEnum):
    """How an agent's work on a task ended. A closed set: records contain no other value."""

    WORKED = "worked"
    """The agent finished and left a candidate."""
    GAVE_UP = "gave_up"
    """The agent finished without a candidate that can be judged, or its program failed and reported that it gave up."""
    DENIED = "denied"
    """The agent finished without a candidate, and its program denied tool calls."""
    REFUSED = "refused"
    """The model refused the task, or the provider's policy stopped the response. Not a crash and not a rejected key."""
    NOT_STARTED = "not_started"
    """The agent's program exited before any model answer, and the provider was not the cause."""
    PROVIDER_REFUSED = "provider_refused"
    PROVIDER_REJECTED = "provider_rejected"
    RATE_LIMITED = "rate_limited"
    PROVIDER_FAILED = "provider_failed"
    NETWORK_GONE = "network_gone"
    """The provider could not be reached."""
    OUT_OF_BUDGET = "out_of_budget"
    TRUNCATED = "truncated"
    """The model's last answer reached the token limit of one answer. What the agent left is judged."""
    OUT_OF_TURNS = "out_of_turns"
    """The agent used up its turns. What it left is judged."""
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    TOO_MUCH_OUTPUT = "too_much_output"
    WORKSPACE_FULL = "workspace_full"
    CRASHED = "crashed"
    """The agent's program failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeEvidence:
    """All evidence about how an agent's work on a task ended."""

    self_report: SelfReport
    relay: RelayReport | None
    """What the relay saw of the agent's requests, or ``None`` if the agent has no relay."""
    failure: CandidateError | None
    """How the agent failed, as SecureBench itself observed, or ``None`` if SecureBench observed no failure."""
    has_candidate: bool
    """Whether the agent left a candidate that can be judged."""
    is_trusted: bool = True
    """Whether the agent runs only trusted code before the model's first answer."""
    is_streamed: bool = True
    """Whether the agent requests the model's answers as streams."""
    ask_provider: Callable[[Trouble], ProbeReport] = field(default=lambda _trouble: ProbeReport())
    """Makes the gateway probe the provider. This function is called only if the result of the probe matters."""


@dataclass(frozen=True, slots=True)
class JudgedOutcome:
    """An outcome, and the failure that it means.

    ``failure`` is ``None`` if the agent did not fail. A missing candidate alone is no failure here: sealing reports it.
    """

    outcome: AgentOutcome
    failure: CandidateError | None = None


_OUTCOMES: Final = {
    Trouble.REJECTED: AgentOutcome.PROVIDER_REJECTED,
    Trouble.REFUSED: AgentOutcome.PROVIDER_REFUSED,
    Trouble.RATE_LIMITED: AgentOutcome.RATE_LIMITED,
    Trouble.FAILED: AgentOutcome.PROVIDER_FAILED,
    Trouble.UNREACHABLE: AgentOutcome.NETWORK_GONE,
    Trouble.OUT_OF_BUDGET: AgentOutcome.OUT_OF_BUDGET,
    Trouble.DECLINED: AgentOutcome.REFUSED,
}
_ENDS: Final = {
    FailureReason.AGENT_TIMEOUT: AgentOutcome.TIMED_OUT,
    FailureReason.AGENT_OUT_OF_MEMORY: AgentOutcome.OUT_OF_MEMORY,
    FailureReason.AGENT_OUTPUT_LIMIT: AgentOutcome.TOO_MUCH_OUTPUT,
    FailureReason.AGENT_WORKSPACE_FULL: AgentOutcome.WORKSPACE_FULL,
}
_STOPS: Final = {outcome.value: outcome for outcome in (AgentOutcome.TRUNCATED, AgentOutcome.OUT_OF_TURNS)}
_CODES: Final = {
    Trouble.REJECTED: ("provider-rejected", "check the configured model name and base_url"),
    Trouble.REFUSED: ("provider-refused", "check that the key is valid and that its account may use the model"),
    Trouble.RATE_LIMITED: ("provider-rate-limited", "use fewer workers, or raise the account's rate limits"),
    Trouble.FAILED: ("provider-failed", "check the provider's status page; --resume tries again"),
    Trouble.UNREACHABLE: (
        "provider-unreachable",
        "check the network, HTTPS_PROXY and the endpoint's address; --resume tries again",
    ),
}

_NOT_STARTED: Final = "agent-not-started"
_OUTCOMES_BY_CODE: Final = {code: _OUTCOMES[trouble] for trouble, (code, _) in _CODES.items()} | {
    _NOT_STARTED: AgentOutcome.NOT_STARTED
}


def outcome_of(error: InfrastructureError) -> AgentOutcome | None:
    """Return the outcome for ``error`` if it is a provider error or ``agent-not-started``, else ``None``."""
    return _OUTCOMES_BY_CODE.get(error.code)


def judge(evidence: OutcomeEvidence) -> JudgedOutcome:
    """Judge how an agent's work ended.

    Raises :class:`ProviderError` if the provider prevented the agent from working, and :class:`InfrastructureError`
    (``agent-not-started``) if the agent's program ended before any model answer and no provider error explains this.
    """
    trouble, answered = _seen(evidence)
    failure = evidence.failure
    if answered and failure is not None and failure.reason is FailureReason.TAMPERED:
        return JudgedOutcome(AgentOutcome.WORKED, failure)
    if trouble is not None and not answered:
        return _troubled(trouble, evidence)
    has_failed = _ended_in_failure(evidence)
    blamed = _blamed(evidence)
    if trouble is not None and trouble in blamed and (has_failed or not evidence.is_trusted):
        probed = evidence.ask_provider(trouble)
        if probed.trouble is not None and probed.trouble in blamed:
            raise provider_error(probed.trouble, probed.message, probed.retry_after)
    if trouble is not None and trouble not in PROVIDER_TROUBLES and has_failed:
        return _troubled(trouble, evidence)
    if not answered:
        raise _not_started(evidence)
    if failure is None and evidence.has_candidate:
        return JudgedOutcome(_STOPS.get(evidence.self_report.stopped, AgentOutcome.WORKED))
    if evidence.self_report.refused and (failure is None or failure.reason not in _ENDS):
        return _refused()
    return JudgedOutcome(_end(evidence), failure)


def _end(evidence: OutcomeEvidence) -> AgentOutcome:
    """Return the outcome of an agent that failed or left no candidate.

    The program's claims can change this outcome. They never change ``evidence.failure``.
    """
    self_report, failure = evidence.self_report, evidence.failure
    if failure is not None and failure.reason in _ENDS:
        return _ENDS[failure.reason]
    if failure is not None:
        return AgentOutcome.GAVE_UP if self_report.gave_up else AgentOutcome.CRASHED
    return _STOPS.get(self_report.stopped) or (AgentOutcome.DENIED if self_report.denials else AgentOutcome.GAVE_UP)


def _seen(evidence: OutcomeEvidence) -> tuple[Trouble | None, bool]:
    """Return the last provider error, and whether the agent counts as having received a model answer.

    With a relay, the second value is always true for an agent that is not trusted.
    """
    relay, self_report = evidence.relay, evidence.self_report
    if relay is None:
        return self_report.trouble, self_report.answered
    if not evidence.is_trusted:
        return relay.trouble or _hanging(evidence.failure, relay), True
    if not evidence.is_streamed and (hanging := _hanging(evidence.failure, relay)):
        return hanging, True  # a slow model is as silent as a broken provider, and only a probe can tell them apart
    return relay.trouble, _has_answer(relay)


def _blamed(evidence: OutcomeEvidence) -> frozenset[Trouble]:
    """Return the troubles that may be the provider's fault. The gateway's own probe then decides.

    Rejections are among them only for an agent that is not trusted, and only before the model's first answer.
    """
    # An answer shows that the API and the model exist, so a later rejection means that the agent's request was invalid.
    relay = evidence.relay
    is_unserved = relay is not None and not evidence.is_trusted and not _has_answer(relay)
    return PROVIDER_TROUBLES | {Trouble.REJECTED} if is_unserved else PROVIDER_TROUBLES


def _has_answer(relay: RelayReport) -> bool:
    return relay.answered > 0 or any(status.startswith("2") for status in relay.statuses)


def _hanging(failure: CandidateError | None, relay: RelayReport) -> Trouble | None:
    """Return ``UNREACHABLE`` if the agent's time ran out while a forwarded request had no response, else ``None``."""
    timed_out = failure is not None and failure.reason is FailureReason.AGENT_TIMEOUT
    return Trouble.UNREACHABLE if timed_out and relay.requests > sum(relay.statuses.values()) else None


def _ended_in_failure(evidence: OutcomeEvidence) -> bool:
    return evidence.failure is not None or not evidence.has_candidate or evidence.self_report.failed


def _troubled(trouble: Trouble, evidence: OutcomeEvidence) -> JudgedOutcome:
    """Return ``trouble`` as the end of the agent's work, or raise it as a provider error if no model had answered.

    A used-up budget and a refusal of the task are never raised.
    """
    if trouble is Trouble.OUT_OF_BUDGET:
        message = "the agent used up its provider budget for the task"
        return JudgedOutcome(_OUTCOMES[trouble], _failure(FailureReason.AGENT_OUT_OF_BUDGET, message))
    if trouble is Trouble.DECLINED:
        return _refused()
    relay = evidence.relay
    if trouble is Trouble.REJECTED and _seen(evidence)[1]:
        return JudgedOutcome(_OUTCOMES[trouble], evidence.failure)
    if relay is None:
        raise provider_error(trouble, evidence.self_report.error)
    raise provider_error(trouble, relay.message, relay.retry_after)


def _refused() -> JudgedOutcome:
    message = "the model refused the task, or the provider's policy stopped the response"
    return JudgedOutcome(AgentOutcome.REFUSED, _failure(FailureReason.AGENT_REFUSED, message))


def provider_error(
    trouble: Trouble, detail: str, retry_after: float | None = None, served: str = "agent"
) -> ProviderError:
    """Return the error for a provider that failed. ``served`` says what needed the provider: ``agent`` or ``judge``."""
    code, hint = _CODES[trouble]
    message = f"the model provider did not serve the {served} ({_OUTCOMES[trouble].value})"
    error = ProviderError(f"{message}{f': {detail}' if detail else ''}", code=code, hint=hint)
    error.retry_after = retry_after
    return error


def _not_started(evidence: OutcomeEvidence) -> InfrastructureError:
    """Return the error for a program that ended before any model answer, if no provider error explains this.

    If its time ran out after the relay had forwarded requests, the error says that the provider is unreachable.
    """
    relay, failure = evidence.relay or RelayReport(), evidence.failure
    end = "it exited with status 0" if failure is None else failure.message
    if relay.requests and failure is not None and failure.reason is FailureReason.AGENT_TIMEOUT:
        return provider_error(Trouble.UNREACHABLE, f"the provider did not answer; {end}")
    refused = f"; the relay refused requests (reasons: {', '.join(sorted(relay.refused))})" if relay.refused else ""
    return InfrastructureError(
        f"the agent ended before any model response ({AgentOutcome.NOT_STARTED.value}): {end}{refused}",
        code=_NOT_STARTED,
        hint="check the agent's output with --show-agent-output; the image may lack a dependency, or the sandbox may "
        "have too little memory",
    )


def _failure(reason: FailureReason, message: str) -> CandidateError:
    return CandidateError(reason, message, phase=FailurePhase.PRODUCE)
