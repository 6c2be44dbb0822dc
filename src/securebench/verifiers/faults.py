"""Failures of a candidate, raised by verifiers that run it or its tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.errors import FailurePhase, FailureReason

if TYPE_CHECKING:
    from securebench.sandboxes.base import CommandResult


class CandidateFailedError(Exception):
    """The candidate fails: why, and in which phase."""

    def __init__(self, reason: FailureReason, message: str, phase: FailurePhase = FailurePhase.VERIFY) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.phase = phase


def require_own_end(result: CommandResult, seconds: float, what: str) -> None:
    """Raise :class:`CandidateFailedError` if ``what`` was stopped by its timeout of ``seconds`` or another limit."""
    if result.timed_out:
        raise CandidateFailedError(FailureReason.CANDIDATE_TIMEOUT, f"{what} did not finish within {seconds:g} seconds")
    if result.out_of_memory:
        raise CandidateFailedError(FailureReason.CANDIDATE_OUT_OF_MEMORY, f"{what} exceeded the sandbox's memory limit")
    if result.output_limit_exceeded:
        raise CandidateFailedError(FailureReason.CANDIDATE_OUTPUT_LIMIT, f"{what} exceeded the sandbox's output limit")
