"""A record that was read from an untrusted file, with typed and checked values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import FailurePhase, FailureReason
from securebench.limits import MIB
from securebench.results.records.record import Assurance, Output, VerificationStatus
from securebench.results.records.strict_json import MAX_DEPTH, require_shallow
from securebench.results.records.strict_record import entry_of, read_record
from securebench.results.records.trajectory import TRAJECTORIES
from securebench.results.records.usage import Usage, read_usage
from securebench.tasks import CandidateKind
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.results.records.record import RecordEntry

MAX_LINE: Final = 48 * MIB
"""Maximum size of a record in bytes.

A record contains public values of the row (up to 4 MiB) and about a million characters of the candidate, each of which
takes up to 12 bytes when it is escaped.
"""

_MAX_VALUES: Final = 500_000
"""Maximum total number of lists, objects and commas in a record of more than 1 MiB.

An empty list has two bytes in a file, but fifty in memory.
"""

_LONGEST: Final = 10**9
"""The longest accepted duration of a task, in seconds: thirty years."""

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
_FIELD_OF_KIND: Final = {
    CandidateKind.TEXT: "candidate_text",
    CandidateKind.PATCH: "candidate_patch",
    CandidateKind.WORKSPACE: "candidate_workspace",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTask:
    """One record of a run. All texts are untrusted: show them through :mod:`securebench.printable`.

    ``trial`` counts from 1. ``passed`` is ``None`` without a verdict. ``reason``, ``phase`` and ``message`` say why a
    task failed or ended in an error. ``candidate_text`` is the recorded text, code or patch, which is incomplete if
    ``candidate_redacted``; :meth:`RecordedRun.candidate` has the sealed candidate. ``raw`` is the whole record.
    """

    sequence: int
    run_id: str
    benchmark_id: str
    task_id: str
    family: str
    status: VerificationStatus
    attempt: int
    trial: int = 1
    tags: tuple[str, ...] = ()
    assurance: Assurance | None = None
    reason: FailureReason | None = None
    phase: FailurePhase | None = None
    message: str = ""
    started_at: datetime | None = None
    """When the attempt started, in UTC."""
    duration_seconds: float | None = None
    """The time from the start of the attempt to its record."""
    usage: Usage | None = None
    """The usage of the last try."""
    spent: Usage | None = None
    """The usage of all tries and attempts of the trial."""
    models: tuple[str, ...] = ()
    """The models that answered, according to the relay, or else the configured model."""
    candidate_kind: CandidateKind | None = None
    """The kind of the candidate: ``TEXT`` also for code, ``None`` without a candidate."""
    candidate_digest: str | None = None
    candidate_text: str | None = None
    candidate_redacted: bool = False
    producer: Output = field(default_factory=Output)
    """The agent's output and metadata."""
    verifier: Output | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict)
    entry: RecordEntry
    """The summary of this record that a run keeps in memory."""

    @property
    def passed(self) -> bool | None:
        """Whether the task passed; ``None`` without a verdict."""
        return self.raw.get("passed")

    @property
    def id(self) -> TrialId:
        """The task and the number of its trial: unique in a run."""
        return TrialId(self.task_id, self.trial)

    @property
    def trajectories(self) -> dict[str, str]:
        """The digests (sha256, hex) of the trajectories of all tries of this attempt, by their file names."""
        tries = self.provenance.get("failed_tries")
        described = [object_of(item).get("trajectory") for item in (tries if isinstance(tries, list) else ())]
        found = {}
        for item in map(object_of, (self.provenance.get("trajectory"), *described)):
            path, digest = item.get("path"), item.get("sha256")
            if isinstance(path, str) and isinstance(digest, str) and path.startswith(f"{TRAJECTORIES}/"):
                found[path.removeprefix(f"{TRAJECTORIES}/")] = digest
        return found


def parse_recorded_task(line: bytes) -> RecordedTask:
    """Parse a line of a journal. Time and memory are bounded, whatever it contains.

    Raises ``ValueError``, ``TypeError`` or ``RecursionError`` for an invalid record.
    """
    if len(line) > MAX_LINE:
        raise ValueError(f"the line is longer than {MAX_LINE} bytes")
    if len(line) > MIB and _has_too_many_values(line):
        raise ValueError(f"more than {_MAX_VALUES} values")
    record = read_record(line)
    if line.count(b"{") + line.count(b"[") > MAX_DEPTH:  # with fewer, the nesting cannot be too deep
        require_shallow(record)
    return _recorded(record)


def _has_too_many_values(line: bytes) -> bool:
    """Return whether ``line`` has too many lists, objects and commas outside of strings."""
    marks = (b"[", b"{", b",")
    if sum(map(line.count, marks)) <= _MAX_VALUES:
        return False
    count = at = 0
    for string in _STRING.finditer(line):
        count += sum(line.count(mark, at, string.start()) for mark in marks)
        at = string.end()
        if count > _MAX_VALUES:
            return True
    return count + sum(line.count(mark, at) for mark in marks) > _MAX_VALUES


def _recorded(record: dict[str, Any]) -> RecordedTask:
    entry, provenance = entry_of(record), record["provenance"]
    kind = next((kind for kind, name in _FIELD_OF_KIND.items() if record.get(name) is not None), None)
    has_text = kind in {CandidateKind.TEXT, CandidateKind.PATCH}
    durations = object_of(provenance.get("durations"))
    return RecordedTask(
        sequence=entry.sequence,
        run_id=entry.run_id,
        benchmark_id=_text(record, "benchmark_id"),
        task_id=entry.task_id,
        family=entry.task_type,
        status=entry.status,
        trial=entry.trial,
        tags=tuple(record["tags"]),
        attempt=entry.attempt,
        assurance=entry.assurance,
        reason=FailureReason(entry.reason) if entry.reason else None,
        phase=FailurePhase(record["failure_phase"]) if entry.reason else None,
        message=record.get("failure_message", ""),
        started_at=_time(provenance.get("started_at")),
        duration_seconds=_seconds(durations.get("total")),
        usage=entry.usage
        if provenance.get("usage") == provenance.get("spent")
        else read_usage(provenance.get("usage")),
        spent=entry.usage,
        models=_models(provenance),
        candidate_kind=kind,
        candidate_digest=entry.candidate_digest,
        candidate_text=_text(record, _FIELD_OF_KIND[kind]) if kind and has_text else None,
        candidate_redacted=record.get("candidate_redacted") is True,
        producer=_output(record, "producer"),
        verifier=_output(record, "verifier") if "verifier_metadata" in record else None,
        provenance=provenance,
        raw=record,
        entry=entry,
    )


def _output(record: Mapping[str, Any], owner: str) -> Output:
    metadata = record.get(f"{owner}_metadata", {})
    if not isinstance(metadata, dict):
        raise TypeError(f"'{owner}_metadata': expected dict, got {type(metadata).__name__}")
    return Output(stdout=_text(record, f"{owner}_stdout"), stderr=_text(record, f"{owner}_stderr"), metadata=metadata)


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str):
        raise TypeError(f"{name!r}: expected str, got {type(value).__name__}")
    return value


def object_of(value: Any) -> Mapping[str, Any]:
    """Return ``value`` if it is a JSON object, else an empty object: a record may contain anything."""
    return value if isinstance(value, dict) else {}


def answering_models(provenance: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the models that answered. The relay recorded the names that the provider gave."""
    return tuple(object_of(object_of(object_of(provenance.get("usage")).get("relay")).get("models")))


def _models(provenance: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the models that answered, according to the relay, or else the one that the run was configured for."""
    answered = answering_models(provenance)
    configured = object_of(provenance.get("agent")).get("model")
    return answered or ((configured,) if isinstance(configured, str) else ())


def _time(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def _seconds(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= _LONGEST else None
