"""How an agent's work ended is judged from the sandbox, the relay and the program's own events, in all combinations.

An agent can forge only the events.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.egress.model import PROVIDER_TROUBLES, ProbeReport, RelayReport, Trouble
from securebench.errors import CandidateError, FailurePhase, FailureReason, InfrastructureError, ProviderError
from securebench.harnesses.provider.outcomes import AgentOutcome, JudgedOutcome, OutcomeEvidence, judge
from securebench.harnesses.provider.self_report import SelfReport


def failure(reason: FailureReason = FailureReason.AGENT_EXIT) -> CandidateError:
    """Return the failure with which a program ended, as a sandbox reports it."""
    return CandidateError(reason, f"it ended so: {reason}", phase=FailurePhase.PRODUCE)


SUCCESS = RelayReport(requests=3, answered=3, statuses={"200": 3})
NOTHING = RelayReport()
INFRASTRUCTURE = {
    Trouble.REFUSED: "provider-refused",
    Trouble.RATE_LIMITED: "provider-rate-limited",
    Trouble.FAILED: "provider-failed",
    Trouble.UNREACHABLE: "provider-unreachable",
}
ENDS = {
    FailureReason.AGENT_EXIT: AgentOutcome.CRASHED,
    FailureReason.AGENT_TIMEOUT: AgentOutcome.TIMED_OUT,
    FailureReason.AGENT_OUT_OF_MEMORY: AgentOutcome.OUT_OF_MEMORY,
    FailureReason.AGENT_OUTPUT_LIMIT: AgentOutcome.TOO_MUCH_OUTPUT,
    FailureReason.AGENT_WORKSPACE_FULL: AgentOutcome.WORKSPACE_FULL,
}


def case(
    relay: RelayReport | None = SUCCESS,
    ended: CandidateError | None = None,
    self_report: SelfReport | None = None,
    *,
    left: bool = True,
    probed: Trouble | None = None,
    trusted: bool = True,
) -> JudgedOutcome:
    """Judge one case. By default, the relay saw success, and the program exited with 0 and left a candidate.

    ``probed`` is the trouble that the gateway's probe of the provider finds: by default none.
    """
    report = ProbeReport(trouble=probed, message="the gateway saw status 599", retry_after=7.0)
    return judge(
        OutcomeEvidence(
            self_report=self_report or SelfReport(),
            relay=relay,
            failure=ended,
            has_candidate=left,
            is_trusted=trusted,
            ask_provider=lambda _trouble: report,
        )
    )


def refusal(relay: RelayReport | None, ended: CandidateError | None, self_report: SelfReport | None = None) -> str:
    """Return the code of the infrastructure error that judging this case raises."""
    with pytest.raises(InfrastructureError) as raised:
        case(relay, ended, self_report, left=ended is None)
    return raised.value.code


def test_an_agent_that_left_something_worked() -> None:
    """An agent that exits with 0 and leaves a candidate has the outcome ``worked`` and no failure."""
    assert case() == JudgedOutcome(AgentOutcome.WORKED)


def test_an_agent_that_left_nothing_gave_up_or_was_denied() -> None:
    """An agent that exits with 0 without a candidate gave up. If its program denied tool calls, it was denied tools."""
    assert case(left=False).outcome is AgentOutcome.GAVE_UP
    assert case(left=False, self_report=SelfReport(finished=True, message="All done!")).outcome is AgentOutcome.GAVE_UP
    assert case(left=False, self_report=SelfReport(denials=1)).outcome is AgentOutcome.DENIED


def test_a_refusal_is_not_a_crash() -> None:
    """A refusal by the model is a failure with its own reason, unless the agent times out or completes its work."""
    for judged in (
        case(left=False, self_report=SelfReport(refused=True)),
        case(ended=failure(), self_report=SelfReport(refused=True)),
        case(replace(SUCCESS, trouble=Trouble.DECLINED), failure()),
        case(replace(SUCCESS, trouble=Trouble.DECLINED), left=False),
        case(RelayReport(requests=1, statuses={"400": 1}, trouble=Trouble.DECLINED), failure()),
    ):
        assert judged.outcome is AgentOutcome.REFUSED
        assert judged.failure is not None
        assert judged.failure.reason is FailureReason.AGENT_REFUSED
    assert case(self_report=SelfReport(refused=True)).outcome is AgentOutcome.WORKED
    assert case(replace(SUCCESS, trouble=Trouble.DECLINED)).outcome is AgentOutcome.WORKED
    late = failure(FailureReason.AGENT_TIMEOUT)
    assert case(ended=late, self_report=SelfReport(refused=True)) == JudgedOutcome(AgentOutcome.TIMED_OUT, late)


@pytest.mark.parametrize(("reason", "outcome"), ENDS.items())
@pytest.mark.parametrize("left", [True, False])
def test_a_failure_stays_one_where_the_relay_saw_success(
    reason: FailureReason, outcome: AgentOutcome, left: bool
) -> None:
    """If the relay saw success, a failed program is a failure of the agent, whether or not it left a candidate."""
    ended = failure(reason)
    assert case(ended=ended, left=left) == JudgedOutcome(outcome, ended)


@pytest.mark.parametrize("trouble", INFRASTRUCTURE)
@pytest.mark.parametrize("reason", ENDS)
def test_a_provider_in_trouble_is_no_failure_of_an_agent(trouble: Trouble, reason: FailureReason) -> None:
    """Provider trouble before any answer is an infrastructure error.

    After an answer, it is an infrastructure error if the gateway's probe also meets it.
    """
    relay = RelayReport(requests=4, trouble=trouble, message="the provider answered 599", retry_after=5.0)
    with pytest.raises(ProviderError, match="the provider answered 599") as raised:
        case(relay, failure(reason))
    assert (raised.value.code, raised.value.retry_after) == (INFRASTRUCTURE[trouble], 5.0)
    with pytest.raises(ProviderError, match="the gateway saw status 599") as raised:
        case(replace(relay, answered=3), failure(reason), probed=trouble)
    assert (raised.value.code, raised.value.retry_after) == (INFRASTRUCTURE[trouble], 7.0)


@pytest.mark.parametrize("trouble", INFRASTRUCTURE)
@pytest.mark.parametrize("reason", ENDS)
@pytest.mark.parametrize("probed", [None, Trouble.REJECTED, Trouble.DECLINED])
def test_trouble_that_the_gateway_does_not_see_is_the_agents(
    trouble: Trouble, reason: FailureReason, probed: Trouble | None
) -> None:
    """If the gateway's probe finds no provider trouble, the agent has failed: it may have provoked the last error."""
    relay, ended = RelayReport(requests=4, answered=3, trouble=trouble), failure(reason)
    assert case(relay, ended, probed=probed) == JudgedOutcome(ENDS[reason], ended)
    assert case(None, ended, SelfReport(answered=True, trouble=trouble), probed=probed).failure is ended


def test_a_provider_is_only_asked_where_it_matters() -> None:
    """The gateway does not probe the provider if the result could not change the outcome."""

    def never(_trouble: Trouble) -> ProbeReport:
        raise AssertionError("nobody was to be asked")

    tampered = failure(FailureReason.TAMPERED)
    for relay, ended in (
        (SUCCESS, failure()),
        (replace(SUCCESS, trouble=Trouble.FAILED), tampered),
        (replace(SUCCESS, trouble=Trouble.OUT_OF_BUDGET), failure()),
        (replace(SUCCESS, trouble=Trouble.REJECTED), failure()),
        (replace(SUCCESS, trouble=Trouble.FAILED), None),
    ):
        judge(
            OutcomeEvidence(
                self_report=SelfReport(), relay=relay, failure=ended, has_candidate=True, ask_provider=never
            )
        )
    with pytest.raises(ProviderError):
        judge(
            OutcomeEvidence(
                self_report=SelfReport(),
                relay=RelayReport(requests=1, trouble=Trouble.FAILED),
                failure=failure(),
                has_candidate=False,
                ask_provider=never,
            )
        )


@pytest.mark.parametrize("trouble", INFRASTRUCTURE)
def test_trouble_counts_where_a_program_ends_well_without_work(trouble: Trouble) -> None:
    """After provider trouble, exit code 0 counts as work only with a candidate and without a reported failure."""
    relay = replace(SUCCESS, trouble=trouble)
    with pytest.raises(ProviderError):
        case(relay, left=False, probed=trouble)
    assert case(relay).outcome is AgentOutcome.WORKED
    with pytest.raises(ProviderError):
        case(relay, self_report=SelfReport(failed=True), probed=trouble)


@pytest.mark.parametrize("trouble", Trouble)
def test_trouble_before_any_answer_is_never_a_score(trouble: Trouble) -> None:
    """Any trouble before the first answer is an infrastructure error, except a used-up budget and a refusal."""
    relay = RelayReport(requests=1, statuses={"400": 1}, trouble=trouble)
    if trouble in {Trouble.OUT_OF_BUDGET, Trouble.DECLINED}:
        assert case(relay).failure is not None
        return
    for ended in (None, failure()):
        assert refusal(relay, ended).startswith("provider-")


def test_an_answer_counts_from_its_beginning() -> None:
    """A program that ends while its first answer streams has failed: a command of the agent may have killed it."""
    cut = RelayReport(requests=1, answered=0, statuses={"200": 1})
    ended = failure()
    assert case(cut, ended) == JudgedOutcome(AgentOutcome.CRASHED, ended)
    provoked = replace(cut, statuses={"200": 1, "400": 1}, trouble=Trouble.REJECTED)
    assert case(provoked, ended) == JudgedOutcome(AgentOutcome.PROVIDER_REJECTED, ended)


def test_a_request_found_wrong_later_is_the_agents_failure() -> None:
    """A request that is rejected after an answer is the agent's failure, unless the agent completes its work."""
    relay, ended = replace(SUCCESS, trouble=Trouble.REJECTED), failure()
    assert case(relay, ended) == JudgedOutcome(AgentOutcome.PROVIDER_REJECTED, ended)
    assert case(relay) == JudgedOutcome(AgentOutcome.WORKED)


def test_a_used_up_budget_is_a_failure() -> None:
    """J18: an agent that used up its budget has failed, unless it exits with 0 and leaves a candidate."""
    relay = replace(SUCCESS, trouble=Trouble.OUT_OF_BUDGET)
    for ended in (failure(), failure(FailureReason.AGENT_TIMEOUT)):
        judged = case(relay, ended)
        assert judged.outcome is AgentOutcome.OUT_OF_BUDGET
        assert judged.failure is not None
        assert judged.failure.reason is FailureReason.AGENT_OUT_OF_BUDGET
    assert case(relay, left=False).outcome is AgentOutcome.OUT_OF_BUDGET
    assert case(relay) == JudgedOutcome(AgentOutcome.WORKED)


@pytest.mark.parametrize("ended", [None, failure(), failure(FailureReason.AGENT_OUT_OF_MEMORY)])
def test_a_program_that_asked_nothing_did_not_start(ended: CandidateError | None) -> None:
    """If a program sent no request to a model, that is an infrastructure error, however the program ended."""
    assert refusal(NOTHING, ended) == "agent-not-started"


def test_a_provider_that_never_answers_is_out_of_reach() -> None:
    """A timeout without any answer means that the provider is unreachable; another failure means a failed start."""
    waiting = RelayReport(requests=1)
    assert refusal(waiting, failure(FailureReason.AGENT_TIMEOUT)) == "provider-unreachable"
    assert refusal(waiting, failure()) == "agent-not-started"


def test_what_the_relay_refused_is_named() -> None:
    """If the relay refused all requests of a program, the error names the reasons."""
    with pytest.raises(InfrastructureError, match=r"the relay refused requests \(reasons: model, path\)"):
        case(RelayReport(refused={"path": 1, "model": 3}), failure())


def test_tampering_stays_a_failure() -> None:
    """An agent that tampered with files has failed, even if the provider has trouble afterwards."""
    ended = failure(FailureReason.TAMPERED)
    assert case(replace(SUCCESS, trouble=Trouble.RATE_LIMITED), ended) == JudgedOutcome(AgentOutcome.WORKED, ended)


_SELF_REPORT = st.builds(
    SelfReport,
    answered=st.booleans(),
    finished=st.booleans(),
    failed=st.booleans(),
    error=st.text(max_size=3),
    trouble=st.none() | st.sampled_from(Trouble),
    message=st.text(max_size=3),
    denials=st.integers(0, 2),
)


@given(self_report=_SELF_REPORT, reason=st.none() | st.sampled_from(list(ENDS)), left=st.booleans())
def test_no_claim_changes_what_the_relay_saw(self_report: SelfReport, reason: FailureReason | None, left: bool) -> None:
    """J15: if the relay saw success, a failure stays a failure and a success stays a success, whatever is reported.

    Denied tool calls change only the outcome. A refusal gives a failure another reason, so it is left out here.
    """
    ended = None if reason is None else failure(reason)
    judged = case(SUCCESS, ended, self_report, left=left)
    assert judged.failure is ended
    assert judged.outcome is case(SUCCESS, ended, SelfReport(denials=self_report.denials), left=left).outcome


@given(self_report=_SELF_REPORT)
def test_no_claim_starts_a_program(self_report: SelfReport) -> None:
    """If the relay saw no request, the program did not start, even if its events claim that a model answered."""
    assert refusal(NOTHING, None, self_report) == "agent-not-started"


@pytest.mark.parametrize(("trouble", "code"), INFRASTRUCTURE.items())
def test_without_a_relay_the_programs_word_counts(trouble: Trouble, code: str) -> None:
    """Passthrough: provider trouble is taken from the program's own events.

    After an answer, it is an infrastructure error if the gateway's probe also meets it and the agent failed.
    """
    reported = SelfReport(trouble=trouble, error="status 599", failed=True)
    for self_report in (reported, replace(reported, answered=True)):
        with pytest.raises(ProviderError, match="status 599") as raised:
            case(None, failure(), self_report, probed=trouble)
        assert raised.value.code == code
    assert case(None, None, SelfReport(answered=True, trouble=trouble)).outcome is AgentOutcome.WORKED


def test_without_a_relay_or_an_answer_nothing_was_started() -> None:
    """Passthrough: a program that reports neither an answer nor provider trouble did not start."""
    assert refusal(None, failure(), SelfReport()) == "agent-not-started"
    assert case(None, failure(), SelfReport(answered=True)).outcome is AgentOutcome.CRASHED


@pytest.mark.parametrize("outcome", AgentOutcome)
def test_every_outcome_is_described(outcome: AgentOutcome) -> None:
    """docs/reference/records.md describes each outcome."""
    page = Path(__file__).resolve().parents[3] / "docs" / "reference" / "records.md"
    section = page.read_text().partition("## How an agent program ended")[2].partition("\n## ")[0]
    assert f"`{outcome.value}`" in section


def test_every_cell_ends() -> None:
    """Each combination of evidence yields an outcome or an infrastructure error, and never another exception."""
    relays = [
        None,
        *(
            RelayReport(requests=requests, answered=answered, trouble=trouble)
            for requests, answered, trouble in product((0, 2), (0, 2), (None, *Trouble))
        ),
    ]
    ends = (None, *map(failure, FailureReason))
    self_report = [
        SelfReport(failed=failed, answered=answered) for failed, answered in product((True, False), repeat=2)
    ]
    outcomes, codes = set(), set()
    probes = (None, *PROVIDER_TROUBLES)
    for relay, ended, reported, left, probed in product(relays, ends, self_report, (True, False), probes):
        try:
            outcomes.add(case(relay, ended, reported, left=left, probed=probed).outcome)
        except InfrastructureError as error:
            codes.add(error.code)
    assert outcomes == {
        *ENDS.values(),
        AgentOutcome.WORKED,
        AgentOutcome.GAVE_UP,
        AgentOutcome.OUT_OF_BUDGET,
        AgentOutcome.PROVIDER_REJECTED,
        AgentOutcome.REFUSED,
    }
    assert codes == {*INFRASTRUCTURE.values(), "provider-rejected", "agent-not-started"}


@pytest.mark.parametrize("trouble", INFRASTRUCTURE)
@pytest.mark.parametrize("ended", [None, failure()])
@pytest.mark.parametrize("answered", [0, 3])
def test_a_command_is_judged_by_what_the_gateway_meets(
    trouble: Trouble, ended: CandidateError | None, answered: int
) -> None:
    """A command may provoke trouble itself, so provider trouble counts only if the gateway's probe meets it, too."""
    relay = RelayReport(requests=4, answered=answered, trouble=trouble)
    with pytest.raises(ProviderError):
        case(relay, ended, probed=trouble, trusted=False)
    expected = JudgedOutcome(AgentOutcome.CRASHED, ended) if ended else JudgedOutcome(AgentOutcome.WORKED)
    assert case(relay, ended, trusted=False) == expected


@pytest.mark.parametrize("ended", [None, failure()])
@pytest.mark.parametrize("trouble", [Trouble.REJECTED, Trouble.FAILED])
def test_a_command_that_no_model_could_answer(trouble: Trouble, ended: CandidateError | None) -> None:
    """If the gateway's probe is rejected, a command is not scored, unless a model has answered it."""
    relay = RelayReport(requests=2, statuses={"404": 2}, trouble=trouble)
    with pytest.raises(ProviderError) as raised:
        case(relay, ended, probed=Trouble.REJECTED, trusted=False)
    assert raised.value.code == "provider-rejected"
    for served in (replace(relay, answered=1), replace(relay, statuses={"200": 1, "404": 1})):
        assert case(served, ended, probed=Trouble.REJECTED, trusted=False).failure is ended
    assert case(relay, ended, trusted=False).failure is ended


def test_a_command_that_waited_in_vain() -> None:
    """If a command times out while a request has no response, the probe decides whether the command has failed.

    If all requests had responses, or if the command crashed, the probe does not matter.
    """
    late = failure(FailureReason.AGENT_TIMEOUT)
    waiting, served = RelayReport(requests=2, answered=1, statuses={"200": 1}), SUCCESS
    with pytest.raises(ProviderError):
        case(waiting, late, left=False, probed=Trouble.UNREACHABLE, trusted=False)
    assert case(waiting, late, trusted=False) == JudgedOutcome(AgentOutcome.TIMED_OUT, late)
    assert case(served, late, probed=Trouble.UNREACHABLE, trusted=False) == JudgedOutcome(AgentOutcome.TIMED_OUT, late)
    crashed = failure()
    assert case(waiting, crashed, probed=Trouble.UNREACHABLE, trusted=False).failure is crashed


@pytest.mark.parametrize(
    ("trouble", "outcome"),
    [
        (Trouble.REJECTED, AgentOutcome.PROVIDER_REJECTED),
        (Trouble.OUT_OF_BUDGET, AgentOutcome.OUT_OF_BUDGET),
        (Trouble.DECLINED, AgentOutcome.REFUSED),
    ],
)
def test_a_command_fails_by_its_own_trouble(trouble: Trouble, outcome: AgentOutcome) -> None:
    """A rejected request, a used-up budget and a refusal are a command's failure, even before any answer.

    But a command that exits with 0 and leaves a candidate has worked.
    """
    relay = RelayReport(requests=1, statuses={"400": 1}, trouble=trouble)
    judged = case(relay, failure(), left=False, trusted=False)
    assert (judged.outcome, judged.failure is not None) == (outcome, True)
    assert case(relay, trusted=False) == JudgedOutcome(AgentOutcome.WORKED)
