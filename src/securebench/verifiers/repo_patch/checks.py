"""Runs the task's command over the final tree, in a fresh sandbox, and says what it came to."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import FailureReason, InfrastructureError
from securebench.sandboxes.base import Command, Mount, SandboxSpec
from securebench.verifiers.faults import FaultError, require_own_end
from securebench.verifiers.repo_patch.commands import GUEST, started
from securebench.verifiers.repo_patch.environment import check_environment
from securebench.verifiers.repo_patch.layout import NO_WORKDIR
from securebench.verifiers.repo_patch.pytest_evidence import MAX_CHANNEL_BYTES, judge, read_channel

if TYPE_CHECKING:
    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import CommandResult
    from securebench.verifiers.base import VerifyContext
    from securebench.verifiers.repo_patch.canaries import Canaries
    from securebench.verifiers.repo_patch.commands import PytestCommand
    from securebench.verifiers.repo_patch.layout import Layout
    from securebench.verifiers.repo_patch.request import Request

LAYOUT_SECONDS: Final = 300.0
"""How long it may take to lay a tree out, on a machine that does much else. It is not counted against the candidate."""

_ROOT: Final = (0, 0)
_GUEST_FILES: Final = Path(__file__).resolve().parent / "guest"
_NOT_RUN: Final = (126, 127)
"""The exit codes by which a shell says that it could not start a program."""


class Checks:
    """One run of a command, or of pytest with its canaries, over ``layout``."""

    def __init__(self, request: Request, image: ResolvedImage, context: VerifyContext, details: dict[str, Any]) -> None:
        self._request = request
        self._image = image
        self._context = context
        self._details = details

    def run_command(self, layout: Layout) -> None:
        """Run the command, and take its exit code. Raises :class:`FaultError` if it is no pass."""
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
            raise FaultError(FailureReason.TESTS_FAILED, message)

    def run_pytest(self, layout: Layout, pytest: PytestCommand, canaries: Canaries) -> None:
        """Run pytest, and weigh its evidence. Raises :class:`FaultError` if it is no pass."""
        self._details["evidence"] = {"kind": "test_by_test"}
        mark = secrets.token_hex(16)
        files = [f"{self._request.repository}/{path.decode()}" for path in canaries.files]
        command = Command(
            argv=pytest.argv,
            timeout_seconds=self._request.timeout_seconds,
            stdin=json.dumps({"mark": mark, "files": files}).encode("ascii") + b"\n",
            workdir=self._request.workdir,
            capture=MAX_CHANNEL_BYTES,
        )
        result = self._run(layout, command, pytest.environment)
        if result.stdout_truncated:
            raise FaultError(FailureReason.CANDIDATE_OUTPUT_LIMIT, "the tests said more than is kept")
        told = read_channel(result.stdout, mark)
        if not told.started:
            message = f"pytest did not start, or not as it does: exit code {result.exit_code}"
            raise FaultError(FailureReason.NO_VERDICT, message)
        judge(told, result, canaries, self._request, self._details)

    def _run(self, layout: Layout, command: Command, environment: dict[str, str]) -> CommandResult:
        fixed = check_environment(self._image.environment, self._request.repository)
        spec = SandboxSpec(
            image=self._image,
            read_only=False,
            limits=self._context.limits,
            mounts=(layout.mount, Mount(_GUEST_FILES, GUEST)),
            environment={**fixed, **environment},
            workdir=self._request.repository,
            user=_ROOT,
            labels=self._context.labels,
        )
        with self._context.driver.create(spec, persistent=True) as sandbox:
            laid = sandbox.run(Command(argv=layout.argv, timeout_seconds=LAYOUT_SECONDS, capture=4096))
            if laid.exit_code == NO_WORKDIR:
                raise FaultError(FailureReason.NO_VERDICT, "the tests' working directory is no directory")
            if laid.exit_code != 0:
                said = laid.stderr.decode("utf-8", "replace").strip()[-200:]
                raise InfrastructureError(
                    f"the tree to be judged could not be laid out (exit {laid.exit_code}): {said}"
                )
            layout.remove()
            result = sandbox.run(command)
        self._details["exit_code"] = result.exit_code
        _require_end(result, self._request)
        return result


def _require_end(result: CommandResult, request: Request) -> None:
    """Raise :class:`FaultError` if the command was ended from outside, or never began: whose doing that is is known."""
    require_own_end(result, request.timeout_seconds, "the test run")
    if result.exit_code in _NOT_RUN:
        raise FaultError(FailureReason.NO_VERDICT, f"the test command could not be run: exit code {result.exit_code}")
