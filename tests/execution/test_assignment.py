"""Assignments and records stay the same when they are converted to bytes and back."""

from __future__ import annotations

import pytest

from results.samples import STATUS, record
from securebench.errors import FailurePhase, FailureReason
from securebench.execution import History
from securebench.execution.assignment import Assignment
from securebench.results.records.record import Assurance, Failure, Output, TaskRecord
from securebench.results.records.strict_record import read_task_record
from securebench.results.records.usage import Usage


@pytest.mark.parametrize(
    "history",
    [
        History(),
        History(
            trial=3,
            attempt=7,
            spent=Usage(input_tokens=1, turns=2, cost_usd=0.1 + 0.2, requests=3, forgiven=1, bytes=2**40),
            unverified={"candidate_text": "\x1b[31m \ud800 \N{SNOWMAN}", "provenance": {"attempt": 6}},
        ),
    ],
)
def test_an_assignment_comes_back_as_it_was(history: History) -> None:
    """An assignment and its history are equal after conversion to bytes and back. The bytes are plain ASCII."""
    assignment = Assignment("a" * 64, "pack/\ud800 odd", history)
    data = assignment.to_bytes()
    assert data.isascii()
    assert Assignment.from_bytes(data) == assignment


FAILED = Failure(FailureReason.WRONG_ANSWER, FailurePhase.VERIFY, "no")
ERROR = Failure(FailureReason.SANDBOX_FAILED, FailurePhase.VERIFY, "broken")


@pytest.mark.parametrize(
    "sample",
    [
        record(),
        record(trial=4, tags=("easy", "\N{SNOWMAN}")),
        record(status=STATUS.FAILED, failure=FAILED, assurance=Assurance.EXIT_CODE, verifier=Output(stderr="x")),
        record(status=STATUS.ERROR, failure=ERROR, assurance=None, verifier=None),
        record(status=STATUS.PENDING, failure=None, assurance=None, verifier=None),
    ],
)
def test_a_record_comes_back_as_it_was(sample: TaskRecord) -> None:
    """A record that was converted to bytes and back has the same line in the journal."""
    assert read_task_record(sample.line(0)).line(5) == sample.line(5)
