"""Judge text like a run does, from a candidate and the fields of a task in their lanes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, cast

from securebench.candidates.artifact import CandidateArtifact
from securebench.resources import Component, Resource, ResourceBundle, Visibility
from securebench.tasks import CandidateKind, Environment, VerifierView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.resources import JsonValue
    from securebench.verifiers.base import TextVerifier, VerificationResult, VerifyContext

NO_CONTEXT = cast("VerifyContext", None)
"""No context: text verifiers need one only to use a judge model. Reading a field of the context raises an error."""


def verdict(
    verifier: TextVerifier, text: str | None, *, public: Mapping[str, JsonValue], hidden: Mapping[str, JsonValue]
) -> VerificationResult:
    """Return the verdict of ``verifier`` on ``text``. ``public`` and ``hidden`` are the fields of the task by lane."""
    resources = ResourceBundle(
        tuple(Resource(name, value, Visibility.PUBLIC) for name, value in public.items())
        + tuple(Resource(name, value, Visibility.HIDDEN) for name, value in hidden.items())
    )
    view = VerifierView(
        task_id="task",
        family=verifier.family,
        test_sandbox=resources.visible_to(Component.TEST_SANDBOX),
        evaluator=resources.visible_to(Component.EVALUATOR),
        environment=Environment(),
    )
    return verifier.verify(view, sealed_text(text), NO_CONTEXT)


def sealed_text(text: str | None) -> CandidateArtifact:
    """Return a candidate as if a candidate store had loaded it. A ``text`` of ``None`` stands for non-text content."""
    data = (text or "").encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(data).hexdigest()
    return CandidateArtifact(CandidateKind.TEXT, digest, len(data), Path("candidates") / digest, text)
