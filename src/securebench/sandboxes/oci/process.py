"""A command in a sandbox of the oci driver: its standard streams, and how it ended."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import select
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from securebench.errors import EngineError, InfrastructureError, MaterializationError
from securebench.faults import FaultPoint, reached
from securebench.fs.durable import disk_hint
from securebench.ipc.frames import close_all
from securebench.sandboxes.base import ExitState, Stream
from securebench.sandboxes.collected import CollectedLayer, DirectoryReplacedError
from securebench.sandboxes.lifecycle import KILL_GRACE, BoundedProcess, ProcessStreams
from securebench.sandboxes.oci.connection import descriptor_errors
from securebench.sandboxes.oci.supervisor.changes import CHANGED, REPLACED, UNCHANGED
from securebench.sandboxes.oci.supervisor.processes import MACHINE_MEMORY
from securebench.sandboxes.spec_rules import nothing_to_collect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from securebench.sandboxes.base import Command
    from securebench.sandboxes.oci.connection import ProcessHandle
    from securebench.sandboxes.oci.wire import ProcessReport

_READ = 64 * 1024
_TOO_MANY_FILES = os.strerror(errno.EMFILE)

_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
_SIGKILLED = 137

_EXIT_NOTICE_SECONDS = 10.0
"""Seconds to wait for the report that a sandbox has exited, after the runtime process of a command failed."""

_HAS_ENDED = re.compile(r"/status`: No such file|the container `[^`]*` is not running|in a stopped container")
"""Messages of crun and runc for a command in a container whose first process has just exited.

The crun that runs a command reads the container's state even after the command has started. By then, the crun that
runs the container may have removed that state.
"""

_NOT_RUN_SIGNS = (
    *("executable file", "open executable", "exec:", "chdir `", 'chdir to cwd ("'),  # crun, runc
    *("failed to load", "error finding executable", "failed to find initial working directory"),  # gVisor
)
"""Parts of a runtime's message for a command whose program or working directory is missing or cannot be used."""


class Pipes:
    """Three new pipes. ``remote`` are the ends for the process; the other attributes are the driver's ends."""

    def __init__(self) -> None:
        """Create the pipes. Raises :class:`InfrastructureError` if this process has too many open files."""
        pairs: list[tuple[int, int]] = []
        with descriptor_errors():
            try:
                pairs.extend(os.pipe2(os.O_CLOEXEC) for _ in range(3))
            except OSError:
                close_all(itertools.chain(*pairs))
                raise
        (stdin, self.stdin), (self.stdout, stdout), (self.stderr, stderr) = pairs
        self.remote = (stdin, stdout, stderr)
        for descriptor in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(descriptor, False)

    def close_remote(self) -> None:
        """Close the process's ends. The process has its own copies."""
        close_all(self.remote)

    def close_local(self) -> None:
        """Close the driver's ends. Do not call this if an :class:`OciStreams` uses them."""
        close_all((self.stdin, self.stdout, self.stderr))


@contextmanager
def pipes_to_pass_on() -> Iterator[Pipes]:
    """Yield new pipes. Close their remote ends afterwards and, if there was an error, the local ends too."""
    pipes = Pipes()
    try:
        yield pipes
    except BaseException:
        pipes.close_local()
        raise
    finally:
        pipes.close_remote()


class OciStreams(ProcessStreams):
    """Stdin, stdout and stderr of a process, as pipes.

    The output ends when stdout and stderr are both closed, or when the process has exited. It ends even if the process
    left other processes running.
    """

    def __init__(self, pipes: Pipes, handle: ProcessHandle, stdin: bytes = b"") -> None:
        super().__init__(stdin)
        self._handle = handle
        self._stdin: int | None = pipes.stdin
        self._outputs = {pipes.stdout: Stream.STDOUT, pipes.stderr: Stream.STDERR}
        self._abandoned = False

    def close(self) -> None:
        """Close everything: readers get the end of the output, and writers a broken pipe."""
        self._abandoned = self._broken = True
        self._handle.hang_up()
        with self._reading, self._writing:
            self._close_stdin()
            self._close_outputs()

    @property
    def _has_ended(self) -> bool:
        return not self._outputs or self._abandoned

    def _await_output(self, deadline: float | None) -> None:
        over = self._handle.is_over()
        ready = self._wait(0.0 if over else _left(deadline), over=over)
        self._read(ready)
        if over and not ready:
            self._close_outputs()
        elif not ready:
            raise TimeoutError

    def _wait(self, seconds: float | None, *, over: bool) -> list[int]:
        """Wait for output, and return the descriptors that are ready.

        Unless the process is ``over``, the wait also ends when its report arrives, or when there is room for pending
        stdin.
        """
        poll = select.poll()
        for descriptor in self._outputs:
            poll.register(descriptor, select.POLLIN)
        if not over:
            poll.register(self._handle, select.POLLIN)
            if self._pending and self._stdin is not None and not self._broken:
                poll.register(self._stdin, select.POLLOUT)
        return [descriptor for descriptor, _ in poll.poll(None if seconds is None else seconds * 1000)]

    def _read(self, ready: list[int]) -> None:
        for descriptor in ready:
            if descriptor in self._outputs:
                self._read_output(descriptor)
            elif descriptor == self._stdin:
                self._write_if_free()

    def _read_output(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _READ)
        except BlockingIOError:
            return
        if data:
            self._ready.append((self._outputs[descriptor], data))
        else:
            del self._outputs[descriptor]
            os.close(descriptor)

    def _await_room(self) -> None:
        self._raise_if_broken()
        poll = select.poll()
        if self._stdin is not None:
            poll.register(self._stdin, select.POLLOUT)
        poll.register(self._handle, 0)  # a hang-up means that the process is gone, even if its stdin is open elsewhere
        if any(descriptor == self._handle.fileno() for descriptor, _ in poll.poll()):
            self._broken = True

    def _write_some(self, data: memoryview) -> int:
        if self._stdin is None:
            raise BrokenPipeError
        return os.write(self._stdin, data[:_READ])

    def _close_stdin(self) -> None:
        self._broken = True
        if self._stdin is not None:
            descriptor, self._stdin = self._stdin, None
            os.close(descriptor)

    def _close_outputs(self) -> None:
        close_all(self._outputs)
        self._outputs.clear()

    def _is_broken(self) -> bool:
        # The runtime or the init keeps the streams open while it runs. If both outputs have ended, it is exiting.
        return self._broken or not self._outputs or self._handle.is_over()


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


class OciProcess(BoundedProcess["OciStreams"]):
    """A started command. Each call of :meth:`abandon`, including the one in :meth:`wait`, calls ``on_end``."""

    hanging = (
        "a sandbox was not stopped within {:g} s of its time limit",
        "check what keeps this machine busy, then continue with --resume",
    )
    start_seconds = 300.0

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
        """Discard unread output and wait until the command exits. Return how it ended."""
        while self.receive() is not None:
            pass
        with self._waiting:
            if self._state is None:
                try:
                    reached(FaultPoint.SANDBOX_WAIT)
                    self._state = self._final_state(self._handle.report(self._remaining()))
                except EngineError:
                    if self._abandoned:
                        raise InfrastructureError("this sandbox was closed", code="sandbox-closed") from None
                    raise
                finally:
                    self.abandon()
            return self._state

    def kill(self) -> None:
        """Ask the supervisor to kill the command's sandbox. Do not wait for it."""
        self._streams.break_pipe()
        self._handle.kill()

    def changes(self, path: str) -> CollectedLayer:
        """Return the exited command's changes in ``path``. Raises the errors of :meth:`Sandbox.collected`."""
        if self._state is None:
            raise nothing_to_collect()
        return changed_layer(self._handle, path)

    def release_changes(self) -> None:
        """Close the directory with the command's changes. Call this after :meth:`abandon`."""
        self._handle.release_changes()

    def await_end(self) -> None:
        """Wait until no process of the killed sandbox is running, for at most ``KILL_GRACE`` seconds."""
        self._handle.await_end(KILL_GRACE)

    def abandon(self) -> None:
        """Close the command's streams and channel. If the command is still running, its sandbox is killed."""
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
        """Return the exit code. Raises :class:`InfrastructureError` for failures of the machine or the runtime.

        Processes in a sandbox can end the sandbox, or crash gVisor's kernel. The command is then killed with the
        sandbox, and the command's runtime cannot report an exit code. If the container had started and has exited, and
        the machine did not cause the exit, this counts as a SIGKILL of the command. In all other cases, it counts as a
        failure of the machine or the runtime.
        """
        try:
            return _reported_exit_code(report, command=self._handle.is_command)
        except InfrastructureError:
            began = report.started or _HAS_ENDED.search(report.log)
            if began and not report.lost and self._handle.container_exited(_EXIT_NOTICE_SECONDS):
                return _SIGKILLED
            raise


def raise_failure(report: ProcessReport) -> NoReturn:
    """Raise the error of a container that exited too early.

    Raises :class:`MaterializationError` for an unsafe mount, and :class:`InfrastructureError` otherwise.
    """
    code = _reported_exit_code(report, command=False)
    raise InfrastructureError(f"a sandbox exited with code {code} before it could run anything")


def _reported_exit_code(report: ProcessReport, *, command: bool) -> int:
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
        raise InfrastructureError(f"the runtime could not start a sandbox or a command in it: {problem}")
    return code


def _require_start(report: ProcessReport) -> None:
    """Raise :class:`InfrastructureError` if the runtime exited or timed out before it started anything.

    Do nothing if the driver killed the runtime, or if the sandbox's memory limit is too low for the runtime.
    """
    cancelled = report.killed and not report.timed_out
    if not report.started and not cancelled and not report.out_of_memory:
        how = "reached the time limit" if report.timed_out else f"exited with code {report.exit}"
        raise InfrastructureError(
            f"the runtime {how} before it started anything, and its log does not say why",
            hint="run the runtime manually to check that it works, then continue with --resume",
        )


def _hint(lost: str) -> str:
    if lost == MACHINE_MEMORY:
        return "run fewer tasks at once (--workers), or lower 'sandbox.limits.memory'"
    return "find out what killed or delayed the sandbox on this machine, then continue with --resume"


def _refused(report: ProcessReport) -> InfrastructureError | MaterializationError:
    if report.unsafe:
        return MaterializationError(
            report.failed,
            code="mount-unsafe",
            hint="mount a regular file or directory that no other user can change, by its real path (Path.resolve())",
        )
    return InfrastructureError(f"cannot start a sandbox or a command in it: {report.failed}")


def _runtime_error(log: str) -> str:
    """Return the errors in a runtime's log, joined by semicolons, or an empty string."""
    messages = []
    for line in log.splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict):
            messages.append(line)  # written by the supervisor, or damaged
        elif str(entry.get("level", "error")) in {"error", "fatal"}:
            messages.append(str(entry.get("msg", line)))
    return "; ".join(messages)


def _start_failure_code(problem: str) -> int | None:
    """Return 127 or 126, as shells do, if a program or working directory is missing or unusable, otherwise ``None``.

    This is only for commands in a running container. The first program of a container is started by the init, which
    returns such a code itself.
    """
    words = problem.lower()
    if not any(sign in words for sign in _NOT_RUN_SIGNS):
        return None
    return _NOT_FOUND if "no such file" in words or "not found" in words else _NOT_EXECUTABLE


def changed_layer(handle: ProcessHandle, path: str) -> CollectedLayer:
    """Return the changes in ``path`` of an exited container. Raises the errors of :meth:`Sandbox.collected`."""
    report = handle.report(0.0)
    outcome = report.collected
    if outcome == UNCHANGED:
        return CollectedLayer(-1)
    if outcome == REPLACED:
        raise DirectoryReplacedError(path)
    if outcome != CHANGED:
        raise _changes_lost(outcome) if outcome else nothing_to_collect()
    if handle.descriptor < 0:
        raise _changes_lost(_TOO_MANY_FILES)
    return CollectedLayer(handle.descriptor, report.opaque, whole=report.whole)


def _changes_lost(why: str) -> InfrastructureError:
    return InfrastructureError(
        f"cannot receive the files that were changed in a sandbox: {why}",
        hint=disk_hint(errno.EMFILE) if _TOO_MANY_FILES in why else "",
    )
