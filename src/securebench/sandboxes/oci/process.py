"""A command in a sandbox of the oci driver, and how it ended."""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, NoReturn

from securebench.errors import EngineError, InfrastructureError, MaterializationError
from securebench.sandboxes.base import ExitState
from securebench.sandboxes.bounded import KILL_GRACE, BoundedProcess
from securebench.sandboxes.collected import CollectedLayer, DirectoryReplacedError
from securebench.sandboxes.collecting import nothing_to_collect
from securebench.sandboxes.oci.supervisor.changes import CHANGED, REPLACED, UNCHANGED
from securebench.sandboxes.oci.supervisor.processes import MACHINE_MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.sandboxes.base import Command
    from securebench.sandboxes.oci.handle import ProcessHandle
    from securebench.sandboxes.oci.streams import OciStreams
    from securebench.sandboxes.oci.wire import ProcessReport

_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
_SIGKILLED = 137

_EXIT_NOTICE_SECONDS = 10.0
"""How long a sandbox's runtime may take to notice that it exited, after another runtime lost a command in it."""

_HAS_ENDED = re.compile(r"/status`: No such file|the container `[^`]*` is not running|in a stopped container")
"""Messages of crun and runc for a command in a container whose first process has just exited.

crun also reads the container's state after the command started, and unless detached, it removes the state itself.
"""

_NOT_RUN_SIGNS = (
    *("executable file", "open executable", "exec:", "chdir `", 'chdir to cwd ("'),  # crun, runc
    *("failed to load", "error finding executable", "failed to find initial working directory"),  # gVisor
)
"""Parts of a runtime's message for a command whose program or working directory is missing or cannot be used."""


class OciProcess(BoundedProcess["OciStreams"]):
    """A started command. ``on_end`` is called, by the waiting thread, after it has exited."""

    hanging = (
        "a sandbox was not stopped within {:g} s of its time limit",
        "check what keeps this machine busy, then continue with --resume",
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
        """Discard unread output and wait until it exits."""
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
        """Kill its sandbox. The supervisor does it, so this does not wait."""
        self._streams.break_pipe()
        self._handle.kill()

    def changes(self, path: str) -> CollectedLayer:
        """Return its changes in ``path``, after it has exited. Raises the errors of :meth:`Sandbox.collected`."""
        if self._state is None:
            raise nothing_to_collect()
        return changed_layer(self._handle, path)

    def release_changes(self) -> None:
        """Release its changes, after it was abandoned."""
        self._handle.release_changes()

    def await_end(self) -> None:
        """Wait until nothing in its killed sandbox is running any more."""
        self._handle.await_end(KILL_GRACE)

    def abandon(self) -> None:
        """Close its streams and its channel. This kills its sandbox if it is still running."""
        self._abandoned = True
        self._streams.close()
        self._on_end(self)

    def _end_for_output(self) -> None:
        if not self._output_exceeded:
            self._output_exceeded = True
            self.kill()

    def _final_state(self, report: ProcessReport) -> ExitState:
        return ExitState(
            exit_code=self._exit_code(report),
            timed_out=report.timed_out,
            output_limit_exceeded=self._output_exceeded,
            out_of_memory=report.out_of_memory,
        )

    def _exit_code(self, report: ProcessReport) -> int:
        """Return its exit code. Raises :class:`InfrastructureError` for failures of the machine or the runtime.

        Processes in a sandbox can end the sandbox, or crash gVisor's kernel. The runtime of a command then does not
        know how the command ended: it was killed with everything else in the sandbox. That is not a failure of the
        machine, unless the container itself was lost.
        """
        try:
            return _exit_code(report, command=self._handle.is_command)
        except InfrastructureError:
            began = report.started or _HAS_ENDED.search(report.log)
            if began and not report.lost and self._handle.container_exited(_EXIT_NOTICE_SECONDS):
                return _SIGKILLED
            raise


def raise_failure(report: ProcessReport) -> NoReturn:
    """Raise the error of a container that exited too early: :class:`InfrastructureError` or unsafe mounts."""
    code = _exit_code(report, command=False)
    raise InfrastructureError(f"a sandbox exited with {code} before it could run anything")


def _exit_code(report: ProcessReport, *, command: bool) -> int:
    if report.failed:
        raise _refused(report)
    if report.lost:
        raise InfrastructureError(f"a sandbox was lost: {report.lost}", hint=_hint(report.lost))
    problem = _runtime_error(report.log)
    if not problem:
        _require_start(report)
        return report.exit
    code = _start_failure_code(problem) if command else None
    if code is None:
        raise InfrastructureError(f"the runtime could not start a sandbox: {problem}")
    return code


def _require_start(report: ProcessReport) -> None:
    """Raise :class:`InfrastructureError` for a runtime that exited, or timed out, before it started anything.

    Not if the driver killed it, or if its sandbox has too little memory for it.
    """
    cancelled = report.killed and not report.timed_out
    if not report.started and not cancelled and not report.out_of_memory:
        how = "reached the time limit" if report.timed_out else f"exited with {report.exit}"
        raise InfrastructureError(
            f"the runtime {how} before it started anything, and its log does not say why",
            hint="run the runtime by hand to check that it works, then continue with --resume",
        )


def _hint(lost: str) -> str:
    if lost == MACHINE_MEMORY:
        return "run fewer tasks at once (--workers), or lower sandbox.limits.memory"
    return "check what kills processes on this machine, then continue with --resume"


def _refused(report: ProcessReport) -> InfrastructureError | MaterializationError:
    if report.unsafe:
        return MaterializationError(
            report.failed,
            code="mount-unsafe",
            hint="mount a regular file or directory by its real path (Path.resolve()), which no other user can change",
        )
    return InfrastructureError(f"cannot create a sandbox: {report.failed}")


def _runtime_error(log: str) -> str:
    """Return the reason in a runtime's log why the command never ran, or an empty text."""
    messages = []
    for line in log.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            messages.append(line)  # written by the supervisor
            continue
        if entry.get("level", "error") in {"error", "fatal"}:
            messages.append(str(entry.get("msg", line)))
    return "; ".join(messages)


def _start_failure_code(problem: str) -> int | None:
    """Return the exit code that a shell would use if a program is missing or cannot be executed.

    ``None`` for every other problem. The first program of a container is started by its init, which returns such a code
    itself.
    """
    words = problem.lower()
    if not any(sign in words for sign in _NOT_RUN_SIGNS):
        return None
    return _NOT_FOUND if "no such file" in words or "not found" in words else _NOT_EXECUTABLE


def changed_layer(handle: ProcessHandle, path: str) -> CollectedLayer:
    """Return the changes of the exited ``handle`` in ``path``. Raises the errors of :meth:`Sandbox.collected`."""
    report = handle.report(0.0)
    outcome = report.collected
    if outcome == UNCHANGED:
        return CollectedLayer(-1)
    if outcome == REPLACED:
        raise DirectoryReplacedError(path)
    if outcome != CHANGED:
        raise _lost(outcome) if outcome else nothing_to_collect()
    if handle.descriptor < 0:
        raise _lost("this process has too many open files")
    return CollectedLayer(handle.descriptor, report.opaque, whole=report.whole)


def _lost(why: str) -> InfrastructureError:
    return InfrastructureError(
        f"the changes of a sandbox could not be received: {why}",
        hint="raise the limit of open files (ulimit -n), or run fewer tasks at once (--workers)",
    )
