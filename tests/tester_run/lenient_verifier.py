"""A verifier of an extension: it accepts one more answer, which is its setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.errors import FailureReason
from securebench.strict_input.models import WireModel
from securebench.verifiers.base import VerificationResult, Verifier, VerifyContext

if TYPE_CHECKING:
    from securebench.candidates.artifact import CandidateArtifact
    from securebench.tasks import VerifierView


class LenientSettings(WireModel):
    """The answer that passes, too."""

    accepted: str


class LenientVerifier(Verifier):
    """Passes ``right`` and the accepted answer."""

    family = "short_answer"
    version = "1"
    settings_model = LenientSettings

    def __init__(self, settings: LenientSettings) -> None:
        self._accepted = settings.accepted

    def verify(self, view: VerifierView, candidate: CandidateArtifact, context: VerifyContext) -> VerificationResult:
        """Compare the text."""
        del view, context
        passed = candidate.text in {"right", self._accepted}
        return VerificationResult(
            reason=None if passed else FailureReason.WRONG_ANSWER,
            metadata={"verifier": self.family, "version": self.version, "phase": "verify"},
        )
