"""Check that the tests of a code task can run at all, without a candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.errors import MaterializationError
from securebench.families.code_completion import syntax_error
from securebench.sandboxes.base import SandboxSpec
from securebench.tasks import DEFAULT_IMAGE
from securebench.verifiers.python_imports import needed_modules

if TYPE_CHECKING:
    from securebench.tasks import VerifierView
    from securebench.verifiers.base import VerifyContext


def require_usable_tests(view: VerifierView, context: VerifyContext) -> None:
    """Raise :class:`MaterializationError` (``tests-unusable``) if the image cannot compile the tests or their imports.

    The image is probed only if this Python does not compile the tests, and for modules outside the standard library.
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
