"""A command that runs in a sandbox of the oci driver, and how it ended."""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Any, NoReturn

from securebench.errors import EngineError, InfrastructureError, MaterializationError
from securebench.sandboxes.base import ExitState
from securebench.sandboxes.bounded import KILL_GRACE, BoundedProcess
from securebench.sandboxes.collecting import nothing_to_collect
from securebench.sandboxes.oci.changes import changed_layer
from securebench.sandboxes.oci.supervisor.processes import MACHINE_MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.sandboxes.base import Command
    from securebench.sandboxes.collected import CollectedLayer
    from securebench.sandboxes.oci.handle import ProcessHandle
    from securebench.sandboxes.oci.streams import OciStreams

_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
_SIGKILLED = 137

_FALL_SECONDS = 10.0
"""How long the runtime of a sandbox may take to notice that it has ended, after another has lost a command in it."""

_HAS_ENDED = re.compile(r"/status`: No such file|the container `[^`]*` is not running|in a stopped container")
"""What crun and runc say of a command for a container whose first process has just ended.

crun looks for the container's state also after the command began, and removes it itself unless it has left.
"""

_NOT_RUN_SIGNS = (
    *("executable file", "open executable", "exec:", "chdir `", 'chdir to cwd ("'),  # crun, runc
    *("failed to load", "error finding executable", "failed to find initial working directory"),  # gVisor
)
"""In what a runtime says of a command whose program or working directory is not there, or cannot be used."""


class OciProcess(BoundedProcess["OciStreams"]):
    """A started command. ``on_end`` is called, by the thread that waits, when it has ended."""

    hanging = (
        "a sandbox was not ended within {:g} s of its time limit",
        "look at what keeps this machine busy, then continue with --resume",
    )

    def __init__(
        self,
        streams: OciStreams,
        handle: ProcessHandle,
        command: Command,
        output_limit: int,
        on_end: Callable[[OciProcess], None],
    ) -> None:
        super().__init__(streams, command, output_limit)
        self._handle = handle
        self._on_end = on_end
        self._output_exceeded = False
        self._abandoned = False
        self._state: ExitState | None = None
        self._waiting = threading.Lock()

    def wait(self) -> ExitState:
        """Drop what nobody read, and wait for its end."""
        while self.receive() is not None:
            pass
        with self._waiting:
            if self._state is None:
                try:
                    self._state = self._final_state(self._handle.report(self._remaining()))
                except EngineError:
                    if self._abandoned:
                        raise InfrastructureError("this sandbox was closed", code="sandbox-closed") from None
                    raise
                finally:
                    self.abandon()
            return self._state

    def kill(self) -> None:
        """End its sandbox. It is the supervisor who does it, so nothing is waited for."""
        self._streams.break_pipe()
        self._handle.kill()

    def changes(self, path: str) -> CollectedLayer:
        """Return what it has changed in ``path``, when it has ended. Raises as :meth:`Sandbox.collected` does."""
        if self._state is None:
            raise nothing_to_collect()
        return changed_layer(self._handle, path)

    def forget_changes(self) -> None:
        """Let go of what it has changed. It was abandoned before."""
        self._handle.forget_changes()

    def await_end(self) -> None:
        """Wait until nothing of its sandbox runs any more. It has been killed."""
        self._handle.await_end(KILL_GRACE)

    def abandon(self) -> None:
        """Let go of it. Its sandbox has ended, or ends by this."""
        self._abandoned = True
        self._streams.close()
        self._on_end(self)

    def _end_for_output(self) -> None:
        if not self._output_exceeded:
            self._output_exceeded = True
            self.kill()

    def _final_state(self, report: dict[str, Any]) -> ExitState:
        return ExitState(
            exit_code=self._exit_code(report),
            timed_out=report["timed_out"],
            output_limit_exceeded=self._output_exceeded,
            out_of_memory=report["out_of_memory"],
        )

    def _exit_code(self, report: dict[str, Any]) -> int:
        """Return its exit code. Raises :class:`InfrastructureError` for what the machine, or its runtime, has done.

        What runs in a sandbox can end it, and gVisor's kernel with it; the runtime of a command then knows nothing of
        its end. It was killed as all that ran there was, and by whom is no fault of the machine, unless the container
        was lost itself.
        """
        try:
            return _exit_code(report, command=self._handle.is_command)
        except InfrastructureError:
            began = report.get("started") or _HAS_ENDED.search(report.get("log", ""))
            if began and not report.get("lost") and self._handle.fell(_FALL_SECONDS):
                return _SIGKILLED
            raise


def raise_failure(report: dict[str, Any]) -> NoReturn:
    """Raise what a report says of a container that should have run: :class:`InfrastructureError` or unsafe mounts."""
    code = _exit_code(report, command=False)
    raise InfrastructureError(f"a sandbox ended with {code} before it could run anything")


def _exit_code(report: dict[str, Any], *, command: bool) -> int:
    if "failed" in report:
        raise _refused(report)
    if report["lost"]:
        raise InfrastructureError(f"a sandbox was lost: {report['lost']}", hint=_hint(report["lost"]))
    problem = _runtime_error(report["log"])
    if not problem:
        _require_start(report)
        return int(report["exit"])
    code = _code_of_not_run(problem) if command else None
    if code is None:
        raise InfrastructureError(f"the runtime could not start a sandbox: {problem}")
    return code


def _require_start(report: dict[str, Any]) -> None:
    """Raise :class:`InfrastructureError` for a runtime that has ended, or used up the time, and has started nothing.

    Not if somebody here has killed it, nor if its sandbox has too little memory for it.
    """
    given_up = report["killed"] and not report["timed_out"]
    if not report["started"] and not given_up and not report["out_of_memory"]:
        how = "ran into the time limit" if report["timed_out"] else f"ended with {report['exit']}"
        raise InfrastructureError(
            f"the runtime {how} before it had started anything, and its log does not say why",
            hint="run it by hand, see whether it is damaged, then continue with --resume",
        )


def _hint(lost: str) -> str:
    if lost == MACHINE_MEMORY:
        return "run fewer tasks at once (--workers), or lower sandbox.limits.memory"
    return "look at what on this machine kills processes, then continue with --resume"


def _refused(report: dict[str, Any]) -> InfrastructureError | MaterializationError:
    if report.get("unsafe"):
        return MaterializationError(
            report["failed"],
            code="mount-unsafe",
            hint="mount a regular file or directory by its real path (Path.resolve()), which nobody else changes",
        )
    return InfrastructureError(f"a sandbox could not be made: {report['failed']}")


def _runtime_error(log: str) -> str:
    """Return what a runtime's log says of why the command never ran, or nothing."""
    messages = []
    for line in log.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            messages.append(line)  # the supervisor's own words
            continue
        if entry.get("level", "error") in {"error", "fatal"}:
            messages.append(str(entry.get("msg", line)))
    return "; ".join(messages)


def _code_of_not_run(problem: str) -> int | None:
    """Return the exit code of a command that could not be run for what is in its sandbox, as a shell would.

    ``None`` for every other problem. A container's first program is started by the init, which says so itself.
    """
    words = problem.lower()
    if not any(sign in words for sign in _NOT_RUN_SIGNS):
        return None
    return _NOT_FOUND if "no such file" in words or "not found" in words else _NOT_EXECUTABLE
