"""Errors: three separate kinds, with codes and hints."""

from __future__ import annotations

import pytest

from securebench.errors import (
    CandidateError,
    ConfigError,
    DiskFullError,
    EngineError,
    FailurePhase,
    FailureReason,
    ImageError,
    InfrastructureError,
    PathPolicyError,
    Problem,
    SourceLocation,
    StorageError,
)


def test_the_three_kinds_are_apart() -> None:
    """Configuration, candidate and infrastructure errors are not subclasses of each other."""
    kinds = (ConfigError, CandidateError, InfrastructureError)
    assert not any(issubclass(one, other) for one in kinds for other in kinds if one is not other)
    assert issubclass(PathPolicyError, ConfigError)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (InfrastructureError, FailureReason.SANDBOX_FAILED),
        (EngineError, FailureReason.ENGINE_UNAVAILABLE),
        (ImageError, FailureReason.IMAGE_UNAVAILABLE),
        (DiskFullError, FailureReason.OUT_OF_DISK),
        (StorageError, FailureReason.STORAGE_FAILED),
    ],
)
def test_infrastructure_errors_know_their_reason(kind: type[InfrastructureError], reason: FailureReason) -> None:
    """Each class of infrastructure error has a failure reason and a default code. The text of an error has the code."""
    error = kind("it broke", hint="mend it")
    assert error.reason is reason
    assert str(error) == f"it broke [{kind.default_code}]\n    hint: mend it"


def test_a_problem_says_where_what_and_what_next() -> None:
    """A problem's text is its file, line, column and pointer, then the message, then the code and the hint."""
    where = SourceLocation("pack/tasks.jsonl", 3, 17, "/input/choices")
    problem = Problem("field-missing", "choices is missing", where, "add it")
    assert str(problem) == (
        "pack/tasks.jsonl:3:17 (/input/choices): choices is missing [field-missing]\n    hint: add it"
    )
    assert str(SourceLocation("f", 3)) == "f:3"


def test_a_config_error_carries_every_problem() -> None:
    """The text of an error lists all its problems in order. An error made from one message has one problem."""
    two = (Problem("a-b", "first"), Problem("c-d", "second"))
    assert str(ConfigError(problems=two)) == "first [a-b]\nsecond [c-d]"
    assert ConfigError(problems=two).code == "a-b"
    assert [problem.message for problem in ConfigError("only").problems] == ["only"]


def test_a_candidate_error_has_reason_and_phase() -> None:
    """A candidate error has a failure reason, a phase and a message."""
    error = CandidateError(FailureReason.CANDIDATE_EMPTY, "nothing there", phase=FailurePhase.SEAL)
    assert (error.reason, error.phase, error.message) == ("candidate_empty", "seal", "nothing there")
