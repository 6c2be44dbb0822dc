"""The record of one task: what stands in ``candidates.jsonl``, one JSON object a line.

Fields and their meaning are documented in ``docs/reference/records.md``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import INFRASTRUCTURE_REASONS, FailurePhase, FailureReason
from securebench.resources import REDACTED
from securebench.results.usage import read_usage
from securebench.tasks import CandidateKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.resources import JsonValue
    from securebench.results.usage import Usage

RECORD_VERSION: Final = 2
"""Raised when the meaning or the shape of a field changes. What each version changed is in ``records.md``."""

VOLATILE: Final = frozenset(
    {
        *("sequence", "attempt", "tries", "failed_tries", "durations", "duration_seconds", "started_at"),
        *("usage", "spent", "trajectory", "commitment"),
        *("controls", "controls_failed", "control_bits", "styles"),
    }
)
"""Keys that differ between two honest runs of the same thing, wherever they stand in provenance and metadata.

Those of the last line describe tests that must fail, which are drawn at random for each verification.
"""

_ENTRY_MESSAGE: Final = 200
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class VerificationStatus(StrEnum):
    """What became of a task."""

    PENDING = "pending"
    """No verifier is registered for its family."""
    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    """The infrastructure failed: no score, redone on ``--resume``, left out of the pass rate."""


class Assurance(StrEnum):
    """What a verdict rests on: which of the candidate's ways to forge it are closed."""

    FULL = "full"
    """The candidate never shared a process with what judged it."""
    TEST_BY_TEST = "test_by_test"
    """Its repository's tests reported one by one, and controls that must fail did."""
    EXIT_CODE = "exit_code"
    """Nothing but the exit code of a command that runs the candidate's code."""
    SHARED = "shared"
    """The tests ran in the candidate's own process."""


def assurance_of(metadata: Mapping[str, Any]) -> Assurance:
    """Return what a verdict rests on, from its verifier's metadata as it was before redaction."""
    if metadata.get("isolation") == Assurance.SHARED:
        return Assurance.SHARED
    evidence = metadata.get("evidence")
    return Assurance(evidence["kind"]) if isinstance(evidence, dict) else Assurance.FULL


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a harness or a verifier left to read: capped and redacted."""

    stdout: str = ""
    stderr: str = ""
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)

    def fields(self, owner: str) -> dict[str, JsonValue]:
        """Return the three fields of a record that ``owner`` has."""
        return {
            f"{owner}_stdout": self.stdout,
            f"{owner}_stderr": self.stderr,
            f"{owner}_metadata": dict(self.metadata),
        }


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a task failed, or ended in an infrastructure error."""

    reason: FailureReason
    phase: FailurePhase
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """One task's outcome. ``verifier`` is what the verifier said, if one ran; ``failure`` is ``None`` for a pass."""

    run_id: str
    task_id: str
    benchmark_id: str
    task_type: str
    status: VerificationStatus
    candidate: Mapping[str, JsonValue]
    producer: Output
    verifier: Output | None
    resource_summary: JsonValue
    failure: Failure | None
    provenance: Mapping[str, JsonValue]
    assurance: Assurance | None = None
    """Set exactly where a verifier gave a verdict."""

    def to_json(self, sequence: int) -> dict[str, JsonValue]:
        """Return the record's JSON object, its keys in the documented order. ``sequence`` is the journal's."""
        return {
            "record_version": RECORD_VERSION,
            "sequence": sequence,
            "run_id": self.run_id,
            "task_id": self.task_id,
            "benchmark_id": self.benchmark_id,
            "task_type": self.task_type,
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

    def line(self, sequence: int) -> bytes:
        """Return the record as one line of ASCII JSON: no control character of an agent's stands raw in it."""
        return json.dumps(self.to_json(sequence), ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"

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
    """Return the candidate fields: one names the candidate by its kind, a workspace by its digest alone.

    ``redacted`` says that ``text`` is not all of the candidate: something was taken out of it, or it was clipped.
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


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """What a run keeps in memory of a record that is on disk. ``message`` is cut short."""

    sequence: int
    run_id: str
    task_id: str
    task_type: str
    status: VerificationStatus
    attempt: int
    reason: str = ""
    message: str = ""
    usage: Usage | None = None
    """What all attempts at the task used until this record."""
    can_be_verified: bool = False
    """It is an error of the verification alone, and the candidate was sealed."""
    candidate_digest: str | None = None
    assurance: Assurance | None = None
    agent_stderr: str = ""
    """The last line that the agent wrote to stderr, cut short; kept only for a task that did not pass."""


_CANDIDATES: Final = ("candidate_text", "candidate_patch", "candidate_workspace")
_FIELDS_TEXT: Final = """
record_version sequence run_id task_id benchmark_id task_type verification_status passed score assurance
candidate_text candidate_patch candidate_workspace candidate_digest candidate_redacted
producer_stdout producer_stderr producer_metadata verifier_stdout verifier_stderr verifier_metadata
resource_summary hidden_values failure_reason failure_phase failure_message provenance
"""
FIELDS: Final = frozenset(_FIELDS_TEXT.split())
"""The keys that a record may have."""


def read_record(line: bytes) -> dict[str, Any]:
    """Return the record that a line of the journal is.

    Raises ``ValueError``, ``TypeError`` or ``RecursionError`` for anything but a whole record that does not contradict
    itself. A key that stands twice is refused: two readers might each take another one.
    """
    record = json.loads(line.decode("ascii"), parse_constant=_refuse_constant, object_pairs_hook=unique_keys)
    if not isinstance(record, dict):
        raise TypeError(f"a record is a JSON object, not {type(record).__name__}")
    if (version := _field(record, "record_version", int)) != RECORD_VERSION:
        raise ValueError(f"'record_version' is {version}, not {RECORD_VERSION}")
    if unknown := sorted(record.keys() - FIELDS):
        raise ValueError(f"the key {unknown[0][:80]!r} is unknown")
    if record.get("hidden_values") != REDACTED:
        raise ValueError(f"'hidden_values' is not {REDACTED!r}")
    if sum(record.get(name) is not None for name in _CANDIDATES) > 1:
        raise ValueError("there are two candidates")
    if (sequence := _field(record, "sequence", int)) < 0:
        raise ValueError(f"'sequence' is {sequence}")
    status = VerificationStatus(_field(record, "verification_status", str))
    _require_score(record, status)
    _require_failure(record, status)
    digest = record.get("candidate_digest")
    if digest is not None and not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
        raise ValueError("'candidate_digest' is not a sha256")
    if (attempt := _field(_field(record, "provenance", dict), "attempt", int)) < 1:
        raise ValueError(f"'attempt' is {attempt}")
    return record


def read_entry(line: bytes) -> RecordEntry:
    """Return what a line of the journal says. Raises as :func:`read_record` does."""
    return entry_of(read_record(line))


def entry_of(record: Mapping[str, Any]) -> RecordEntry:
    """Return what a run keeps in memory of ``record``. Raises ``ValueError`` and ``TypeError`` for what is odd."""
    status = VerificationStatus(record["verification_status"])
    provenance = record["provenance"]
    return RecordEntry(
        sequence=_field(record, "sequence", int),
        run_id=_field(record, "run_id", str),
        task_id=_field(record, "task_id", str),
        task_type=_field(record, "task_type", str),
        status=status,
        attempt=_field(provenance, "attempt", int),
        reason=str(record.get("failure_reason", "")),
        message=str(record.get("failure_message", ""))[:_ENTRY_MESSAGE],
        usage=read_usage(provenance.get("spent") or provenance.get("usage")),
        can_be_verified=status is VerificationStatus.ERROR
        and record.get("failure_phase") == FailurePhase.VERIFY
        and record.get("candidate_digest") is not None,
        candidate_digest=record.get("candidate_digest"),
        assurance=_assurance(record, status),
        agent_stderr=last_line(str(record.get("producer_stderr", ""))) if "failure_reason" in record else "",
    )


def last_line(text: str) -> str:
    """Return the last line of ``text`` that is not blank, cut short; empty if there is none."""
    lines = text.strip().splitlines()
    return lines[-1].strip()[:_ENTRY_MESSAGE] if lines else ""


def _require_score(record: Mapping[str, Any], status: VerificationStatus) -> None:
    """Raise ``ValueError`` unless ``passed`` and ``score`` are what the status says."""
    is_scored = status in {VerificationStatus.PASSED, VerificationStatus.FAILED}
    passed = status is VerificationStatus.PASSED
    wanted = {"passed": passed, "score": 1.0 if passed else 0.0} if is_scored else {}
    for name, kind in (("passed", bool), ("score", float)):
        value = record.get(name)
        is_right = (type(value), value) == (kind, wanted[name]) if name in wanted else name not in record
        if not is_right:
            raise ValueError(f"{name!r} is {value!r} beside the status {status.value!r}")


def _require_failure(record: Mapping[str, Any], status: VerificationStatus) -> None:
    """Raise ``ValueError`` unless a failure stands there exactly where the status says that there is one."""
    names = ("failure_reason", "failure_phase", "failure_message")
    if status in {VerificationStatus.PASSED, VerificationStatus.PENDING}:
        if found := [name for name in names if name in record]:
            raise ValueError(f"{found[0]!r} stands beside the status {status.value!r}")
        return
    reason, phase, _ = (_field(record, name, str) for name in names)
    FailurePhase(phase)
    if (FailureReason(reason) in INFRASTRUCTURE_REASONS) is not (status is VerificationStatus.ERROR):
        raise ValueError(f"the reason {reason!r} stands beside the status {status.value!r}")


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of ``pairs``, for ``json.loads``. Raises ``ValueError`` if a key stands in it twice."""
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:80]!r} stands twice in one object")
    return made


def _assurance(record: Mapping[str, Any], status: VerificationStatus) -> Assurance | None:
    """Return what the verdict rests on. A pass without it is refused: it would count as better than it is."""
    if "assurance" in record or status is VerificationStatus.PASSED:
        return Assurance(_field(record, "assurance", str))
    return None


def comparable(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``record`` without what may differ between two honest runs of the same thing.

    Two runs are equal when the sets of their comparable records are: the order of a journal is that in which
    tasks ended. Dropped are the keys in :data:`VOLATILE`, at any depth of provenance and metadata.
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


def _field(record: Mapping[str, Any], name: str, kind: type) -> Any:
    value = record.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{name!r} is {type(value).__name__}, not {kind.__name__}")
    return value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
