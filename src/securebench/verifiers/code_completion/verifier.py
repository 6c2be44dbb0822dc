"""The verifier of code_completion, and its check of the tests before an agent runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import FailureReason, MaterializationError
from securebench.families.code_completion import syntax_error
from securebench.sandboxes.base import SandboxSpec
from securebench.tasks import DEFAULT_IMAGE
from securebench.verifiers.base import VerificationResult, Verifier
from securebench.verifiers.code_completion.relay import JudgingEndedError, explain
from securebench.verifiers.code_completion.request import SHARED, read_request
from securebench.verifiers.code_completion.session import JudgingSession
from securebench.verifiers.python_imports import needed_modules

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
    "unusable": (FailureReason.NO_VERDICT, "the tests import something that the image does not have"),
    "protocol": (FailureReason.PROTOCOL_VIOLATION, "the candidate's process sent an invalid reply"),
    "too_large": (FailureReason.NO_VERDICT, "a call or reply of the tests is too large or too deeply nested to send"),
}

_UNUSABLE: Final[Mapping[str, str]] = {
    "invalid": "fix the tests: the python3 of the task's image must be able to compile them",
    "unusable": "use an image that has what the tests import",
}
"""Outcomes that do not depend on the candidate, with the hint for each."""


def require_usable_tests(view: VerifierView, context: VerifyContext) -> None:
    """Raise :class:`MaterializationError` (``tests-unusable``) if the tests cannot run in the image.

    This is the case if the task has no inline tests, if they do not compile, or if they import a missing module. The
    image is probed only if this Python cannot compile the tests, or if they import third-party modules.
    """
    tests = view.test_sandbox["tests"].value if "tests" in view.test_sandbox else None
    source = tests.get("code") if isinstance(tests, dict) else None
    if not isinstance(source, str):
        raise _unusable("the task has no inline tests that this verifier can run")
    wrong, modules = syntax_error(source), needed_modules(source)
    if wrong is None and not modules:
        return
    image = context.driver.resolve_image(view.environment.image or DEFAULT_IMAGE)
    spec = SandboxSpec(image=image, limits=context.limits, labels=context.labels)
    if wrong is not None and not context.probe.compiles(context.driver, spec, source):
        raise _unusable(f"the tests do not compile{wrong}")
    if missing := context.probe.missing_modules(context.driver, spec, modules, ("python3", "-I", "-B")):
        raise _unusable(f"the tests import the module {missing[0]}, which the image does not have")


def _unusable(problem: str) -> MaterializationError:
    hint = "fix the tests, or use an image with the modules that they need"
    return MaterializationError(problem, code="tests-unusable", hint=hint)


class CodeCompletionVerifier(Verifier):
    """Runs candidate and tests in two sandboxes, or in one with ``isolation: shared``. The tests give the verdict.

    Metadata: ``verifier``, ``version``, ``phase`` (``extraction``, ``start``, ``import``, ``tests``, ``verdict``),
    ``reason``, ``isolation``, ``image_id``, ``answered`` (how often the candidate answered or, with shared isolation,
    how many of its names the tests used), and ``duration_seconds``. If the tests give a verdict other than a
    pass, there are also ``error`` (the name of a builtin exception) and ``line`` (a line number in the tests). ``note``
    is a short name for what may have caused a failure;
    :func:`~securebench.verifiers.code_completion.relay.explain` returns a description of it.

    The ``stderr`` of a result is the candidate's output while it was loaded, limited in size. Later output is not kept,
    because it may contain arguments of the tests.
    """

    family = "code_completion"
    sandboxes = 2
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
        return JudgingSession(context.driver, spec, request, context.kept)

    @staticmethod
    def _settle(verdict: Verdict, details: dict[str, Any]) -> tuple[FailureReason | None, str]:
        """Return the reason and message of a verdict. An unknown outcome is never a pass.

        Raises :class:`MaterializationError` for tests that cannot run with any candidate.
        """
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
            # The sandbox of the tests found the problem before the tests used anything of the candidate.
            raise MaterializationError(message, code="tests-unusable", hint=_UNUSABLE[verdict.outcome])
        if verdict.note:
            details["note"] = verdict.note
        return reason, f"{message}; {explain(verdict.note)}" if verdict.note else message
