"""The errors of SecureBench, and the fixed set of phases and reasons of failures.

Errors of inputs, of candidates and of the infrastructure are always kept apart::

    SecureBenchError                 code, message, hint: what was wrong and what to do next
    ├── ConfigError                  an input is invalid, such as a row, the tester YAML or a run directory
    │   └── PathPolicyError          a path in such an input is unsafe
    ├── MaterializationError         a task cannot be judged, or its files changed or cannot be written safely
    ├── CandidateError               the agent or its candidate is at fault: scored as a failure, the run continues
    └── InfrastructureError          the machine or a service is at fault: never scored, run again on --resume
        ├── EngineError              the sandbox driver cannot be used, or its engine stopped or does not respond
        ├── ImageError               an image is missing or unusable, or cannot be pulled or built
        ├── DiskFullError            the disk of the engine or of the image store is full
        ├── EgressError              the egress gateway failed or cannot be started
        ├── ProviderError            the model provider refused the key or a request, failed or is unreachable
        └── StorageError             the run directory or another local file cannot be written or read

Every ``code`` has an anchor in ``docs/reference/errors.md``; every :class:`FailureReason` and
:class:`FailurePhase` has one in ``docs/reference/failures.md``. Tests keep both pages complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


class FailurePhase(StrEnum):
    """The phase in which a task failed or ended in an infrastructure error."""

    PREFLIGHT = "preflight"
    """The check of the task before its agent runs."""
    PRODUCE = "produce"
    """The work of the agent on the task."""
    SEAL = "seal"
    """The sealing of the candidate."""
    POLICY = "policy"
    """The check whether the tester's policy allows the commands that a task needs."""
    VERIFY = "verify"
    """The verification of the candidate."""
    RECORD = "record"
    """The writing of the record."""


class FailureReason(StrEnum):
    """Why a task failed or ended in an infrastructure error. A closed set: records contain no other value."""

    # The agent.
    AGENT_EXIT = "agent_exit"
    AGENT_TIMEOUT = "agent_timeout"
    AGENT_OUT_OF_MEMORY = "agent_out_of_memory"
    AGENT_OUTPUT_LIMIT = "agent_output_limit"
    AGENT_WORKSPACE_FULL = "agent_workspace_full"
    AGENT_OUT_OF_BUDGET = "agent_out_of_budget"
    AGENT_REFUSED = "agent_refused"
    # The candidate.
    CANDIDATE_MISSING = "candidate_missing"
    CANDIDATE_EMPTY = "candidate_empty"
    CANDIDATE_TOO_LARGE = "candidate_too_large"
    CANDIDATE_NOT_TEXT = "candidate_not_text"
    UNSAFE_WORKSPACE = "unsafe_workspace"
    # Changes to a repository.
    POLICY_VIOLATION = "policy_violation"
    PATCH_INVALID = "patch_invalid"
    PATCH_DOES_NOT_APPLY = "patch_does_not_apply"
    # Terminal tasks.
    CHECK_FAILED = "check_failed"
    STATE_MISMATCH = "state_mismatch"
    # Text answers.
    WRONG_ANSWER = "wrong_answer"
    AMBIGUOUS_ANSWER = "ambiguous_answer"
    REJECTED_ANSWER = "rejected_answer"
    JUDGE_NO_VERDICT = "judge_no_verdict"
    # Code.
    SYNTAX_ERROR = "syntax_error"
    TESTS_FAILED = "tests_failed"
    CANDIDATE_CRASHED = "candidate_crashed"
    CANDIDATE_TIMEOUT = "candidate_timeout"
    CANDIDATE_OUT_OF_MEMORY = "candidate_out_of_memory"
    CANDIDATE_OUTPUT_LIMIT = "candidate_output_limit"
    PROTOCOL_VIOLATION = "protocol_violation"
    NO_VERDICT = "no_verdict"
    # Policy.
    DANGEROUS_COMMAND_DENIED = "dangerous_command_denied"
    TAMPERED = "tampered"
    # Infrastructure: the record has the status ``error`` and no score.
    ENGINE_UNAVAILABLE = "engine_unavailable"
    IMAGE_UNAVAILABLE = "image_unavailable"
    OUT_OF_DISK = "out_of_disk"
    EGRESS_FAILED = "egress_failed"
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    SANDBOX_FAILED = "sandbox_failed"
    STORAGE_FAILED = "storage_failed"
    TASK_UNUSABLE = "task_unusable"
    """The task cannot be judged, its files cannot be written safely, or they changed during the run."""
    INTERNAL_ERROR = "internal_error"


INFRASTRUCTURE_REASONS: Final = frozenset(
    {
        FailureReason.ENGINE_UNAVAILABLE,
        FailureReason.IMAGE_UNAVAILABLE,
        FailureReason.OUT_OF_DISK,
        FailureReason.EGRESS_FAILED,
        FailureReason.PROVIDER_UNAVAILABLE,
        FailureReason.SANDBOX_FAILED,
        FailureReason.STORAGE_FAILED,
        FailureReason.TASK_UNUSABLE,
        FailureReason.INTERNAL_ERROR,
    }
)
"""The reasons of records whose status is ``error``. All other reasons are those of ``failed`` records."""


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A place in a file: 1-based line and column, and a JSON pointer (``/eval/answer``) where one applies."""

    file: str
    line: int | None = None
    column: int | None = None
    pointer: str = ""

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return f"{place} ({self.pointer})" if self.pointer else place


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of an input: what was found and expected, where, and how to fix it."""

    code: str
    message: str
    location: SourceLocation | None = None
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        hint = f"\n    hint: {self.hint}" if self.hint else ""
        return f"{where}{self.message} [{self.code}]{hint}"


class SecureBenchError(Exception):
    """The base of all errors. ``code`` is stable and documented; ``hint`` says what to do next."""

    default_code: ClassVar[str] = "internal-error"

    def __init__(self, message: str, *, code: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.hint = hint

    def __str__(self) -> str:
        hint = f"\n    hint: {self.hint}" if self.hint else ""
        return f"{self.message} [{self.code}]{hint}"


class ConfigError(SecureBenchError):
    """An input, such as a pack, a tester YAML, an option or a run directory, is invalid or cannot be used.

    ``problems`` has the problems in file order. If there are more than ``MAX_PROBLEMS``, the last one only says how
    many are left out.
    """

    default_code = "config-invalid"

    def __init__(
        self,
        message: str = "",
        *,
        code: str = "",
        hint: str = "",
        location: SourceLocation | None = None,
        problems: Iterable[Problem] = (),
    ) -> None:
        found = tuple(problems) or (Problem(code or self.default_code, message, location, hint),)
        super().__init__(message or found[0].message, code=code or found[0].code, hint=hint)
        self.problems = found

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class PathPolicyError(ConfigError):
    """A path is not allowed: for example, it escapes its root, collides with another path, or is not a regular file."""

    default_code = "path-unsafe"


class MaterializationError(SecureBenchError):
    """A task is unusable: it cannot be judged, its files cannot be written safely, or its files changed."""

    default_code = "materialization-unsafe"


class CandidateError(SecureBenchError):
    """The agent or its candidate is at fault: a scored failure."""

    default_code = "candidate-failed"

    def __init__(self, reason: FailureReason, message: str, *, phase: FailurePhase) -> None:
        super().__init__(message)
        self.reason = reason
        self.phase = phase


class InfrastructureError(SecureBenchError):
    """The machine or a service is at fault: the task has no verdict and runs again on ``--resume``."""

    default_code = "sandbox-failed"
    reason: ClassVar[FailureReason] = FailureReason.SANDBOX_FAILED


class EngineError(InfrastructureError):
    """The sandbox driver cannot be used, or its engine or supervisor stopped or does not respond."""

    default_code = "engine-unavailable"
    reason = FailureReason.ENGINE_UNAVAILABLE


class ImageError(InfrastructureError):
    """An image is missing or unusable, or cannot be pulled or built."""

    default_code = "image-unavailable"
    reason = FailureReason.IMAGE_UNAVAILABLE


class DiskFullError(InfrastructureError):
    """The disk of the engine or of the image store is full."""

    default_code = "out-of-disk"
    reason = FailureReason.OUT_OF_DISK


class EgressError(InfrastructureError):
    """The egress of a sandbox, to a provider or to allowed domains, failed or cannot be started."""

    default_code = "egress-failed"
    reason = FailureReason.EGRESS_FAILED


class ProviderError(InfrastructureError):
    """The model provider refused the key or a request, limited the rate, failed or could not be reached."""

    default_code = "provider-unavailable"
    reason = FailureReason.PROVIDER_UNAVAILABLE
    retry_after: float | None = None
    """The provider's ``Retry-After`` in seconds, if it sent one."""


class StorageError(InfrastructureError):
    """The run directory or another local file cannot be written or read. Existing records are kept."""

    default_code = "storage-failed"
    reason = FailureReason.STORAGE_FAILED
