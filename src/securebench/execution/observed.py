"""A driver wrapper that reports each new sandbox and each command in it as events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from securebench.progress import SandboxCommand, SandboxCreate, SandboxResult, SandboxStart
from securebench.sandboxes.wrapping import WrappedDriver, WrappedProcess, WrappedSandbox

if TYPE_CHECKING:
    from securebench.execution.verifier_output import Printed, VerifierOutput
    from securebench.progress import Reporter
    from securebench.sandboxes.base import (
        Chunk,
        Command,
        ExitState,
        Sandbox,
        SandboxDriver,
        SandboxProcess,
        SandboxSpec,
    )

_SHOWN: Final = 2000
"""The maximum number of bytes of output, and of characters of a command, in one event."""


class ObservedDriver(WrappedDriver):
    """Delegates to another driver, and reports each new sandbox and each command.

    Output and arguments are reported only with ``show_output``: a verifier's commands and their output contain
    evaluation inputs, and redaction does not recognize every fragment of them. If ``printed`` is given, it collects a
    verifier's output.
    """

    def __init__(
        self, driver: SandboxDriver, report: Reporter, *, show_output: bool, printed: VerifierOutput | None = None
    ) -> None:
        super().__init__(driver)
        self._report = report
        self._show_output = show_output
        self._printed = printed

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> Sandbox:
        """Create a sandbox that reports its commands."""
        sandbox = self._driver.create(spec, persistent=persistent)
        self._report.emit(SandboxCreate(image=spec.image.reference, network=spec.network))
        return _ObservedSandbox(sandbox, self._report, self._printed, show_output=self._show_output)


class _ObservedSandbox(WrappedSandbox):
    def __init__(
        self, sandbox: Sandbox, report: Reporter, printed: VerifierOutput | None, *, show_output: bool
    ) -> None:
        super().__init__(sandbox)
        self._report = report
        self._printed = printed
        self._show_output = show_output

    def open(self, command: Command) -> SandboxProcess:
        shown = " ".join(command.argv) if self._show_output else command.argv[0]
        self._report.emit(SandboxCommand(command=shown[:_SHOWN]))
        process = self._sandbox.open(command)
        self._report.emit(SandboxStart())
        # Stdout that a verifier captures is a protocol, not text for people.
        printed = None
        if self._printed is not None:
            printed = self._printed.command(command.argv[0], stdout=command.capture == 0)
        return _ObservedProcess(process, self._report, printed, show_output=self._show_output)


class _ObservedProcess(WrappedProcess):
    def __init__(
        self, process: SandboxProcess, report: Reporter, printed: Printed | None, *, show_output: bool
    ) -> None:
        super().__init__(process)
        self._report = report
        self._printed = printed
        self._room = _SHOWN if show_output else 0
        self._output = bytearray()
        self._started = time.monotonic()

    def receive(self, timeout: float | None = None) -> Chunk | None:
        chunk = self._process.receive(timeout)
        if chunk is not None and len(self._output) < self._room:
            self._output += chunk[1][: self._room - len(self._output)]
        if chunk is not None and self._printed is not None:
            self._printed.add(chunk)
        return chunk

    def wait(self) -> ExitState:
        state = self._process.wait()
        if self._printed is not None:
            self._printed.end(state)
        self._report.emit(
            SandboxResult(
                exit_code=state.exit_code,
                timed_out=state.timed_out,
                duration_seconds=time.monotonic() - self._started,
                output=self._output.decode("utf-8", "replace"),
            )
        )
        return state
