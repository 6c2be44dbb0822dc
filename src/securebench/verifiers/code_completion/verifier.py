"""The verifier of code_completion."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import FailureReason, MaterializationError
from securebench.sandboxes.base import SandboxSpec
from securebench.verifiers.base import VerificationResult, Verifier
from securebench.verifiers.code_completion.explain import explain
from securebench.verifiers.code_completion.preflight import require_usable_tests
from securebench.verifiers.code_completion.relay import JudgingEndedError
from securebench.verifiers.code_completion.request import SHARED, read_request
from securebench.verifiers.code_completion.session import JudgingSession

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.tasks import VerifierView
    from securebench.verifiers.base import VerifyContext
    from securebench.verifiers.code_completion.relay import Verdict
    from securebench.verifiers.code_completion.request import CodeRequest

_OUTCOMES: Final[Mapping[str, tuple[FailureReason, str]]] = {
    "failed": (FailureReason.TESTS_FAILED, "the tests failed"),
    "invalid": (FailureReason.NO_VERDICT, "the tests do not compile"),
    "unusable": (FailureReason.NO_VERDICT, "the tests import a module that the image does not have"),
    "protocol": (FailureReason.PROTOCOL_VIOLATION, "the candidate's side sent an invalid answer"),
    "too_large": (FailureReason.NO_VERDICT, "the tests passed arguments that are too large"),
}

_UNUSABLE: Final[Mapping[str, str]] = {
    "invalid": "run the tests with the python3 of the task's image",
    "unusable": "use an image with the modules that the tests import",
}
"""Outcomes that say nothing about a candidate, with the hint for each."""


class CodeCompletionVerifier(Verifier):
    """Runs the candidate in one sandbox and the tests in another. The tests' side reports the verdict.

    Metadata: ``verifier``, ``version``, ``phase`` (``extraction``, ``start``, ``import``, ``tests``, ``verdict``),
    ``reason``, ``isolation``, ``image_id``, ``answered`` (how often the candidate answered), for a failure ``error``
    (a builtin exception's name) and ``line`` (of the tests), and ``duration_seconds``. ``note`` explains a failure
    (``explain.py``).
    ``stderr`` is the candidate's output while it was loaded, limited in size. Later output is not kept, because it may
    contain arguments of the tests.
    """

    family = "code_completion"
    version = "2"

    def check_task(self, view: VerifierView, context: VerifyContext) -> None:
        """Raise :class:`MaterializationError` for tests that cannot run with any candidate."""
        require_usable_tests(view, context)

    def verify(self, view: VerifierView, candidate: CandidateArtifact, context: VerifyContext) -> VerificationResult:
        """Judge ``candidate``.

        Raises :class:`InfrastructureError`, and :class:`MaterializationError` for tests that cannot run with any
        candidate. It never raises because of something that the candidate did.
        """
        started = time.monotonic()
        details: dict[str, Any] = {"verifier": self.family, "version": self.version, "phase": "extraction"}
        session: JudgingSession | None = None
        try:
            request = read_request(view, candidate)
            session = self._session(request, context, details)
            reason, message = self._settle(session.run(), details)
        except JudgingEndedError as fault:
            details["phase"], reason, message = fault.step, fault.reason, fault.message
        details["reason"] = reason.value if reason else None
        details["duration_seconds"] = time.monotonic() - started
        return VerificationResult(
            reason=reason, message=message, stderr=session.output if session else "", metadata=details
        )

    @staticmethod
    def _session(request: CodeRequest, context: VerifyContext, details: dict[str, Any]) -> JudgingSession:
        details["phase"] = "start"
        details["isolation"] = request.isolation
        image = context.driver.resolve_image(request.image)
        details["image_id"] = image.id
        spec = SandboxSpec(image=image, limits=context.limits, labels=context.labels)
        return JudgingSession(context.driver, spec, request)

    @staticmethod
    def _settle(verdict: Verdict, details: dict[str, Any]) -> tuple[FailureReason | None, str]:
        """Return the reason and message of a verdict. An unknown outcome is never a pass."""
        details.update(phase="verdict", answered=verdict.answered)
        if verdict.outcome == "passed":
            if verdict.answered > 0:
                return None, ""
            return FailureReason.NO_VERDICT, "the tests ended without using the candidate"
        details.update(error=verdict.error, line=verdict.line)
        reason, message = _OUTCOMES.get(
            verdict.outcome, (FailureReason.NO_VERDICT, "the tests gave no readable verdict")
        )
        where = f" at line {verdict.line} of the tests" if verdict.line else ""
        message = f"{message}{where}: {verdict.error}" if verdict.error else message + where
        if verdict.outcome in _UNUSABLE and details["isolation"] != SHARED:
            # The tests' own sandbox found it before it received anything from the candidate.
            raise MaterializationError(message, code="tests-unusable", hint=_UNUSABLE[verdict.outcome])
        if verdict.note:
            details["note"] = verdict.note
        return reason, f"{message}; {explain(verdict.note)}" if verdict.note else message
