"""The record of one task: a line of ``candidates.jsonl``, which contains one JSON object.

Fields and their meaning are documented in ``docs/reference/records.md``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

from securebench.errors import INFRASTRUCTURE_REASONS, FailurePhase, FailureReason
from securebench.resources import REDACTED
from securebench.results.chain import UNCHAINED
from securebench.results.usage import read_usage
from securebench.tasks import CandidateKind
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.resources import JsonValue
    from securebench.results.usage import Usage

RECORD_VERSION: Final = 4
"""Incremented when the meaning or the shape of a field changes. ``records.md`` lists the changes of each version."""

READABLE_VERSIONS: Final = (2, 3, RECORD_VERSION)
"""The versions that :func:`read_record` accepts."""

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
        *("usage", "spent", "trajectory", "commitment"),
        *("controls", "controls_failed", "control_bits", "styles"),
    }
)
"""Keys that may differ between two correct runs of the same task, at any depth of provenance and metadata.

Those of the last line describe tests that must fail, which are drawn at random for each verification.
"""

MAX_DEPTH: Final = 64
"""Levels of lists and objects: twice what a row may have, so that code may recurse into a record."""

_ENTRY_MESSAGE: Final = 200
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class VerificationStatus(StrEnum):
    """The verification status of a task."""

    PENDING = "pending"
    """There is no verifier for the task's family."""
    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    """The infrastructure failed: no score, run again with ``--resume``, excluded from the pass rate."""


class Assurance(StrEnum):
    """How well a verdict is protected from forgery by the candidate."""

    FULL = "full"
    """The candidate never shared a process with the code that judged it."""
    TEST_BY_TEST = "test_by_test"
    """The repository's tests reported one by one, and the controls that must fail did fail."""
    EXIT_CODE = "exit_code"
    """Only the exit code of a command that runs the candidate's code."""
    SHARED = "shared"
    """The tests ran in the candidate's own process."""


ASSURANCE_MEANING: Final[Mapping[Assurance, str]] = MappingProxyType(
    {
        Assurance.FULL: "The candidate never shared a process with the code that judged it.",
        Assurance.TEST_BY_TEST: "The repository's tests reported one by one, and tests that must fail did fail.",
        Assurance.EXIT_CODE: "Only the exit code of a command that runs the candidate's code, which could forge it.",
        Assurance.SHARED: "Tests and candidate ran in one process; the candidate could forge the verdict.",
    }
)
"""What a verdict rests on, in a sentence each."""

WEAK: Final[Mapping[Assurance, str]] = MappingProxyType(
    {Assurance.EXIT_CODE: "on exit code only", Assurance.SHARED: "in one process with the candidate"}
)
"""How to mark a pass that the candidate's code could have forged."""


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
        """Return the output of ``owner`` in a record."""
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
    """One task's outcome. ``verifier`` is the verifier's output, if one ran. ``failure`` is ``None`` for a pass."""

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
    """Set if and only if a verifier gave a verdict."""

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

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Return the record that :meth:`line` wrote, without its number. Raises the errors of :func:`read_record`."""
        return cls.from_record(read_record(line))

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Return a record that :func:`read_record` returned, without its number. Raises its errors and ``KeyError``."""
        status = VerificationStatus(record["verification_status"])
        return cls(
            **{name: record[name] for name in ("run_id", "task_id", "trial", "benchmark_id", "task_type")},
            tags=tuple(record["tags"]),
            status=status,
            candidate=recorded_candidate(record),
            producer=Output.of(record, "producer"),
            verifier=Output.of(record, "verifier") if "verifier_stdout" in record else None,
            resource_summary=record["resource_summary"],
            failure=Failure.of(record),
            provenance=record["provenance"],
            assurance=_assurance(record, status),
        )

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
    """Return the candidate fields. The field for the candidate's kind has its text, or the digest of a workspace.

    ``redacted``: ``text`` is not the complete candidate, because it was redacted or clipped.
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
    """The summary of a record on disk that a run keeps in memory. ``message`` is truncated."""

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
    """The usage of all attempts at the task, including this one."""
    can_be_verified: bool = False
    """Only the verification failed, with an infrastructure error, so the sealed candidate can be verified again."""
    candidate_digest: str | None = None
    assurance: Assurance | None = None
    agent_stderr: str = ""
    """The last line of the agent's stderr, truncated. Empty for a task that passed."""

    @property
    def id(self) -> TrialId:
        """The task and the number of its trial: unique in a journal."""
        return TrialId(self.task_id, self.trial)


_CANDIDATES: Final = ("candidate_text", "candidate_patch", "candidate_workspace")
_FIELDS_TEXT: Final = """
record_version sequence previous run_id task_id trial benchmark_id task_type tags
verification_status passed score assurance
candidate_text candidate_patch candidate_workspace candidate_digest candidate_redacted
producer_stdout producer_stderr producer_metadata verifier_stdout verifier_stderr verifier_metadata
resource_summary hidden_values failure_reason failure_phase failure_message provenance
"""
FIELDS: Final = frozenset(_FIELDS_TEXT.split())
"""The keys that a record may have."""
_SINCE: Final = {"trial": 3, "tags": 3, "previous": 4}
"""The versions that introduced fields."""


def read_record(line: bytes) -> dict[str, Any]:
    """Parse a line of the journal. A record of version 2 is returned as trial 1 without tags.

    What a record says about others, such as ``previous``, is not checked here.

    Raises ``ValueError``, ``TypeError`` or ``RecursionError`` if the record is incomplete or contradicts itself.
    Duplicate keys are refused, because two readers could use different ones.
    """
    record = json.loads(line.decode("ascii"), parse_constant=_refuse_constant, object_pairs_hook=unique_keys)
    if not isinstance(record, dict):
        raise TypeError(f"expected a JSON object, got {type(record).__name__}")
    if (version := _field(record, "record_version", int)) not in READABLE_VERSIONS:
        raise ValueError(f"expected 'record_version' {RECORD_VERSION}, got {version}")
    if unknown := sorted(record.keys() - FIELDS):
        raise ValueError(f"unknown key {unknown[0][:80]!r}")
    if record.get("hidden_values") != REDACTED:
        raise ValueError(f"'hidden_values' is not {REDACTED!r}")
    if sum(record.get(name) is not None for name in _CANDIDATES) > 1:
        raise ValueError("more than one candidate field has a value")
    if (sequence := _field(record, "sequence", int)) < 0:
        raise ValueError(f"'sequence' is negative: {sequence}")
    _require_fields_of(record, version)
    status = VerificationStatus(_field(record, "verification_status", str))
    _require_score(record, status)
    _require_failure(record, status)
    digest = record.get("candidate_digest")
    if digest is not None and not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
        raise ValueError("'candidate_digest' is not a SHA-256 in hex")
    if (attempt := _field(_field(record, "provenance", dict), "attempt", int)) < 1:
        raise ValueError(f"'attempt' must be at least 1, got {attempt}")
    return record


def read_entry(line: bytes) -> RecordEntry:
    """Return the summary of a journal line. Raises the same errors as :func:`read_record`."""
    return entry_of(read_record(line))


def entry_of(record: Mapping[str, Any]) -> RecordEntry:
    """Return the summary of ``record``. Raises ``ValueError`` and ``TypeError`` if a value is invalid."""
    status = VerificationStatus(record["verification_status"])
    provenance = record["provenance"]
    return RecordEntry(
        sequence=_field(record, "sequence", int),
        run_id=_field(record, "run_id", str),
        task_id=_field(record, "task_id", str),
        trial=_field(record, "trial", int),
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
    """Return the last line of ``text`` that is not blank, truncated; empty if there is none."""
    lines = text.strip().splitlines()
    return lines[-1].strip()[:_ENTRY_MESSAGE] if lines else ""


def _require_fields_of(record: dict[str, Any], version: int) -> None:
    """Raise ``ValueError`` or ``TypeError`` if a field that not all versions have is invalid.

    Add the fields of version 3 to a record of version 2.
    """
    if found := [name for name, since in _SINCE.items() if version < since and name in record]:
        raise ValueError(f"unknown key {found[0]!r} in a record of version {version}")
    if version < _SINCE["trial"]:
        record |= {"trial": 1, "tags": []}
    if (trial := _field(record, "trial", int)) < 1:
        raise ValueError(f"'trial' must be at least 1, got {trial}")
    if not all(isinstance(tag, str) for tag in _field(record, "tags", list)):
        raise TypeError("'tags' must contain only strings")
    if version >= _SINCE["previous"] and not _DIGEST.fullmatch(_field(record, "previous", str)):
        raise ValueError("'previous' is not a SHA-256 in hex")


def _require_score(record: Mapping[str, Any], status: VerificationStatus) -> None:
    """Raise ``ValueError`` if ``passed`` or ``score`` does not match the status."""
    is_scored = status in {VerificationStatus.PASSED, VerificationStatus.FAILED}
    passed = status is VerificationStatus.PASSED
    wanted = {"passed": passed, "score": 1.0 if passed else 0.0} if is_scored else {}
    for name, kind in (("passed", bool), ("score", float)):
        value = record.get(name)
        is_right = (type(value), value) == (kind, wanted[name]) if name in wanted else name not in record
        if not is_right:
            raise ValueError(f"{name!r} is {value!r}, which contradicts the status {status.value!r}")


def _require_failure(record: Mapping[str, Any], status: VerificationStatus) -> None:
    """Raise ``ValueError`` if the failure fields do not match the status."""
    names = ("failure_reason", "failure_phase", "failure_message")
    if status in {VerificationStatus.PASSED, VerificationStatus.PENDING}:
        if found := [name for name in names if name in record]:
            raise ValueError(f"{found[0]!r} is not allowed with the status {status.value!r}")
        return
    reason, phase, _ = (_field(record, name, str) for name in names)
    FailurePhase(phase)
    if (FailureReason(reason) in INFRASTRUCTURE_REASONS) is not (status is VerificationStatus.ERROR):
        raise ValueError(f"the reason {reason!r} contradicts the status {status.value!r}")


def require_shallow(value: Any) -> None:
    """Raise ``ValueError`` if lists and objects are nested in ``value`` deeper than ``MAX_DEPTH``."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"more than {MAX_DEPTH} levels of lists and objects")


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Convert ``pairs`` to a dict, for ``json.loads``. Raises ``ValueError`` for a duplicate key."""
    unique = dict(pairs)
    if len(unique) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key {twice[:80]!r}")
    return unique


def _assurance(record: Mapping[str, Any], status: VerificationStatus) -> Assurance | None:
    """Return the assurance. A pass without one is refused, because it would count as better than it is."""
    if "assurance" in record or status is VerificationStatus.PASSED:
        return Assurance(_field(record, "assurance", str))
    return None


def comparable(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``record`` without the keys that may differ between two correct runs of the same task.

    Two runs are equal if the sets of their comparable records are equal, since a journal is in the order in which tasks
    finished. The keys in :data:`VOLATILE` are dropped, at any depth of provenance and metadata.
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
        raise TypeError(f"{name!r}: expected {kind.__name__}, got {type(value).__name__}")
    return value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not valid JSON")
