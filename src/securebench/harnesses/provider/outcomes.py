"""What came of an agent's work, judged by what no agent can write.

Three things speak: the sandbox (how the program ended), the relay (what became of its requests) and the program's own
events. The first two are evidence. The third is a claim: whoever runs in the sandbox can write there.

* Before the first answer of a model nothing that is not trusted has acted. Whatever went wrong until then is no fault
  of an agent: infrastructure. An answer counts from its beginning: a program runs commands while it still comes, and a
  command can end the program.
* After it, an agent that ended in failure has failed, unless the provider was in trouble at last, *and* is in trouble
  when the gateway asks it by itself once the agent is dead. What an agent's own last request met proves nothing: an
  agent can flood a provider, ask it for what its account may not do, or leave a slow answer unread.
* A refusal by policy, the model's or its provider's, is an agent that refused: a failure, whenever it comes.
* That the provider found a request wrong is the failure of who made it. An agent whose budget is used up has failed.
* Without a relay (``passthrough``) the program's claims stand in for it, and the record says so. The gateway asks all
  the same.

So nothing that an agent prints makes its failure an infrastructure error where a relay saw success, and no claim makes
a failure of a success.
"""

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
    """How an agent's work on a task ended. Closed: nothing else stands in a record."""

    WORKED = "worked"
    """It ended by itself and left something."""
    GAVE_UP = "gave_up"
    """It ended by itself and left nothing that could be judged."""
    DENIED = "denied"
    """The same, and its program refused it tools."""
    REFUSED = "refused"
    """The model would not do it, or its provider's policy stopped it: neither a crash nor a key that is refused."""
    NOT_STARTED = "not_started"
    """Its program ended before any model answered it, and no provider is to blame."""
    PROVIDER_REFUSED = "provider_refused"
    PROVIDER_REJECTED = "provider_rejected"
    RATE_LIMITED = "rate_limited"
    PROVIDER_FAILED = "provider_failed"
    NETWORK_GONE = "network_gone"
    """The provider could not be reached."""
    OUT_OF_BUDGET = "out_of_budget"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    TOO_MUCH_OUTPUT = "too_much_output"
    CRASHED = "crashed"
    """Its program ended in an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeEvidence:
    """All that is known. ``failure`` is what the sandbox saw of the program's end; ``relay`` is absent without one.

    ``has_candidate``: it left something that may be judged. ``ask_provider`` has the gateway ask the provider by
    itself; it is called only where the answer matters.
    """

    self_report: SelfReport
    relay: RelayReport | None
    failure: CandidateError | None
    has_candidate: bool
    ask_provider: Callable[[Trouble], ProbeReport] = field(default=lambda _trouble: ProbeReport())


@dataclass(frozen=True, slots=True)
class JudgedOutcome:
    """An outcome, with the failure that it is, if it is one."""

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
}
_CODES: Final = {
    Trouble.REJECTED: ("provider-rejected", "see that the provider has the model, under the name in the configuration"),
    Trouble.REFUSED: ("provider-refused", "see that the key is right, and that its account may use the model"),
    Trouble.RATE_LIMITED: ("provider-rate-limited", "use fewer workers, or raise the limits of the account"),
    Trouble.FAILED: ("provider-failed", "see the provider's status page; --resume asks again"),
    Trouble.UNREACHABLE: ("provider-unreachable", "see that this machine reaches the endpoint; --resume asks again"),
}

_NOT_STARTED: Final = "agent-not-started"
_OUTCOMES_BY_CODE: Final = {code: _OUTCOMES[trouble] for trouble, (code, _) in _CODES.items()} | {
    _NOT_STARTED: AgentOutcome.NOT_STARTED
}


def outcome_of(error: InfrastructureError) -> AgentOutcome | None:
    """Return the outcome of an agent whose work ``error`` ended, where it was its provider or its start."""
    return _OUTCOMES_BY_CODE.get(error.code)


def judge(evidence: OutcomeEvidence) -> JudgedOutcome:
    """Say what came of an agent's work.

    Raises :class:`ProviderError` where the provider kept it from working, and :class:`InfrastructureError`
    (``agent-not-started``) where its program ended before any answer.
    """
    trouble, answered = _seen(evidence)
    failure = evidence.failure
    if answered and failure is not None and failure.reason is FailureReason.TAMPERED:
        return JudgedOutcome(AgentOutcome.WORKED, failure)
    if trouble is not None and not answered:
        return _troubled(trouble, evidence)
    if trouble is not None and _ended_in_failure(evidence):
        if trouble not in PROVIDER_TROUBLES:
            return _troubled(trouble, evidence)
        probed = evidence.ask_provider(trouble)
        if probed.trouble in PROVIDER_TROUBLES:
            raise _provider_error(probed.trouble, probed.message, probed.retry_after)
    if not answered:
        raise _not_started(evidence)
    if failure is None and evidence.has_candidate:
        return JudgedOutcome(AgentOutcome.WORKED)
    if evidence.self_report.refused and (failure is None or failure.reason not in _ENDS):
        return _refused()
    return JudgedOutcome(_end(evidence), failure)


def _end(evidence: OutcomeEvidence) -> AgentOutcome:
    """Name the end of an agent that did not work: the program's claims only tell ways to fail apart."""
    self_report, failure = evidence.self_report, evidence.failure
    if failure is not None and failure.reason in _ENDS:
        return _ENDS[failure.reason]
    if failure is not None:
        return AgentOutcome.CRASHED
    return AgentOutcome.DENIED if self_report.denials else AgentOutcome.GAVE_UP


def _seen(evidence: OutcomeEvidence) -> tuple[Trouble | None, bool]:
    """Return the last trouble with the provider, and whether a model ever began to answer."""
    relay, self_report = evidence.relay, evidence.self_report
    if relay is None:
        return self_report.trouble, self_report.answered
    return relay.trouble, relay.answered > 0 or any(status.startswith("2") for status in relay.statuses)


def _ended_in_failure(evidence: OutcomeEvidence) -> bool:
    return evidence.failure is not None or not evidence.has_candidate or evidence.self_report.failed


def _troubled(trouble: Trouble, evidence: OutcomeEvidence) -> JudgedOutcome:
    """Return the failure that ``trouble`` is, or raise the error that it is where no model had answered."""
    if trouble is Trouble.OUT_OF_BUDGET:
        message = "the agent used up what it may ask of its provider on one task"
        return JudgedOutcome(_OUTCOMES[trouble], _failure(FailureReason.AGENT_OUT_OF_BUDGET, message))
    if trouble is Trouble.DECLINED:
        return _refused()
    relay = evidence.relay
    if trouble is Trouble.REJECTED and _seen(evidence)[1]:
        return JudgedOutcome(_OUTCOMES[trouble], evidence.failure)
    if relay is None:
        raise _provider_error(trouble, evidence.self_report.error)
    raise _provider_error(trouble, relay.message, relay.retry_after)


def _refused() -> JudgedOutcome:
    message = "the model refused the task, or its provider's policy stopped it"
    return JudgedOutcome(AgentOutcome.REFUSED, _failure(FailureReason.AGENT_REFUSED, message))


def _provider_error(trouble: Trouble, said: str, retry_after: float | None = None) -> ProviderError:
    code, hint = _CODES[trouble]
    message = f"the agent's provider did not let it work ({_OUTCOMES[trouble].value})"
    error = ProviderError(f"{message}{f': {said}' if said else ''}", code=code, hint=hint)
    error.retry_after = retry_after
    return error


def _not_started(evidence: OutcomeEvidence) -> InfrastructureError:
    """Return the error of a program that ended before any answer, with no trouble that would explain it."""
    relay, failure = evidence.relay or RelayReport(), evidence.failure
    end = "it ended by itself" if failure is None else failure.message
    if relay.requests and failure is not None and failure.reason is FailureReason.AGENT_TIMEOUT:
        return _provider_error(Trouble.UNREACHABLE, f"it did not answer; {end}")
    refused = f"; the relay refused {', '.join(sorted(relay.refused))}" if relay.refused else ""
    return InfrastructureError(
        f"no model answered the agent's program ({AgentOutcome.NOT_STARTED.value}): {end}{refused}",
        code=_NOT_STARTED,
        hint="--show-agent-output keeps what it printed: the image may lack what it needs, or the sandbox memory",
    )


def _failure(reason: FailureReason, message: str) -> CandidateError:
    return CandidateError(reason, message, phase=FailurePhase.PRODUCE)
