"""The outcome of a task, and the record made from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from securebench.errors import FailurePhase, FailureReason
from securebench.execution.history import History
from securebench.results.records.provenance import row_provenance, verifier_provenance
from securebench.results.records.record import (
    Failure,
    Output,
    TaskRecord,
    VerificationStatus,
    assurance_of,
    candidate_fields,
)
from securebench.results.records.usage import Usage
from securebench.tasks import DEFAULT_IMAGE, CandidateKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.errors import CandidateError
    from securebench.execution.context import TaskContext
    from securebench.execution.trail import Trail
    from securebench.harnesses.base import AgentResult
    from securebench.resources import JsonValue
    from securebench.results.records.redaction import Redactor
    from securebench.tasks import SecureBenchTask
    from securebench.verifiers.base import VerificationResult, Verifier

_WORK: Final = ("trajectory", "usage", "failed_tries")

CANDIDATE_CAP: Final = 1024 * 1024
"""The maximum number of characters of a candidate in a record. The whole candidate is in ``candidates/`` of the run."""


@dataclass(slots=True)
class TaskOutcome:
    """The outcome of a task so far. Not thread safe."""

    verifier: Verifier | None
    history: History = field(default_factory=History)
    agent_result: AgentResult | None = None
    """The result of the agent's last try, or of an earlier attempt if only verification runs."""
    failed_tries: list[dict[str, JsonValue]] = field(default_factory=list)
    """The tries that ended with an infrastructure failure.

    Each has its error and, if known, its outcome, usage and trajectory.
    """
    spent: Usage = field(default_factory=Usage)
    """The usage of all tries of this attempt."""
    is_verified_again: bool = False
    """Whether only verification runs: an earlier attempt's record already describes the agent's work."""
    trajectory: Mapping[str, JsonValue] = field(default_factory=dict)
    """Where the trajectory is stored; empty if the agent reported none."""
    verdict: VerificationResult | None = None
    judge_usage: Usage = field(default_factory=Usage)
    """What the judge model used in this attempt, whether or not it gave a verdict."""
    refusal: CandidateError | None = None
    """A failure of the agent or the candidate that was raised instead of returned."""
    fault: Failure | None = None
    """The infrastructure failure or internal error that ended the task before its verdict."""

    @property
    def candidate(self) -> CandidateArtifact | None:
        """The agent's candidate."""
        return self.agent_result.candidate if self.agent_result else None

    @property
    def judged(self) -> CandidateArtifact | None:
        """The candidate to judge; ``None`` if the agent failed or did not finish."""
        agent_result = self.agent_result
        return None if agent_result is None or agent_result.failure or agent_result.fault else agent_result.candidate

    def result(self) -> tuple[VerificationStatus, Failure | None]:
        """Return the status, and the failure: ``None`` if the task passed or is pending."""
        failure = self.refusal or (self.agent_result.failure if self.agent_result else None)
        if self.fault is not None:
            return VerificationStatus.ERROR, self.fault
        if failure is not None:
            return VerificationStatus.FAILED, Failure(failure.reason, failure.phase, failure.message)
        if self.candidate is None:
            missing = "the harness returned neither a candidate nor a failure"
            return VerificationStatus.ERROR, Failure(FailureReason.INTERNAL_ERROR, FailurePhase.PRODUCE, missing)
        if self.verdict is None:
            return VerificationStatus.PENDING, None
        if self.verdict.reason is None:
            return VerificationStatus.PASSED, None
        return VerificationStatus.FAILED, Failure(self.verdict.reason, self.verdict.phase, self.verdict.message)


def build_record(
    task: SecureBenchTask, context: TaskContext, outcome: TaskOutcome, trail: Trail, redactor: Redactor
) -> TaskRecord:
    """Return the record of a task.

    ``redactor`` redacts the tags, the messages, and everything that the agent and the verifier produced.
    """
    status, failure = outcome.result()
    return TaskRecord(
        run_id=context.run_id,
        task_id=task.id,
        trial=outcome.history.trial,
        benchmark_id=task.benchmark_id,
        task_type=task.task_type,
        tags=tuple(redactor.text(tag) for tag in task.tags),
        status=status,
        candidate=_candidate(outcome, redactor),
        producer=_producer(outcome, redactor),
        verifier=_output(outcome.verdict, redactor, lines=True),
        resource_summary=task.resources.summary(),
        failure=failure and Failure(failure.reason, failure.phase, redactor.text(failure.message, lines=True)),
        provenance=_provenance(task, context, outcome, trail, redactor),
        assurance=assurance_of(outcome.verdict.metadata) if outcome.verdict else None,
    )


def _candidate(outcome: TaskOutcome, redactor: Redactor) -> Mapping[str, JsonValue]:
    if outcome.agent_result and outcome.agent_result.recorded:
        return outcome.agent_result.recorded
    candidate = outcome.candidate
    if candidate is None or candidate.text is None:
        return candidate_fields(candidate, None)
    redact = redactor.patch if candidate.kind is CandidateKind.PATCH else redactor.text
    text = redact(candidate.text, cap=CANDIDATE_CAP)
    return candidate_fields(candidate, text, redacted=text != candidate.text)


def _producer(outcome: TaskOutcome, redactor: Redactor) -> Output:
    if outcome.is_verified_again and (record := outcome.history.unverified):
        return Output.of(record, "producer")
    return _output(outcome.agent_result, redactor, lines=False) or Output()


def _output(source: AgentResult | VerificationResult | None, redactor: Redactor, *, lines: bool) -> Output | None:
    if source is None:
        return None
    return Output(
        stdout=redactor.text(source.stdout, lines=lines),
        stderr=redactor.text(source.stderr, lines=lines),
        metadata=redactor.mapping(source.metadata, lines=lines),
    )


def _provenance(
    task: SecureBenchTask, context: TaskContext, outcome: TaskOutcome, trail: Trail, redactor: Redactor
) -> dict[str, JsonValue]:
    agent_result = outcome.agent_result
    spent = outcome.history.spent + outcome.spent
    judged = outcome.history.judge_spent + outcome.judge_usage
    return {
        **trail.to_json(),
        **context.provenance,
        "row": row_provenance(task, context.commitment),
        "image": {
            "reference": task.environment.image or DEFAULT_IMAGE,
            "id": agent_result.image_id if agent_result else "",
        },
        "verifier": verifier_provenance(outcome.verifier),
        **_work(outcome, redactor),
        **({"spent": spent.to_json()} if spent else {}),
        **({"judge_usage": judged.to_json()} if judged else {}),
    }


def _work(outcome: TaskOutcome, redactor: Redactor) -> dict[str, JsonValue]:
    """Return the provenance of the agent's work: its trajectory's location, its usage and its failed tries."""
    if outcome.is_verified_again and (record := outcome.history.unverified):
        return {name: record["provenance"][name] for name in _WORK if name in record["provenance"]}
    agent_result = outcome.agent_result
    return {
        **({"trajectory": dict(outcome.trajectory)} if outcome.trajectory else {}),
        "usage": redactor.value(agent_result.metadata.get("usage", {}) if agent_result else {}),
        **({"failed_tries": redactor.value(list(outcome.failed_tries))} if outcome.failed_tries else {}),
    }
