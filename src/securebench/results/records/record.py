"""The record of one trial: one JSON object, written as one line of ``candidates.jsonl``.

Fields and their meaning are documented in ``docs/reference/records.md``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

from securebench.errors import FailurePhase, FailureReason
from securebench.resources import REDACTED
from securebench.results.records.chain import UNCHAINED
from securebench.tasks import CandidateKind
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.resources import JsonValue
    from securebench.results.records.usage import Usage

RECORD_VERSION: Final = 4
"""Incremented when the meaning or the shape of a field changes. ``records.md`` lists the changes of each version."""

VOLATILE: Final = frozenset(
    {
        *(
            "sequence",
            "previous",
            "run",
            "attempt",
            "tries",
            "failed_tries",
            "durations",
            "duration_seconds",
            "started_at",
        ),
        *("usage", "judge_usage", "spent", "trajectory", "commitment"),
        *("controls", "controls_failed", "control_bits", "styles"),
    }
)
"""Keys that may differ between two correct runs of the same task.

They are keys of a record, or keys at any depth of its provenance and metadata.

The keys in the last line of the set describe controls, which are drawn at random for each verification.
"""


class VerificationStatus(StrEnum):
    """The verification status of a task."""

    PENDING = "pending"
    """There is no verifier for the task's family."""
    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    """The infrastructure failed, or the task cannot be judged. It has no score, and ``--resume`` runs it again."""


class Assurance(StrEnum):
    """How well a verdict is protected from forgery by the candidate."""

    FULL = "full"
    """No process that judged the candidate ran the candidate's code, except possibly the task's own checker."""
    TEST_BY_TEST = "test_by_test"
    """The repository's tests were judged one by one. For a pass, the added controls had to fail."""
    EXIT_CODE = "exit_code"
    """Only the exit code of a command that runs the candidate's code was judged."""
    SHARED = "shared"
    """The tests ran in the candidate's own process."""
    MODEL_GRADED = "model_graded"
    """The opinion of a judge model, which the candidate may have influenced."""


ASSURANCE_MEANING: Final[Mapping[Assurance, str]] = MappingProxyType(
    {
        Assurance.FULL: "No judging process ran the candidate's code, except possibly the task's own checker.",
        Assurance.TEST_BY_TEST: "Tests were judged one by one. For a pass, added control tests had to fail.",
        Assurance.EXIT_CODE: "Only a command's exit code. The candidate's code ran in the command and could forge it.",
        Assurance.SHARED: "Tests and candidate ran in one process; the candidate could forge the verdict.",
        Assurance.MODEL_GRADED: "A judge model's opinion: it may be wrong, and the candidate may have influenced it.",
    }
)
"""What a verdict rests on: an explanation of each assurance."""

WEAK: Final[Mapping[Assurance, str]] = MappingProxyType(
    {
        Assurance.EXIT_CODE: "on exit code only",
        Assurance.SHARED: "judged in the candidate's process",
        Assurance.MODEL_GRADED: "graded by a model",
    }
)
"""How summaries describe weak passes. The candidate could have forged such a pass, or influenced its judge."""


def assurance_of(metadata: Mapping[str, Any]) -> Assurance:
    """Return the assurance of a verdict, from its verifier's metadata before redaction."""
    if metadata.get("isolation") == Assurance.SHARED:
        return Assurance.SHARED
    evidence = metadata.get("evidence")
    return Assurance(evidence["kind"]) if isinstance(evidence, dict) else Assurance.FULL


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The output of a harness or a verifier, clipped and redacted."""

    stdout: str = ""
    stderr: str = ""
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)

    def fields(self, owner: str) -> dict[str, JsonValue]:
        """Return the three record fields for ``owner`` (``producer`` or ``verifier``)."""
        return {
            f"{owner}_stdout": self.stdout,
            f"{owner}_stderr": self.stderr,
            f"{owner}_metadata": dict(self.metadata),
        }

    @classmethod
    def of(cls, record: Mapping[str, Any], owner: str) -> Self:
        """Return the output of ``owner`` (``producer`` or ``verifier``) in a record."""
        return cls(**{name: record[f"{owner}_{name}"] for name in ("stdout", "stderr", "metadata")})


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a task failed or ended in an infrastructure error."""

    reason: FailureReason
    phase: FailurePhase
    message: str

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self | None:
        """Return the failure in a record, if there is one."""
        if "failure_reason" not in record:
            return None
        reason, phase = FailureReason(record["failure_reason"]), FailurePhase(record["failure_phase"])
        return cls(reason, phase, record["failure_message"])


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """The outcome of one trial. ``verifier`` is the verifier's output, if one ran.

    ``failure`` is ``None`` for a trial that passed or is pending.
    """

    run_id: str
    task_id: str
    trial: int = 1
    benchmark_id: str
    task_type: str
    tags: tuple[str, ...] = ()
    status: VerificationStatus
    candidate: Mapping[str, JsonValue]
    producer: Output
    verifier: Output | None
    resource_summary: JsonValue
    failure: Failure | None
    provenance: Mapping[str, JsonValue]
    assurance: Assurance | None = None
    """The assurance of the verdict; ``None`` if no verifier gave a verdict."""

    @property
    def id(self) -> TrialId:
        """The task and the number of its trial."""
        return TrialId(self.task_id, self.trial)

    def to_json(self, sequence: int = 0, previous: str = UNCHAINED) -> dict[str, JsonValue]:
        """Return the record as JSON, its keys in the documented order.

        ``sequence`` is its number in the journal, ``previous`` the hash of the line before it.
        """
        return {
            "record_version": RECORD_VERSION,
            "sequence": sequence,
            "previous": previous,
            "run_id": self.run_id,
            "task_id": self.task_id,
            "trial": self.trial,
            "benchmark_id": self.benchmark_id,
            "task_type": self.task_type,
            "tags": list(self.tags),
            "verification_status": self.status.value,
            **self._score(),
            **({"assurance": self.assurance.value} if self.assurance else {}),
            **self.candidate,
            **self.producer.fields("producer"),
            **(self.verifier.fields("verifier") if self.verifier else {}),
            "resource_summary": self.resource_summary,
            "hidden_values": REDACTED,
            **self._failure(),
            "provenance": dict(self.provenance),
        }

    def line(self, sequence: int = 0, previous: str = UNCHAINED) -> bytes:
        """Return the record as one line of ASCII JSON, so that control characters from an agent are escaped."""
        content = self.to_json(sequence, previous)
        return json.dumps(content, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"

    def _score(self) -> dict[str, JsonValue]:
        if self.status not in {VerificationStatus.PASSED, VerificationStatus.FAILED}:
            return {}
        passed = self.status is VerificationStatus.PASSED
        return {"passed": passed, "score": 1.0 if passed else 0.0}

    def _failure(self) -> dict[str, JsonValue]:
        if self.failure is None:
            return {}
        return {
            "failure_reason": self.failure.reason.value,
            "failure_phase": self.failure.phase.value,
            "failure_message": self.failure.message,
        }


def candidate_fields(
    candidate: CandidateArtifact | None, text: str | None, *, redacted: bool = False
) -> dict[str, JsonValue]:
    """Return the candidate fields.

    The field for the candidate's kind contains ``text`` or, for a workspace, the digest of the workspace.
    ``redacted`` means that ``text`` is not the complete candidate, because it was redacted or clipped.
    """
    fields: dict[str, JsonValue] = {
        "candidate_text": None,
        "candidate_patch": None,
        "candidate_workspace": None,
        "candidate_digest": candidate.digest if candidate else None,
        "candidate_redacted": redacted if candidate else None,
    }
    if candidate is None:
        return fields
    match candidate.kind:
        case CandidateKind.TEXT | CandidateKind.CODE:
            fields["candidate_text"] = text
        case CandidateKind.PATCH:
            fields["candidate_patch"] = text
        case CandidateKind.WORKSPACE:
            fields["candidate_workspace"] = f"sha256:{candidate.digest}"
    return fields


def recorded_candidate(record: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the candidate fields of a record."""
    return {name: record[name] for name in candidate_fields(None, None)}


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """The summary that a run keeps in memory for each record on disk. ``message`` is truncated."""

    sequence: int
    run_id: str
    task_id: str
    trial: int
    task_type: str
    status: VerificationStatus
    attempt: int
    reason: str = ""
    message: str = ""
    usage: Usage | None = None
    """The usage of all attempts at the trial, including this one."""
    can_be_verified: bool = False
    """Whether only the verification ended in an infrastructure error, so that the candidate can be verified again."""
    candidate_digest: str | None = None
    assurance: Assurance | None = None
    agent_stderr: str = ""
    """The last line of the agent's stderr, truncated. Empty for a trial that passed or is pending."""
    judge_usage: Usage | None = None
    """What the judge model used in all attempts at the trial."""

    @property
    def id(self) -> TrialId:
        """The task and the number of its trial: unique in a journal."""
        return TrialId(self.task_id, self.trial)


def comparable(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``record`` without the keys that may differ between two correct runs of the same task.

    To compare two runs, compare the sets of these records: a journal is in the order in which tasks finished. The keys
    in :data:`VOLATILE` are dropped from the record, and at any depth from its provenance and metadata.
    """
    kept = {key: value for key, value in record.items() if key not in VOLATILE}
    for name in ("provenance", "producer_metadata", "verifier_metadata"):
        if name in kept:
            kept[name] = _without_volatile(kept[name])
    return kept


def _without_volatile(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_volatile(item) for key, item in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [_without_volatile(item) for item in value]
    return value
