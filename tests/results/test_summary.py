"""The summary of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.samples import STATUS, record
from securebench.results.records.record import Assurance, RecordEntry, VerificationStatus
from securebench.results.records.strict_record import read_entry
from securebench.results.records.usage import Usage
from securebench.results.summary import SHOWN_FAILURES, Counts, RunStatus, TesterRunSummary, count, total


def entries(*statuses: VerificationStatus, family: str = "short_answer") -> list[RecordEntry]:
    """Return a record entry for each status."""
    return [read_entry(record(f"t{n}", s, task_type=family).line(n)) for n, s in enumerate(statuses)]


@pytest.mark.parametrize(
    ("counts", "status"),
    [
        (Counts(), RunStatus.COMPLETE),  # zero tasks
        (Counts(tasks=2, pending=2), RunStatus.PENDING),  # none verified
        (Counts(tasks=2, errors=2), RunStatus.PENDING),
        (Counts(tasks=2), RunStatus.PENDING),  # none has run
        (Counts(tasks=3, passed=1, failed=2), RunStatus.COMPLETE),  # all verified
        (Counts(tasks=2, failed=2), RunStatus.COMPLETE),
        (Counts(tasks=3, passed=1, pending=2), RunStatus.PARTIAL),
        (Counts(tasks=3, failed=1, errors=2), RunStatus.PARTIAL),
        (Counts(tasks=3, passed=1), RunStatus.PARTIAL),
    ],
)
def test_verification_status(counts: Counts, status: RunStatus) -> None:
    """The status says whether all, some or none of the planned trials have a verdict. No trials at all are complete."""
    assert counts.verification_status is status


@pytest.mark.parametrize(
    ("counts", "scored", "rate"),
    [
        (Counts(), 0, None),
        (Counts(tasks=5, errors=2, pending=3), 0, None),
        (Counts(tasks=6, passed=1, failed=1, errors=2, pending=2), 2, 0.5),
        (Counts(tasks=3, passed=3), 3, 1.0),
        (Counts(tasks=3, failed=3), 3, 0.0),
    ],
)
def test_pass_rate_leaves_errors_out_and_says_of_how_many(counts: Counts, scored: int, rate: float | None) -> None:
    """The pass rate leaves out errors and pending tasks, and the number of scored trials is reported with it (L15)."""
    assert (counts.scored, counts.pass_rate) == (scored, rate)
    assert (counts.to_json()["scored"], counts.to_json()["pass_rate"]) == (scored, rate)


def test_usage_is_that_of_the_records() -> None:
    """The usage in records is summed, and left out of the JSON if no record has any."""
    used = [replace(entry, usage=Usage(input_tokens=5, turns=1)) for entry in entries(STATUS.PASSED, STATUS.FAILED)]
    summary = TesterRunSummary(
        run_id="r",
        benchmark_id="b",
        agent="a",
        output_dir=Path(),
        total=Counts(),
        families={},
        usage=count({}, used).usage,
    )
    assert summary.to_json()["usage"] == {"input_tokens": 10, "output_tokens": 0, "turns": 2}
    assert "usage" not in replace(summary, usage=count({}, entries(STATUS.PASSED)).usage).to_json()


@given(st.lists(st.sampled_from(STATUS), max_size=60), st.integers(0, 10))
def test_counts_are_those_of_the_records(statuses: list[VerificationStatus], missing: int) -> None:
    """Every record is counted once, and planned tasks without a record are counted as not run (L20, M14)."""
    found = entries(*statuses)
    planned = {f"t{n}": "short_answer" for n in range(len(statuses) + missing)}
    families, failures, *_ = count(planned, found)
    summed = total(families.values())
    assert summed.passed == statuses.count(STATUS.PASSED)
    assert summed.failed == statuses.count(STATUS.FAILED)
    assert summed.errors == statuses.count(STATUS.ERROR)
    assert summed.pending == statuses.count(STATUS.PENDING)
    assert summed.not_run == missing
    assert summed.tasks == len(planned)
    assert len(failures) == min(SHOWN_FAILURES, summed.failed + summed.errors)


def test_families_are_counted_apart() -> None:
    """Records are counted by family, and families are sorted by name."""
    found = [*entries(STATUS.PASSED, family="b"), read_entry(record("x", STATUS.FAILED, task_type="a").line(9))]
    families, *_ = count({"t0": "b", "x": "a", "y": "a"}, found)
    assert list(families) == ["a", "b"]
    assert (families["a"].tasks, families["a"].failed, families["a"].not_run) == (2, 1, 1)
    assert families["b"].pass_rate == 1.0


def test_passes_are_counted_by_what_they_rest_on() -> None:
    """Passes are counted by assurance, for each family and in total. Failures are not."""
    kinds = (Assurance.EXIT_CODE, Assurance.FULL, Assurance.EXIT_CODE)
    passed = [replace(entry, assurance=kind) for entry, kind in zip(entries(*[STATUS.PASSED] * 3), kinds, strict=True)]
    failed = replace(*entries(STATUS.FAILED, family="repo_patch"), task_id="f", assurance=Assurance.EXIT_CODE)
    planned = {"t0": "short_answer", "t1": "short_answer", "t2": "short_answer", "f": "repo_patch"}
    families, *_ = count(planned, [*passed, failed])
    assert families["short_answer"].to_json()["passed_by_assurance"] == {"full": 1, "exit_code": 2}
    assert families["repo_patch"].to_json()["passed_by_assurance"] == {}
    assert total(families.values()).passed_by_assurance == {Assurance.FULL: 1, Assurance.EXIT_CODE: 2}


def test_nothing_planned() -> None:
    """A run without planned tasks has no families, no failures and a total of zero."""
    families, failures, *_ = count({}, [])
    assert (families, failures, total(families.values())) == ({}, (), Counts())


def test_json() -> None:
    """The JSON of a summary has its status, its counts, its families and its problems."""
    summary = TesterRunSummary(
        run_id="r",
        benchmark_id="b",
        agent="a",
        output_dir=Path("/out"),
        total=Counts(tasks=2, passed=1),
        families={"short_answer": Counts(tasks=2, passed=1)},
        problems=("the engine is gone",),
    )
    reported = json.loads(json.dumps(summary.to_json()))
    assert reported["verification_status"] == "partial"
    assert (reported["tasks"], reported["passed"], reported["not_run"], reported["scored"]) == (2, 1, 1, 1)
    assert reported["families"]["short_answer"]["pass_rate"] == 1.0
    assert reported["problems"] == ["the engine is gone"]
    assert (summary.tasks, summary.passed, summary.failed, summary.errors, summary.pending) == (2, 1, 0, 0, 0)
    assert summary.pass_rate == 1.0
