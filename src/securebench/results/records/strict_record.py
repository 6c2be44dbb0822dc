"""Read a record strictly: refuse a record that is incomplete or contradicts itself."""

from __future__ import annotations

import hashlib
import re
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import INFRASTRUCTURE_REASONS, FailurePhase, FailureReason
from securebench.resources import REDACTED
from securebench.results.records.record import (
    RECORD_VERSION,
    Assurance,
    Failure,
    Output,
    RecordEntry,
    TaskRecord,
    VerificationStatus,
    recorded_candidate,
)
from securebench.results.records.strict_json import strict_loads
from securebench.results.records.usage import read_usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ENTRY_MESSAGE: Final = 300
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


READABLE_VERSIONS: Final = (2, 3, RECORD_VERSION)
"""The versions that :func:`read_record` accepts."""

_SCORED: Final = (VerificationStatus.PASSED, VerificationStatus.FAILED)
_VERIFIER: Final = ("verifier_stdout", "verifier_stderr", "verifier_metadata")
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
"""The version that introduced each of these fields."""


def read_record(line: bytes) -> dict[str, Any]:
    """Parse a line of the journal. A record of version 2 is returned as trial 1 without tags.

    References to other records, such as ``previous``, are not compared with those records. Some contradictions within
    the record are found only by :func:`contradiction`.

    Raises ``ValueError`` or ``TypeError`` if a value is missing, is invalid, or contradicts the status. Duplicate keys
    are refused, because two readers could use different values.
    """
    record = strict_loads(line)
    if not isinstance(record, dict):
        raise TypeError(f"expected a JSON object, got {type(record).__name__}")
    if (version := _field(record, "record_version", int)) not in READABLE_VERSIONS:
        raise ValueError(f"'record_version' {version} is not supported")
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


def read_task_record(line: bytes) -> TaskRecord:
    """Return the record in a line that :meth:`TaskRecord.line` wrote. ``sequence`` and ``previous`` are left out.

    Raises the errors of :func:`read_record`, and ``KeyError`` for a missing field.
    """
    record = read_record(line)
    if why := contradiction(record):
        raise ValueError(why)
    return task_record_of(record)


def task_record_of(record: Mapping[str, Any]) -> TaskRecord:
    """Convert the result of :func:`read_record` to a :class:`TaskRecord`, which lacks ``sequence`` and ``previous``.

    Raises the errors of :func:`read_record`, and ``KeyError`` for a missing field.
    """
    status = VerificationStatus(record["verification_status"])
    return TaskRecord(
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
        message=_shortened(str(record.get("failure_message", ""))),
        usage=read_usage(provenance.get("spent") or provenance.get("usage")),
        can_be_verified=status is VerificationStatus.ERROR
        and record.get("failure_phase") == FailurePhase.VERIFY
        and record.get("candidate_digest") is not None,
        candidate_digest=record.get("candidate_digest"),
        assurance=_assurance(record, status),
        agent_stderr=last_line(str(record.get("producer_stderr", ""))) if "failure_reason" in record else "",
        judge_usage=read_usage(provenance.get("judge_usage")),
    )


def last_line(text: str) -> str:
    """Return the last line of ``text`` that is not blank, truncated; empty if there is none."""
    lines = text.strip().splitlines()
    return _shortened(lines[-1].strip()) if lines else ""


def _shortened(text: str) -> str:
    return text if len(text) <= _ENTRY_MESSAGE else f"{text[: _ENTRY_MESSAGE - 1]}…"


def _require_fields_of(record: dict[str, Any], version: int) -> None:
    """Raise ``ValueError`` or ``TypeError`` if a field that only some versions have is invalid or not allowed.

    If ``version`` is 2, also change ``record``: add the fields that version 3 introduced.
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
    is_scored = status in _SCORED
    passed = status is VerificationStatus.PASSED
    wanted = {"passed": passed, "score": 1.0 if passed else 0.0} if is_scored else {}
    for name, kind in (("passed", bool), ("score", float)):
        value = record.get(name)
        is_right = (type(value), value) == (kind, wanted[name]) if name in wanted else name not in record
        if not is_right:
            raise ValueError(f"{name!r} is {value!r}, which contradicts the status {status.value!r}")


def _require_failure(record: Mapping[str, Any], status: VerificationStatus) -> None:
    """Raise ``ValueError`` or ``TypeError`` if the failure fields do not match the status."""
    names = ("failure_reason", "failure_phase", "failure_message")
    if status in {VerificationStatus.PASSED, VerificationStatus.PENDING}:
        if found := [name for name in names if name in record]:
            raise ValueError(f"{found[0]!r} is not allowed with the status {status.value!r}")
        return
    reason, phase, _ = (_field(record, name, str) for name in names)
    FailurePhase(phase)
    if (FailureReason(reason) in INFRASTRUCTURE_REASONS) is not (status is VerificationStatus.ERROR):
        raise ValueError(f"the reason {reason!r} contradicts the status {status.value!r}")


def contradiction(record: Mapping[str, Any]) -> str:
    """Return how a record contradicts itself, or an empty string if it does not.

    The record must be one that :func:`read_record` returned. Records of versions before 4 may contradict themselves.
    """
    return next(chain(_candidate_contradictions(record), _verifier_contradictions(record)), "")


def _candidate_contradictions(record: Mapping[str, Any]) -> Iterator[str]:
    digest, redacted, text = (record.get(name) for name in ("candidate_digest", "candidate_redacted", "candidate_text"))
    workspace = record.get("candidate_workspace")
    if digest is None and any(record.get(name) is not None for name in (*_CANDIDATES, "candidate_redacted")):
        yield "there is a candidate, but no 'candidate_digest'"
    if digest is not None and not isinstance(redacted, bool):
        yield "'candidate_redacted' is neither true nor false"
    if workspace is not None and workspace != f"sha256:{digest}":
        yield "'candidate_workspace' does not match 'candidate_digest'"
    if isinstance(text, str) and redacted is False and hashlib.sha256(_utf8(text)).hexdigest() != digest:
        yield "'candidate_digest' is not the digest of 'candidate_text'"


def _verifier_contradictions(record: Mapping[str, Any]) -> Iterator[str]:
    status, judged = VerificationStatus(record["verification_status"]), "verifier_metadata" in record
    if any((name in record) is not judged for name in (*_VERIFIER, "assurance")):
        yield "'assurance' and the fields of the verifier's output must be either all present or all absent"
    verifier = record["provenance"].get("verifier")
    if (status is VerificationStatus.PENDING) is not (verifier is None) and "failure_reason" not in record:
        yield f"the status is {status.value!r}, which contradicts 'provenance.verifier'"
    if judged and not (isinstance(verifier, dict) and verifier.get("family") == record.get("task_type")):
        yield "'provenance.verifier' is missing or belongs to another family"
    metadata, reason = record.get("verifier_metadata"), record.get("failure_reason")
    reported = metadata.get("reason", reason) if isinstance(metadata, dict) else reason
    if reported != reason and status in _SCORED and (reported is None or reported in [*FailureReason]):
        yield f"the verifier's reason is {reported!r}, but 'failure_reason' is {reason!r}"


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _assurance(record: Mapping[str, Any], status: VerificationStatus) -> Assurance | None:
    """Return the assurance; ``None`` if the record has none.

    Raises ``TypeError`` for a pass without an assurance, and ``ValueError`` for an unknown assurance.
    """
    if "assurance" in record or status is VerificationStatus.PASSED:
        return Assurance(_field(record, "assurance", str))
    return None


def _field(record: Mapping[str, Any], name: str, kind: type) -> Any:
    value = record.get(name)
    if type(value) is not kind:
        raise TypeError(f"{name!r}: expected {kind.__name__}, got {type(value).__name__}")
    return value
