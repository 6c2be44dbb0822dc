"""Read the request for a check from a terminal task. An unusable task is rejected before any sandbox starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import FailurePhase, FailureReason
from securebench.resources import ResourceKind
from securebench.tasks import DEFAULT_IMAGE, WORKSPACE_TARGET
from securebench.verifiers.base import CandidateFailedError
from securebench.verifiers.terminal_task.state import read_expected_file

if TYPE_CHECKING:
    from securebench.dangerous_commands import VerificationPolicy
    from securebench.resources import JsonValue
    from securebench.tasks import VerifierView

DEFAULT_TIMEOUT_SECONDS: Final = 300.0
_SHELL: Final = ("/bin/sh", "-c")


@dataclass(frozen=True, slots=True)
class ExpectedState:
    """The state that the checker is expected to find. A separate type, because ``null`` is a valid state."""

    value: JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """One check. ``target`` is the workspace's path in the sandbox; ``workdir`` is the checker's working directory."""

    argv: tuple[str, ...]
    image: str
    target: str
    workdir: str
    timeout_seconds: float
    needed_commands: tuple[str, ...]
    expected: ExpectedState | None


def read_request(view: VerifierView) -> CheckRequest:
    """Return the request.

    Raises :class:`CandidateFailedError` if the task has no usable checker, or if its expected state is a file resource
    with no file or several files. Raises :class:`MaterializationError` if the file of the expected state cannot be
    read, has changed, or is not valid JSON. A task may have no expected state.
    """
    checker = _value(view, "checker")
    command = checker.get("command") if isinstance(checker, dict) else None
    if not isinstance(checker, dict) or not command:
        raise CandidateFailedError(FailureReason.NO_VERDICT, "the task has no checker that this verifier can run")
    environment = view.environment
    target = environment.workdir or WORKSPACE_TARGET
    return CheckRequest(
        argv=(*_SHELL, command) if isinstance(command, str) else tuple(command),
        image=checker.get("image") or environment.image or DEFAULT_IMAGE,
        target=target,
        workdir=checker.get("workdir") or target,
        timeout_seconds=checker.get("timeout_seconds") or environment.timeout_seconds or DEFAULT_TIMEOUT_SECONDS,
        needed_commands=tuple(_value(view, "needed_commands") or ()),
        expected=_expected(view),
    )


def require_allowed(request: CheckRequest, policy: VerificationPolicy) -> tuple[str, ...]:
    """Return the checker's capabilities. Raises :class:`CandidateFailedError` if the tester denies a command."""
    if denied := policy.denied(request.needed_commands):
        raise CandidateFailedError(
            FailureReason.DANGEROUS_COMMAND_DENIED,
            f"the tester does not allow commands that the checker needs: {', '.join(denied)}",
            FailurePhase.POLICY,
        )
    return policy.capabilities(request.needed_commands)


def _value(view: VerifierView, name: str) -> Any:
    return view.test_sandbox[name].value if name in view.test_sandbox else None


def _expected(view: VerifierView) -> ExpectedState | None:
    if "expected_state" not in view.evaluator:
        return None
    resource = view.evaluator["expected_state"]
    if resource.kind is not ResourceKind.FILE:
        return ExpectedState(resource.value)
    if len(resource.files) != 1 or view.eval_assets is None:
        raise CandidateFailedError(
            FailureReason.NO_VERDICT, "the task is invalid: 'expected_state' needs exactly one file that can be read"
        )
    return ExpectedState(read_expected_file(view.eval_assets, resource.files[0].path))
