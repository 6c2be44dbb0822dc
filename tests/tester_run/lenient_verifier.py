"""A verifier of an extension. Its settings contain an additional answer that it accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.errors import FailureReason
from securebench.strict_input.models import WireModel
from securebench.verifiers.base import VerificationResult, Verifier, VerifyContext

if TYPE_CHECKING:
    from securebench.candidates.artifact import CandidateArtifact
    from securebench.tasks import VerifierView


class LenientSettings(WireModel):
    """The settings of the verifier: the additional answer that passes."""

    accepted: str


class LenientVerifier(Verifier):
    """A verifier that passes the answer ``right`` and the answer in its settings."""

    family = "short_answer"
    version = "1"
    settings_model = LenientSettings

    def __init__(self, settings: LenientSettings) -> None:
        self._accepted = settings.accepted

    def verify(self, view: VerifierView, candidate: CandidateArtifact, context: VerifyContext) -> VerificationResult:
        """Compare the candidate's text with both answers."""
        del view, context
        passed = candidate.text in {"right", self._accepted}
        return VerificationResult(
            reason=None if passed else FailureReason.WRONG_ANSWER,
            metadata={"verifier": self.family, "version": self.version, "phase": "verify"},
        )
