"""Judge code like a run does, from a candidate, tests and a driver."""

from __future__ import annotations

import hashlib
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.candidates.artifact import CandidateArtifact
from securebench.dangerous_commands import VerificationPolicy
from securebench.progress import Reporter
from securebench.resources import Component, Resource, ResourceBundle, Visibility
from securebench.sandboxes.base import MIB, Limits
from securebench.tasks import CandidateKind, Environment, VerifierView
from securebench.verifiers.base import VerifyContext
from securebench.verifiers.code_completion import CodeCompletionVerifier

if TYPE_CHECKING:
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import SandboxDriver
    from securebench.verifiers.base import VerificationResult

LIMITS = Limits(memory=128 * MIB, output=4 * MIB)
"""Small limits, so that a resource bomb reaches them at once."""


def judge(
    driver: SandboxDriver,
    candidate: str | None,
    tests: str,
    *,
    timeout: float | None = None,
    image: str | None = None,
    starter: str | None = None,
    **more: JsonValue,
) -> VerificationResult:
    """Return the verdict on ``candidate``. ``more`` are further fields of ``eval.tests``."""
    view = view_of(
        {"source": "inline", "code": textwrap.dedent(tests), **more}, timeout=timeout, image=image, starter=starter
    )
    text = None if candidate is None else textwrap.dedent(candidate)
    return CodeCompletionVerifier().verify(view, artifact(text), context(driver))


def view_of(
    tests: JsonValue,
    *,
    timeout: float | None = None,
    image: str | None = None,
    language: str | None = None,
    starter: str | None = None,
    hidden: str = "",
) -> VerifierView:
    """Return the view of a task with these tests."""
    resources = [
        Resource("prompt", "Write it.", Visibility.PUBLIC),
        Resource("tests", tests, Visibility.EVALUATION_INPUTS),
        Resource("reference_solution", hidden, Visibility.HIDDEN),
    ]
    if language is not None:
        resources.append(Resource("language", language, Visibility.PUBLIC))
    if starter is not None:
        resources.append(Resource("starter_code", starter, Visibility.PUBLIC))
    bundle = ResourceBundle(tuple(resources))
    return VerifierView(
        task_id="task",
        family="code_completion",
        test_sandbox=bundle.visible_to(Component.TEST_SANDBOX),
        evaluator=bundle.visible_to(Component.EVALUATOR),
        environment=Environment(image=image, timeout_seconds=timeout),
    )


def artifact(text: str | None) -> CandidateArtifact:
    """Return a candidate as if a candidate store had loaded it. A ``text`` of ``None`` stands for non-text content."""
    data = (text or "").encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(data).hexdigest()
    return CandidateArtifact(CandidateKind.CODE, digest, len(data), Path("candidates") / digest, text)


def context(driver: SandboxDriver) -> VerifyContext:
    """Return a context for the verifier, like that of a run but with the limits :data:`LIMITS`."""
    return VerifyContext(
        driver=driver, policy=VerificationPolicy(), report=Reporter(), limits=LIMITS, scratch=Path("scratch")
    )
