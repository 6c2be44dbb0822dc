"""Run directories with any number of invented records, written by the code that writes real run directories."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from securebench.candidates.store import CANDIDATES, CandidateStore
from securebench.errors import FailurePhase, FailureReason
from securebench.results.read import read_run
from securebench.results.records.chain import line_hash
from securebench.results.records.commitment import Commitment
from securebench.results.records.record import (
    Assurance,
    Failure,
    Output,
    TaskRecord,
    VerificationStatus,
    candidate_fields,
)
from securebench.results.records.redaction import Redactor
from securebench.results.records.trajectory import TRAJECTORIES, keep_trajectory, trajectory_file
from securebench.results.run_directory.closing import Closing
from securebench.results.run_directory.files import JOURNAL
from securebench.results.run_directory.header import RunHeader
from securebench.results.run_directory.journal import Journal
from securebench.results.summary import RunEnd
from securebench.tasks import CandidateKind
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from securebench.resources import JsonValue
    from securebench.results.records.record import RecordEntry

RUN_ID: Final = "synthetic"
BENCHMARK_ID: Final = "made-up"
FAMILIES: Final = ("short_answer", "multiple_choice", "code_completion")

_STATUS: Final = VerificationStatus
_WHY: Final = {
    _STATUS.FAILED: Failure(FailureReason.WRONG_ANSWER, FailurePhase.VERIFY, "expected another answer"),
    _STATUS.ERROR: Failure(FailureReason.ENGINE_UNAVAILABLE, FailurePhase.PRODUCE, "the engine does not answer"),
}
_DIGEST: Final = "ab" * 32
_ANSWER: Final = "Answer: 42\n"


def header(
    planned: int, *, run_id: str = RUN_ID, pack_tasks: int | None = None, trials: int = 1, **sections: JsonValue
) -> RunHeader:
    """Return the header of a run of ``planned`` trials, with ``trials`` trials of each task.

    The pack has ``pack_tasks`` tasks, by default as many as the run. ``sections`` are added to the decisive sections of
    the header, or replace them.
    """
    tasks = planned // trials if pack_tasks is None else pack_tasks
    decisive: dict[str, JsonValue] = {
        "run_id": run_id,
        "benchmark": {"id": BENCHMARK_ID, "version": "1"},
        "pack": {"commitment": _DIGEST, "public_digest": _DIGEST, "tasks": tasks},
        "trials": trials,
        "harness": {"type": "command", "digest": _DIGEST, "env": {}},
        "verifiers": {family: {"version": "1"} for family in FAMILIES},
        "verification": {"disallow_dangerous_commands": True, "deny_commands": []},
        "limits": {"memory": 1073741824, "pids": 256, "cpus": 1.0},
        "sandbox": {"driver": "oci", "runtime": "crun", "weaker": ["memory"]},
        "framework": {"version": "0.1.0", "digest": _DIGEST},
        **sections,
    }
    information: dict[str, JsonValue] = {
        "config_digest": _DIGEST,
        "planned": planned,
        "planned_tasks": planned // trials,
        "planned_families": dict(Counter(FAMILIES[number % len(FAMILIES)] for number in range(planned // trials))),
        "planned_digest": _DIGEST,
        "workers": 2,
        "engine": {"version": "1.8.1", "enforced": ["network", "capabilities", "seccomp"]},
    }
    return RunHeader(
        decisive=decisive, images={"securebench/python:3.11": f"sha256:{_DIGEST}"}, information=information
    )


def record(number: int = 0, status: VerificationStatus = _STATUS.PASSED, **changes: Any) -> TaskRecord:
    """Return the record of task ``number``. ``changes`` replace fields, except that ``provenance`` is merged."""
    is_scored = status in {_STATUS.PASSED, _STATUS.FAILED}
    family = changes.get("task_type", FAMILIES[number % len(FAMILIES)])
    candidate: dict[str, JsonValue] = candidate_fields(None, None)
    provenance: dict[str, JsonValue] = {
        "attempt": 1,
        "tries": {"preflight": 1, "produce": 1, "verify": 1},
        "started_at": f"2026-11-22T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z",
        "durations": {"preflight": 0.01, "produce": 2.0 + number % 7, "verify": 0.5, "total": 2.5 + number % 7},
        "pack": {"commitment": _DIGEST, "public_digest": _DIGEST},
        "row": {"commitment": _DIGEST, "public_digest": _DIGEST},
        "harness": {"type": "command", "digest": _DIGEST},
        "framework": {"version": "0.1.0", "digest": _DIGEST},
        "driver": {
            "name": "oci",
            "runtime": "crun",
            "version": "1.8.1",
            "enforced": ["network", "capabilities", "no-new-privileges", "seccomp", "read-only-root", "pids"],
            "weaker": ["memory"],
        },
        "image": {"reference": "securebench/python:3.11", "id": f"sha256:{_DIGEST}"},
        "verifier": None if status is _STATUS.PENDING else {"family": family, "version": "1"},
        "usage": {"input_tokens": 1000 + number % 100, "output_tokens": 100, "turns": 3, "cost_usd": 0.01},
        "spent": {"input_tokens": 1000 + number % 100, "output_tokens": 100, "turns": 3, "cost_usd": 0.01},
    }
    fields: dict[str, Any] = {
        "run_id": RUN_ID,
        "task_id": f"{BENCHMARK_ID}/task-{number:05}",
        "benchmark_id": BENCHMARK_ID,
        "task_type": family,
        "status": status,
        "candidate": {
            **candidate,
            "candidate_text": _ANSWER,
            "candidate_digest": hashlib.sha256(_ANSWER.encode()).hexdigest(),
            "candidate_redacted": False,
        },
        "producer": Output(stdout="thinking...\nAnswer: 42\n", metadata={"harness": "command", "exit_code": 0}),
        "verifier": Output(metadata={"verifier": family, "version": "1", "phase": "verdict"}) if is_scored else None,
        "resource_summary": [
            {"name": "question", "visibility": "public", "kind": "value", "value": f"What is {number} times nothing?"},
            {"name": "answer", "visibility": "hidden", "kind": "value", "value": "<redacted>"},
        ],
        "failure": _WHY.get(status),
        "assurance": Assurance.FULL if is_scored else None,
        "provenance": provenance,
    }
    extra = changes.pop("provenance", {})
    return TaskRecord(**{**fields, **changes, "provenance": {**provenance, **extra}})


def records(count: int, *, pass_rate: float = 0.7, seed: int = 0) -> Iterator[TaskRecord]:
    """Yield the records of ``count`` tasks: a share of ``pass_rate`` passes, about 1 % are errors, the rest fails."""
    chance = random.Random(seed)
    for number in range(count):
        drawn = chance.random()
        status = _STATUS.PASSED if drawn < pass_rate else _STATUS.ERROR if drawn > 0.99 else _STATUS.FAILED
        yield record(number, status)


def write_run(
    directory: Path, given: Iterable[TaskRecord] | int, head: RunHeader | None = None, *, closed: bool = True
) -> Path:
    """Write the directory of a run. ``given`` is its records, or the number of records to invent.

    If ``closed``, the run is closed: as interrupted if ``head`` plans more trials than there are records, otherwise as
    finished.
    """
    directory.mkdir(parents=True, exist_ok=True)
    items = list(records(given) if isinstance(given, int) else given)
    head = head or header(len(items), run_id=items[0].run_id if items else RUN_ID)
    with mock.patch.object(os, "fsync"):
        Commitment.new().write(directory)
        head.write(directory)
        with SyntheticJournal(directory) as journal:
            for item in items:
                journal.append(item)
        if closed:
            close_run(directory)
    return directory


class SyntheticJournal(Journal):
    """The journal of a synthetic run. Creating it reopens the run."""

    def __init__(self, directory: Path) -> None:
        head = reopen(directory)
        self._run = head.run_digest
        super().__init__(directory, head)

    def append(self, record: TaskRecord) -> RecordEntry:
        """Append a record, with the digest of this run in its provenance."""
        return super().append(replace(record, provenance={**record.provenance, "run": self._run}))


def reopen(directory: Path) -> RunHeader:
    """Remove the closing from the header of a run, and return the header."""
    head = replace(read_run(directory).header, closing=None)
    head.write(directory)
    return head


def forge(directory: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Apply ``change`` to the records of a run and recompute their hash chain, as a forger without a key would."""
    head = reopen(directory)
    items = [json.loads(line) for line in (directory / JOURNAL).read_bytes().splitlines()]
    change(items)
    previous, lines = head.genesis, []
    for number, item in enumerate(items):
        lines.append(json.dumps({**item, "sequence": number, "previous": previous}).encode())
        previous = line_hash(lines[-1])
    (directory / JOURNAL).write_bytes(b"".join(line + b"\n" for line in lines))


def close_run(directory: Path, ending: RunEnd | None = None) -> None:
    """Close a run: by default as finished if every planned trial has a record, or else as interrupted."""
    run = read_run(directory)
    summary, tally = run.counted()
    usual = RunEnd.INTERRUPTED if summary.total.not_run else RunEnd.FINISHED
    closing = Closing.of(tally, run.planned, (ending or usual).value, directory)
    run.header.closed(closing).write(directory)


def sealed_text(directory: Path, text: str, shown: str | None = None) -> dict[str, JsonValue]:
    """Seal a text candidate in a run, and return the fields of its record. ``shown`` is the text in the record."""
    artifact = CandidateStore(directory / CANDIDATES).seal_bytes(CandidateKind.TEXT, text.encode(), text)
    return candidate_fields(artifact, text if shown is None else shown, redacted=shown not in {None, text})


def shown_patch(text: str) -> dict[str, JsonValue]:
    """Return the candidate fields of a record with a patch that was not sealed in a run."""
    fields = candidate_fields(None, None)
    return {**fields, "candidate_patch": text, "candidate_digest": _DIGEST, "candidate_redacted": True}


def sealed_tree(directory: Path, tree: Path) -> dict[str, JsonValue]:
    """Seal a workspace in a run, and return the fields of its record."""
    artifact = CandidateStore(directory / CANDIDATES).seal_tree(CandidateKind.WORKSPACE, tree)
    return candidate_fields(artifact, None)


def trajectory(directory: Path, task_id: str, *steps: JsonValue) -> dict[str, JsonValue]:
    """Write the trajectory of a task, and return the provenance of its record."""
    directory.mkdir(parents=True, exist_ok=True)
    path = trajectory_file(directory / TRAJECTORIES, TrialId(task_id).directory)
    return {"trajectory": keep_trajectory(path, "\n".join(map(json.dumps, steps)), Redactor())}
