"""Why a candidate does not pass, as verifiers that run it, or tests of it, raise it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.errors import FailurePhase, FailureReason

if TYPE_CHECKING:
    from securebench.sandboxes.base import CommandResult


class CandidateFailedError(Exception):
    """The reason why a candidate does not pass."""

    def __init__(self, reason: FailureReason, message: str, phase: FailurePhase = FailurePhase.VERIFY) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.phase = phase


def require_own_end(result: CommandResult, seconds: float, what: str) -> None:
    """Raise :class:`CandidateFailedError` if ``what``, which had ``seconds``, was ended from outside."""
    if result.timed_out:
        raise CandidateFailedError(FailureReason.CANDIDATE_TIMEOUT, f"{what} did not end within {seconds:g} seconds")
    if result.out_of_memory:
        raise CandidateFailedError(
            FailureReason.CANDIDATE_OUT_OF_MEMORY, f"{what} used more memory than the sandbox has"
        )
    if result.output_limit_exceeded:
        raise CandidateFailedError(
            FailureReason.CANDIDATE_OUTPUT_LIMIT, f"{what} wrote more output than the sandbox may"
        )
