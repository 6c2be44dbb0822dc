"""The base of verifiers of text answers: they compare a string with values in this process, without a sandbox."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from securebench.errors import FailureReason
from securebench.families.normalization import normalize_text
from securebench.verifiers.base import VerificationResult, Verifier
from securebench.verifiers.text.final_answer import MAX_TEXT_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.resources import ResourceBundle
    from securebench.tasks import VerifierView
    from securebench.verifiers.base import VerifyContext

_MESSAGES: Final[Mapping[FailureReason, str]] = MappingProxyType(
    {
        FailureReason.CANDIDATE_NOT_TEXT: "the candidate is not text",
        FailureReason.CANDIDATE_TOO_LARGE: "the candidate is too long for an answer",
        FailureReason.CANDIDATE_EMPTY: "the candidate has no visible characters",
        FailureReason.WRONG_ANSWER: "the final answer is not an accepted one",
        FailureReason.AMBIGUOUS_ANSWER: "the final answer is ambiguous: it gives several answers or takes one back",
        FailureReason.REJECTED_ANSWER: "the answer contains a phrase that the rubric rejects",
    }
)
"""Constants: a message never contains a part of the candidate or of a hidden value."""


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
    """A verifier that reads only the candidate's text and the evaluator's resources."""

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
        """Judge an arbitrary text, because invalid hidden values raise :class:`ConfigError` for every text."""
        self.judge("any", view.evaluator)

    @abstractmethod
    def judge(self, text: str, resources: ResourceBundle) -> TextVerdict:
        """Judge ``text``, which is neither empty nor too long, using public and hidden values. No side effects."""

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
    """Return why ``text`` cannot be an answer at all, or ``None``."""
    if text is None:
        return FailureReason.CANDIDATE_NOT_TEXT
    if len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES:
        return FailureReason.CANDIDATE_TOO_LARGE
    return None if normalize_text(text) else FailureReason.CANDIDATE_EMPTY
