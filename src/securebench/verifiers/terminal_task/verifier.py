"""The verifier of terminal_task."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from securebench.candidates.sealed_form import LIMITS
from securebench.errors import FailurePhase, FailureReason, MaterializationError
from securebench.progress import VerifierPolicyDenied
from securebench.sandboxes.base import Command, SandboxSpec, workspace_user
from securebench.verifiers.base import CandidateFailedError, VerificationResult, Verifier, require_own_end
from securebench.verifiers.terminal_task.environment import checker_environment
from securebench.verifiers.terminal_task.layout import lay_out
from securebench.verifiers.terminal_task.preflight import NOT_STARTED, require_startable
from securebench.verifiers.terminal_task.request import read_request, require_allowed
from securebench.verifiers.terminal_task.state import LastLine, same_state
from securebench.workspaces.bounded import writable_directory

if TYPE_CHECKING:
    from securebench.candidates.artifact import CandidateArtifact
    from securebench.sandboxes.base import CommandResult
    from securebench.tasks import VerifierView
    from securebench.verifiers.base import VerifyContext
    from securebench.verifiers.terminal_task.layout import CheckLayout
    from securebench.verifiers.terminal_task.request import CheckRequest

_ROOT: Final = (0, 0)


class TerminalTaskVerifier(Verifier):
    """Runs the checker on a copy of the sealed workspace. The checker's exit code decides the verdict.

    With an ``expected_state``, the state that the checker prints must match it, too.

    Metadata: ``verifier``, ``version``, ``phase`` (``request``, ``policy``, ``workspace``, ``check``, ``state``,
    ``verdict``), ``reason``, ``image_id``, ``timeout_seconds``, ``exit_code`` of the checker, its ``capabilities`` if
    it has any, and ``duration_seconds``. The metadata do not contain the checker's output.
    """

    family = "terminal_task"
    version = "2"

    def check_task(self, view: VerifierView, context: VerifyContext) -> None:
        """Raise :class:`MaterializationError` if the checker cannot start, or the expected state cannot be read."""
        try:
            request = read_request(view)
        except CandidateFailedError as fault:
            raise MaterializationError(fault.message) from None
        require_startable(request, view, context)

    def verify(self, view: VerifierView, candidate: CandidateArtifact, context: VerifyContext) -> VerificationResult:
        """Judge ``candidate``.

        Raises :class:`InfrastructureError`, and :class:`MaterializationError` for a task with which no candidate can be
        judged. It never raises because of something that the candidate did.
        """
        started = time.monotonic()
        details: dict[str, Any] = {"verifier": self.family, "version": self.version, "phase": "request"}
        reason: FailureReason | None = None
        message, phase = "", FailurePhase.VERIFY
        try:
            _check(view, candidate, context, details)
            details["phase"] = "verdict"
        except CandidateFailedError as fault:
            reason, message, phase = fault.reason, fault.message, fault.phase
        details["reason"] = reason.value if reason else None
        details["duration_seconds"] = time.monotonic() - started
        return VerificationResult(reason=reason, message=message, phase=phase, metadata=details)


def _check(view: VerifierView, candidate: CandidateArtifact, context: VerifyContext, details: dict[str, Any]) -> None:
    """Judge the candidate, and add to ``details``. Raises :class:`CandidateFailedError` unless it passes."""
    request = read_request(view)
    capabilities = _capabilities(request, context, details)
    details["phase"] = "workspace"
    scratch, last_line = context.scratch.resolve(), LastLine()
    # Sealing may have made the candidate larger than its workspace was: hard links and sparse files became full files.
    size = context.limits.workspace + LIMITS.total_bytes
    with writable_directory(context.driver, scratch / "workspace", size) as directory:
        layout = lay_out(view, candidate, request, directory, scratch / "inputs", shared=bool(capabilities))
        spec = _spec(request, layout, context, capabilities)
        details.update(phase="check", image_id=spec.image.id, timeout_seconds=request.timeout_seconds)
        with context.driver.create(spec, persistent=True) as sandbox:
            command = Command(argv=request.argv, timeout_seconds=request.timeout_seconds, capture=0)
            result = sandbox.run(command, last_line)
        details["exit_code"] = result.exit_code
        layout.require_untouched()
    if result.exit_code in NOT_STARTED:
        require_startable(request, view, context)  # if this does not raise, the candidate is the cause
    _require_success(result, request)
    if request.expected is not None:
        details["phase"] = "state"
        _require_state(last_line, request)


def _capabilities(request: CheckRequest, context: VerifyContext, details: dict[str, Any]) -> tuple[str, ...]:
    details["phase"] = "policy"
    try:
        capabilities = require_allowed(request, context.policy)
    except CandidateFailedError:
        denied = context.policy.denied(request.needed_commands)
        context.report.emit(VerifierPolicyDenied(commands=list(denied)))
        raise
    if capabilities:
        details["capabilities"] = list(capabilities)
    return capabilities


def _spec(
    request: CheckRequest, layout: CheckLayout, context: VerifyContext, capabilities: tuple[str, ...]
) -> SandboxSpec:
    return SandboxSpec(
        image=context.driver.resolve_image(request.image),
        limits=context.limits,
        mounts=layout.mounts(request.target),
        environment=checker_environment(request.target),
        workdir=request.workdir,
        user=_ROOT if capabilities else workspace_user(),  # only root gets the sandbox's capabilities
        cap_add=capabilities,
        labels=context.labels,
    )


def _require_success(result: CommandResult, request: CheckRequest) -> None:
    require_own_end(result, request.timeout_seconds, "the check")
    if result.exit_code != 0:
        raise CandidateFailedError(FailureReason.CHECK_FAILED, f"the checker ended with exit code {result.exit_code}")


def _require_state(last_line: LastLine, request: CheckRequest) -> None:
    assert request.expected is not None
    try:
        state = last_line.state()
    except ValueError:
        raise CandidateFailedError(
            FailureReason.NO_VERDICT, "the checker's last line of output is not a valid JSON state"
        ) from None
    if not same_state(state, request.expected.value):
        raise CandidateFailedError(
            FailureReason.STATE_MISMATCH, "the state that the checker found is not the expected state"
        )
