"""The interface of verifiers. They judge a sealed candidate, in this process or in sandboxes that no agent has used.

:class:`TextVerifier` is the base of verifiers that compare a text with values in this process, without a sandbox.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from securebench.errors import FailurePhase, FailureReason
from securebench.families.normalization import normalize_text
from securebench.plugins import Extension
from securebench.verifiers.probe import ImageProbe

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.dangerous_commands import VerificationPolicy
    from securebench.progress import Reporter
    from securebench.resources import JsonValue, ResourceBundle
    from securebench.sandboxes.base import CommandResult, Limits, SandboxDriver
    from securebench.sandboxes.kept import KeptSandboxes
    from securebench.strict_input.models import WireModel
    from securebench.tasks import VerifierView
    from securebench.verifiers.model_graded.session import JudgeSession

MAX_TEXT_BYTES: Final = 256 * 1024
"""The longest text that is judged, in bytes of UTF-8. It has room for a long chain of thought before the answer."""

_MESSAGES: Final[Mapping[FailureReason, str]] = MappingProxyType(
    {
        FailureReason.CANDIDATE_NOT_TEXT: "the candidate is not text",
        FailureReason.CANDIDATE_TOO_LARGE: "the candidate is too long for an answer",
        FailureReason.CANDIDATE_EMPTY: "the candidate has no visible characters",
        FailureReason.WRONG_ANSWER: "the response does not give an accepted answer",
        FailureReason.AMBIGUOUS_ANSWER: "the text contains several answers, or withdraws an answer",
        FailureReason.REJECTED_ANSWER: "the answer contains a phrase that the rubric rejects",
    }
)
"""The messages of text verifiers, by reason.

They are constants, because a message must not contain a part of the candidate or of a hidden value.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyContext:
    """What the run provides to a verifier."""

    driver: SandboxDriver
    policy: VerificationPolicy
    report: Reporter
    limits: Limits
    scratch: Path
    """An empty host directory for this verification only. The run removes it.

    For :meth:`Verifier.check_task`, the directory does not exist yet."""
    probe: ImageProbe = field(default_factory=ImageProbe)
    judge: JudgeSession | None = None
    """The judge model, if the run has one."""
    kept: KeptSandboxes[Any] | None = None
    """Sandboxes that several tasks of the run may use, one after the other. Code of a candidate never runs in them."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationResult:
    """A binary verdict: ``reason`` is ``None`` exactly when the candidate passed.

    ``metadata`` always has ``verifier``, ``version`` and ``phase`` (the last phase reached). ``message`` is written for
    people and never contains a hidden value or an evaluation input.
    """

    reason: FailureReason | None
    message: str = ""
    phase: FailurePhase = FailurePhase.VERIFY
    stdout: str = ""
    stderr: str = ""
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether the candidate passed."""
        return self.reason is None

    @property
    def score(self) -> float:
        """Return 1.0 for a pass, else 0.0."""
        return 1.0 if self.passed else 0.0


class Verifier(Extension, ABC):
    """A verifier for one family. The threads of a run share one instance, so it keeps no state between tasks."""

    family: str
    version: str
    """Incremented whenever a verdict could change; recorded with every verdict."""
    sandboxes: ClassVar[int] = 1
    """The maximum number of sandboxes that the verifier uses at once for a task.

    ``run.max_workers: auto`` depends on it.
    """
    settings_model: ClassVar[type[WireModel] | None] = None
    """The class that parses the verifier's ``config`` in ``verification.verifiers``; ``None`` without settings."""

    @classmethod
    def from_settings(cls, settings: WireModel) -> Self:
        """Return a verifier with ``settings``, or without settings if :attr:`settings_model` is ``None``."""
        return cls(settings) if cls.settings_model else cls()  # type: ignore[call-arg]

    def check_task(self, view: VerifierView, context: VerifyContext) -> None:
        """Check that a task can be judged, before an agent works on it. Called again after infrastructure failures.

        ``context.scratch`` does not exist yet: a check that needs the directory creates it.

        Raises :class:`MaterializationError` or :class:`ConfigError` if it is certain that no candidate can be judged,
        or that every candidate would get the same verdict. Also raises :class:`InfrastructureError`.
        """

    @abstractmethod
    def verify(self, view: VerifierView, candidate: CandidateArtifact, context: VerifyContext) -> VerificationResult:
        """Judge ``candidate``. Never raises because of something that the candidate did.

        Raises :class:`InfrastructureError`, and :class:`MaterializationError` or :class:`ConfigError` for a task that
        this verifier cannot judge.
        """


class CandidateFailedError(Exception):
    """Raised if the candidate fails: ``reason`` and ``phase`` are those of the failure."""

    def __init__(self, reason: FailureReason, message: str, phase: FailurePhase = FailurePhase.VERIFY) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.phase = phase


def require_own_end(result: CommandResult, seconds: float, what: str) -> None:
    """Raise :class:`CandidateFailedError` if the command was stopped by its timeout (``seconds``) or another limit.

    ``what`` is a noun phrase for the command, such as ``the check``. The message begins with it.
    """
    if result.timed_out:
        raise CandidateFailedError(FailureReason.CANDIDATE_TIMEOUT, f"{what} did not finish within {seconds:g} seconds")
    if result.out_of_memory:
        raise CandidateFailedError(FailureReason.CANDIDATE_OUT_OF_MEMORY, f"{what} exceeded the sandbox's memory limit")
    if result.output_limit_exceeded:
        raise CandidateFailedError(FailureReason.CANDIDATE_OUTPUT_LIMIT, f"{what} exceeded the sandbox's output limit")


@dataclass(frozen=True, slots=True)
class TextVerdict:
    """A verdict on a text. ``rule`` names the deciding comparison; ``reason`` is ``None`` for a pass."""

    reason: FailureReason | None
    rule: str

    @classmethod
    def passing(cls, rule: str) -> TextVerdict:
        """Return a pass by ``rule``."""
        return cls(None, rule)


class TextVerifier(Verifier):
    """A verifier that reads only the candidate's text and the task's public and hidden values."""

    sandboxes = 0

    def verify(
        self,
        view: VerifierView,
        candidate: CandidateArtifact,
        context: VerifyContext,  # noqa: ARG002 - the contract's signature: text needs neither driver nor scratch
    ) -> VerificationResult:
        """Judge the candidate's text. Raises :class:`ConfigError` for a task that this verifier cannot judge."""
        refused = refusal(candidate.text)
        if refused or candidate.text is None:
            return self._result(TextVerdict(refused, "none"), phase="extraction")
        return self._result(self.judge(candidate.text, view.evaluator), phase="comparison")

    def check_task(self, view: VerifierView, context: VerifyContext) -> None:  # noqa: ARG002 - as above
        """Raise :class:`ConfigError` if the task's values make it impossible to judge any text.

        To find out, this judges an arbitrary text.
        """
        self.judge("any", view.evaluator)

    @abstractmethod
    def judge(self, text: str, resources: ResourceBundle) -> TextVerdict:
        """Judge ``text``, which is neither empty nor too long, by public and hidden values, without side effects."""

    def _result(self, judgement: TextVerdict, *, phase: str) -> VerificationResult:
        return VerificationResult(
            reason=judgement.reason,
            message=_MESSAGES[judgement.reason] if judgement.reason else "",
            metadata={
                "verifier": self.family,
                "version": self.version,
                "phase": phase,
                "reason": judgement.reason.value if judgement.reason else None,
                "rule": judgement.rule,
            },
        )


def refusal(text: str | None) -> FailureReason | None:
    """Return why ``text`` cannot be judged as an answer, or ``None`` if it can be judged."""
    if text is None:
        return FailureReason.CANDIDATE_NOT_TEXT
    if len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES:
        return FailureReason.CANDIDATE_TOO_LARGE
    return None if normalize_text(text) else FailureReason.CANDIDATE_EMPTY
