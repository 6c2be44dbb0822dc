"""A run whose texts attack its report: they try to become part of the page, load something or look like a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import synthetic_run
from securebench.errors import FailurePhase, FailureReason
from securebench.results.records.record import Failure, Output, VerificationStatus, candidate_fields
from securebench.testing.attacks.records import ATTACKS, MARK, TEXT

__all__ = ["MARK", "TEXT", "write_hostile_run"]

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.resources import JsonValue
    from securebench.results.records.record import TaskRecord


def write_hostile_run(directory: Path) -> Path:
    """Write a run of failed and passed tasks in which every text that an agent or a pack can choose is an attack."""
    harness: JsonValue = {"type": "command", "name": TEXT[:200], "digest": "ab" * 32, "env": {}}
    agent: JsonValue = {"program": TEXT, "version": TEXT, "model": TEXT, "provider": TEXT, "endpoint": TEXT}
    header = synthetic_run.header(len(ATTACKS) + 2, harness=harness, agent=agent).with_problem(TEXT)
    directory.mkdir(parents=True)
    return synthetic_run.write_run(directory, _records(directory), header)


def _records(directory: Path) -> Iterator[TaskRecord]:
    for number, attack in enumerate(ATTACKS):
        status = VerificationStatus.FAILED if number % 4 else VerificationStatus.PASSED
        task_id = f"{attack[:150]} {number}"
        failure = Failure(FailureReason.WRONG_ANSWER, FailurePhase.VERIFY, TEXT)
        patch = "".join(f"{sign}{line}\n" for line in TEXT.split("\n") for sign in "+-@ ")
        steps = synthetic_run.trajectory(directory, task_id, {"type": attack, attack: [TEXT]}, TEXT)
        usage = {"relay": {"models": {attack: 3}}, "input_tokens": 10}
        driver = {"name": attack, "runtime": attack, "version": attack, "enforced": [attack], "weaker": [attack]}
        yield synthetic_run.record(
            number,
            status,
            task_id=task_id,
            tags=(attack,),
            candidate={
                **candidate_fields(None, None),
                "candidate_redacted": True,
                ("candidate_patch" if number % 2 else "candidate_text"): patch,
                "candidate_digest": "ab" * 32,
            },
            producer=Output(stdout=TEXT, stderr=TEXT, metadata={"harness": "command", attack: TEXT}),
            verifier=Output(stdout=TEXT, metadata={"phase": attack, attack: TEXT, "violations": [TEXT]}),
            resource_summary=[{"name": attack, "visibility": "public", "kind": "value", "value": TEXT}],
            failure=None if status is VerificationStatus.PASSED else failure,
            provenance={**steps, "usage": usage, "spent": usage, "driver": driver},
        )
