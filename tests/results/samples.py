"""Sample records and tasks."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from securebench.errors import FailurePhase, FailureReason
from securebench.resources import Resource, ResourceBundle, Visibility
from securebench.results.records.record import Assurance, Failure, Output, TaskRecord, VerificationStatus
from securebench.results.run_directory.header import RunHeader
from securebench.tasks import SecureBenchTask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.resources import JsonValue

    Fields = Mapping[str, JsonValue]

STATUS = VerificationStatus

HEAD = RunHeader(
    decisive={
        "run_id": "run",
        "benchmark": {"id": "pack"},
        "pack": {"tasks": 100},
        "trials": 9,
        "harness": {"type": "command"},
    },
    information={"planned": 900, "planned_tasks": 100},
)
"""The header of the run that the records belong to."""


def record(task_id: str = "pack/one", status: VerificationStatus = STATUS.PASSED, **changes: Any) -> TaskRecord:
    """Return a record as a run would write it. ``changes`` replace its fields."""
    failure = {
        STATUS.FAILED: Failure(FailureReason.WRONG_ANSWER, FailurePhase.VERIFY, "not the answer"),
        STATUS.ERROR: Failure(FailureReason.ENGINE_UNAVAILABLE, FailurePhase.PRODUCE, "gone"),
    }.get(status)
    fields: dict[str, Any] = {
        "run_id": "run",
        "task_id": task_id,
        "benchmark_id": "pack",
        "task_type": "short_answer",
        "status": status,
        "candidate": {
            "candidate_text": "42",
            "candidate_patch": None,
            "candidate_workspace": None,
            "candidate_digest": hashlib.sha256(b"42").hexdigest(),
            "candidate_redacted": False,
        },
        "producer": Output(stdout="42\n"),
        "verifier": Output(metadata={"verifier": "short_answer", "version": "1", "phase": "verify"})
        if status in {STATUS.PASSED, STATUS.FAILED}
        else None,
        "resource_summary": [],
        "failure": failure,
        "assurance": Assurance.FULL if changes.get("verifier", status in {STATUS.PASSED, STATUS.FAILED}) else None,
        "provenance": {"attempt": 1, "durations": {"total": 0.5}, "pack": "ab"},
    }
    given = {**fields, **changes}
    verifier = None if status is STATUS.PENDING else {"family": given["task_type"], "version": "1"}
    usual = {"run": HEAD.run_digest, "attempt": 1, "verifier": verifier}
    return TaskRecord(**{**given, "provenance": {**usual, **given["provenance"]}})


def task(
    *, public: dict[str, JsonValue], inputs: dict[str, JsonValue], hidden: dict[str, JsonValue]
) -> SecureBenchTask:
    """Return a task with these values in its lanes."""
    lanes = ((public, Visibility.PUBLIC), (inputs, Visibility.EVALUATION_INPUTS), (hidden, Visibility.HIDDEN))
    resources = [Resource(name, value, lane) for values, lane in lanes for name, value in values.items()]
    return SecureBenchTask("pack/one", "pack", "short_answer", ResourceBundle(tuple(resources)))
