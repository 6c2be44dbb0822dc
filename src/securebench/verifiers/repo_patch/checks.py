"""Run the task's command on the final tree, in a fresh sandbox, and interpret its result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import FailureReason, InfrastructureError
from securebench.sandboxes.base import Command, Mount, SandboxSpec
from securebench.verifiers.base import CandidateFailedError, require_own_end
from securebench.verifiers.repo_patch.commands import started
from securebench.verifiers.repo_patch.environment import check_environment
from securebench.verifiers.repo_patch.evidence.adapter import GUEST
from securebench.verifiers.repo_patch.evidence.channel import MAX_CHANNEL_BYTES, ReportedRun, read_channel
from securebench.verifiers.repo_patch.evidence.controls import Controls
from securebench.verifiers.repo_patch.evidence.judge import Judge
from securebench.verifiers.repo_patch.layout import NO_WORKDIR

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import CommandResult
    from securebench.verifiers.base import VerifyContext
    from securebench.verifiers.repo_patch.evidence.adapter import Adapter
    from securebench.verifiers.repo_patch.evidence.channel import ReportedTests
    from securebench.verifiers.repo_patch.evidence.collection import Required
    from securebench.verifiers.repo_patch.layout import PatchLayout
    from securebench.verifiers.repo_patch.request import RepoPatchRequest

LAYOUT_SECONDS: Final = 300.0
"""The time limit in seconds for laying out a tree: enough for a busy machine. It is not part of the task's limit."""

_ROOT: Final = (0, 0)
GUEST_FILES: Final = Path(__file__).resolve().parent / "guest"
_NOT_RUN: Final = (126, 127)
"""The exit codes with which a shell reports that it could not start a program."""


class CommandRun:
    """Runs a task's command, with a reporter if its test runner is known, on the tree of a ``layout``."""

    def __init__(
        self, request: RepoPatchRequest, image: ResolvedImage, context: VerifyContext, details: dict[str, Any]
    ) -> None:
        self._request = request
        self._image = image
        self._context = context
        self._details = details

    def run_command(self, layout: PatchLayout) -> None:
        """Run the command. Raises :class:`CandidateFailedError` unless it ends with exit code 0."""
        self._details["evidence"] = {"kind": "exit_code"}
        command = Command(
            argv=started(self._request.command),
            timeout_seconds=self._request.timeout_seconds,
            workdir=self._request.workdir,
            capture=0,
        )
        result = self._run(layout, command, {})
        if result.exit_code != 0:
            message = f"the test command ended with exit code {result.exit_code}"
            raise CandidateFailedError(FailureReason.TESTS_FAILED, message)

    def collect(self, layout: PatchLayout, adapter: Adapter) -> ReportedTests | None:
        """Return the tests in ``layout``, which has no changes by the candidate; ``None`` if they are unknown."""
        try:
            _, reported, _ = self._report(layout, adapter, {**self._order(adapter, Controls()), "collect": True})
        except CandidateFailedError:  # not a failure of the candidate: the tests may need files that are missing
            return None
        found = reported.collected or reported.unloaded
        return reported if found and reported.exit is not None else None

    def run_unchanged(self, layout: PatchLayout, adapter: Adapter) -> Mapping[str, str]:
        """Return test outcomes in ``layout``, which has no changes by the candidate; empty if they are unknown."""
        exit_code = self._details.get("exit_code")
        try:
            _, reported, _ = self._report(layout, adapter, self._order(adapter, Controls()))
        except CandidateFailedError:  # not a failure of the candidate
            return {}
        finally:
            self._details["exit_code"] = exit_code
        return reported.outcomes if reported.exit is not None else {}

    def run_tests(
        self,
        layout: PatchLayout,
        adapter: Adapter,
        controls: Controls,
        needed: Required | None,
        unchanged: Callable[[], Mapping[str, str]],
    ) -> None:
        """Run the command with the reporter and judge the run. Raises :class:`CandidateFailedError` unless it passes.

        ``needed`` are tests that must pass if the task does not name the expected ones. ``unchanged`` returns the
        outcomes of the tests without the candidate's change.
        """
        self._details["evidence"] = {"kind": "test_by_test"}
        result, reported, conversation = self._report(layout, adapter, self._order(adapter, controls))
        if not reported.started:
            message = f"with the candidate's change, {adapter.runner} did not start: exit code {result.exit_code}"
            raise CandidateFailedError(FailureReason.NO_VERDICT, message)
        judge = Judge(adapter, controls, self._request, self._details, needed, unchanged)
        judge.judge(reported, result, conversation)

    def _report(
        self, layout: PatchLayout, adapter: Adapter, order: dict[str, Any]
    ) -> tuple[CommandResult, ReportedTests, ReportedRun]:
        """Run the command with the reporter. Return its result, the reporter's messages, and the run with its nonce."""
        conversation = ReportedRun(order)
        command = Command(
            argv=adapter.argv,
            timeout_seconds=self._request.timeout_seconds,
            stdin=conversation.stdin,
            workdir=self._request.workdir,
            capture=MAX_CHANNEL_BYTES,
        )
        result = self._run(layout, command, adapter.environment, conversation)
        if result.stdout_truncated:
            raise CandidateFailedError(
                FailureReason.CANDIDATE_OUTPUT_LIMIT, "the tests exceeded the output limit of the test result channel"
            )
        return result, read_channel(result.stdout, conversation.mark), conversation

    def _order(self, adapter: Adapter, controls: Controls) -> dict[str, Any]:
        """Return the instructions for the reporter."""
        return {
            "protected": list(adapter.protected),
            "libraries": list(controls.libraries),
            "repository": self._request.repository,
            "keep": controls.digests(adapter),
        }

    def _run(
        self,
        layout: PatchLayout,
        command: Command,
        environment: Mapping[str, str],
        conversation: ReportedRun | None = None,
    ) -> CommandResult:
        fixed = check_environment(self._image.environment, self._request.repository)
        spec = SandboxSpec(
            image=self._image,
            read_only=False,
            limits=self._context.limits,
            mounts=(layout.mount, Mount(GUEST_FILES, GUEST)),
            environment={**fixed, **environment},
            workdir=self._request.repository,
            user=_ROOT,
            labels=self._context.labels,
        )
        with self._context.driver.create(spec, persistent=True) as sandbox:
            laid = sandbox.run(Command(argv=layout.argv, timeout_seconds=LAYOUT_SECONDS, capture=4096))
            if laid.exit_code == NO_WORKDIR:
                raise CandidateFailedError(FailureReason.NO_VERDICT, "the tests' working directory is not a directory")
            if laid.exit_code != 0:
                error = laid.stderr.decode("utf-8", "replace").strip()[-200:]
                raise InfrastructureError(
                    f"could not write the tree under test into the sandbox (exit code {laid.exit_code}): {error}"
                )
            layout.remove()
            sandbox.refresh(layout.mount)
            result = conversation.run(sandbox, command) if conversation else sandbox.run(command)
        self._details["exit_code"] = result.exit_code
        _require_end(result, self._request)
        return result


def _require_end(result: CommandResult, request: RepoPatchRequest) -> None:
    """Raise :class:`CandidateFailedError` if a limit stopped the command or its program did not start."""
    require_own_end(result, request.timeout_seconds, "the test run")
    if result.exit_code in _NOT_RUN:
        raise CandidateFailedError(
            FailureReason.NO_VERDICT, f"the test command could not start: exit code {result.exit_code}"
        )
