"""The life cycle of sandboxes and processes of the docker and oci drivers, and the limits on processes.

A sandbox is created, runs commands and is closed. If the run is stopped, its sandboxes are closed early. A process has
a limit on its output and a time by which it must have exited.

The task's thread starts commands and closes the sandbox. Another thread may stop the run, and with Docker, further
threads remove containers in the background. Starting and killing a container is slow and calls back into this code, so
no lock is held meanwhile. This allows three races. In the first two, at least one of the two threads sees what the
other did:

* *Creating while the run stops.* The creator adds its sandbox to the open sandboxes, then checks the stop flag. The
  stopping thread sets the flag, then lists the open sandboxes. So either the list includes the new sandbox, or its
  creator closes it.
* *Starting a command while closing.* The starting thread adds the command to the running commands, then checks the
  closed flag. The closing thread sets the flag, then lists the running commands. If each thread sees
  what the other did, the command is killed twice, which is harmless.
* *Two threads end the same thing.* Anything that must be ended only once is claimed first (:func:`claim`). A persistent
  container has a descriptor to close, and a second close could hit an unrelated descriptor with the same number.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from securebench.errors import EngineError, InfrastructureError
from securebench.faults import FaultPoint, reached
from securebench.sandboxes.base import Sandbox, SandboxProcess
from securebench.sandboxes.spec_rules import one_command_only

if TYPE_CHECKING:
    from securebench.sandboxes.base import Chunk, Command, SandboxSpec

T = TypeVar("T")
SandboxT = TypeVar("SandboxT", bound=Sandbox)
ProcessT = TypeVar("ProcessT", bound=SandboxProcess)

KILL_GRACE = 30.0
"""Seconds within which a sandbox must exit after its time limit.

If it does not, its supervisor or engine is treated as hung.
"""


def claim(items: set[T], item: T) -> bool:
    """Remove ``item`` from ``items``. Return whether it was present, which is true for only one of several threads."""
    try:
        items.remove(item)  # atomic: the interpreter does not switch threads within it
    except KeyError:
        return False
    return True


class OpenSandboxes(Generic[SandboxT]):
    """The open sandboxes of a driver, and whether it may create more. Thread-safe."""

    def __init__(self) -> None:
        self._open: set[SandboxT] = set()
        self._stopped = threading.Event()

    @property
    def is_stopped(self) -> bool:
        """Whether the run is stopping."""
        return self._stopped.is_set()

    def raise_if_stopped(self) -> None:
        """Raise :class:`EngineError` (``run-stopped``) if the run is stopping."""
        if self.is_stopped:
            raise EngineError("the run is stopping: no more sandboxes are started", code="run-stopped")

    def add(self, sandbox: SandboxT) -> None:
        """Add ``sandbox`` to the open sandboxes."""
        self._open.add(sandbox)

    def claim(self, sandbox: SandboxT) -> bool:
        """Remove ``sandbox`` from the open sandboxes. Return ``True`` to exactly one caller."""
        return claim(self._open, sandbox)

    def stop(self) -> set[SandboxT]:
        """Allow no more sandboxes. Return the open ones, which the caller closes."""
        self._stopped.set()
        return self._open.copy()


class DriverSandbox(Sandbox, Generic[ProcessT]):
    """Base class of the sandboxes of the docker and oci drivers. ``siblings`` are the open sandboxes of the driver.

    A subclass removes each process from ``_running`` when it has ended.
    """

    def __init__(self, siblings: OpenSandboxes[Any], spec: SandboxSpec) -> None:
        """Prepare the sandbox. If this fails, clean up and raise :class:`InfrastructureError`."""
        self._siblings = siblings
        self._spec = spec
        self._running: set[ProcessT] = set()
        self._collecting: ProcessT | None = None
        self._closed = False
        siblings.raise_if_stopped()
        reached(FaultPoint.SANDBOX_CREATE)
        self._prepare()
        siblings.add(self)
        if siblings.is_stopped:  # the thread that stops the run may have missed this sandbox
            self.close()
            siblings.raise_if_stopped()

    def open(self, command: Command) -> ProcessT:
        """Start ``command``. Raises :class:`InfrastructureError`."""
        self._raise_if_closed()
        if self._collecting is not None:
            raise one_command_only()
        reached(FaultPoint.SANDBOX_START)
        process = self._start_command(command)
        self._running.add(process)
        if self._spec.collect is not None:
            self._collecting = process
        if self._closed or self._siblings.is_stopped:  # the closing thread may have missed the new command
            self.close()
            self._raise_if_closed()
        return process

    def close(self) -> None:
        """Stop all processes of this sandbox.

        When this method returns, none of them can still change files of the host.
        """
        self._closed = True
        reached(FaultPoint.SANDBOX_CLOSE)
        self._end_commands()
        if self._siblings.claim(self):
            self._end_container()

    def _raise_if_closed(self) -> None:
        self._siblings.raise_if_stopped()
        if self._closed:
            raise InfrastructureError("this sandbox is closed", code="sandbox-closed")

    def _prepare(self) -> None:
        """Start the container of a persistent sandbox. An ephemeral sandbox has none before its first command."""

    @abstractmethod
    def _start_command(self, command: Command) -> ProcessT:
        """Start ``command`` and return its process."""

    @abstractmethod
    def _end_commands(self) -> None:
        """Stop running commands. May be called repeatedly, and by several threads at once."""

    def _end_container(self) -> None:
        """Stop the container of a persistent sandbox. Called once."""


class ProcessStreams(ABC):
    """The standard streams of a process. One thread receives; others may send and close.

    The thread that receives also sends the rest of the initial stdin, so that neither side can block the other.
    """

    def __init__(self, stdin: bytes) -> None:
        self._ready: deque[Chunk] = deque()
        self._pending = memoryview(stdin)
        self._reading = threading.RLock()
        self._writing = threading.RLock()
        self._close_after_pending = False
        self._broken = False
        """Whether no more data can be sent."""

    def receive(self, timeout: float | None) -> Chunk | None:
        """Return the next output, or ``None`` at the end. Raises ``TimeoutError`` after ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._reading:
            while not self._ready and not self._has_ended:
                self._await_output(deadline)
            return self._ready.popleft() if self._ready else None

    def send(self, data: bytes) -> None:
        """Write all of ``data``. Raises ``BrokenPipeError`` if the other end is closed before or during the call."""
        with self._writing:
            self._flush()
            self._pending = memoryview(data)
            self._flush()

    def close_stdin(self) -> None:
        """Close stdin after sending pending data."""
        with self._writing:
            self._close_after_pending = True
            if not self._pending:
                self._close_stdin()

    def break_pipe(self) -> None:
        """Make :meth:`send` raise ``BrokenPipeError``. A call that is already blocked raises it soon after."""
        self._broken = True

    @property
    @abstractmethod
    def _has_ended(self) -> bool:
        """Whether there is no more output."""

    @abstractmethod
    def _await_output(self, deadline: float | None) -> None:
        """Wait for output, and send pending data meanwhile. Raises ``TimeoutError``."""

    @abstractmethod
    def _await_room(self) -> None:
        """Wait until data can be sent. Raises ``BrokenPipeError`` if the process is gone."""

    @abstractmethod
    def _write_some(self, data: memoryview) -> int:
        """Send a part of ``data``, and return its length. Raises ``OSError``."""

    @abstractmethod
    def _close_stdin(self) -> None:
        """Close stdin now, if it is open."""

    def _is_broken(self) -> bool:
        return self._broken

    def _flush(self) -> None:
        while self._pending:
            self._await_room()
            self._write()
        self._raise_if_broken()

    def _write(self) -> None:
        if self._broken:
            self._pending = memoryview(b"")
            return
        try:
            self._pending = self._pending[self._write_some(self._pending) :]
        except BlockingIOError:
            return
        except OSError:
            self._broken = True
            self._pending = memoryview(b"")
        if not self._pending and self._close_after_pending:
            self._close_stdin()

    def _write_if_free(self) -> None:
        """Send pending data, unless another thread is sending."""
        if self._writing.acquire(blocking=False):
            try:
                self._write()
            finally:
                self._writing.release()

    def _raise_if_broken(self) -> None:
        if self._is_broken():
            self._pending = memoryview(b"")
            raise BrokenPipeError("the process no longer reads its stdin")


StreamsT = TypeVar("StreamsT", bound=ProcessStreams)


class BoundedProcess(SandboxProcess, Generic[StreamsT]):
    """A started command. Its output is limited to ``output_limit`` bytes.

    If the command has not ended ``KILL_GRACE`` seconds after its time limit, :meth:`receive` raises
    :class:`EngineError`.
    """

    hanging: ClassVar[tuple[str, str]]
    """Message and hint of the error for a sandbox that did not stop in time. ``{:g}`` is ``KILL_GRACE`` in seconds."""
    start_seconds: ClassVar[float] = 0.0
    """Seconds that the start of the command may take. They do not count towards its time limit."""

    def __init__(self, streams: StreamsT, command: Command, output_limit: int) -> None:
        self._streams = streams
        self._output_left = output_limit
        self._give_up = time.monotonic() + self.start_seconds + command.timeout_seconds + KILL_GRACE

    def send(self, data: bytes) -> None:
        """Write all of ``data`` to the command's stdin."""
        self._streams.send(data)

    def close_stdin(self) -> None:
        """Close the command's stdin."""
        self._streams.close_stdin()

    def receive(self, timeout: float | None = None) -> Chunk | None:
        """Return the next output, or ``None`` after the last.

        Drop output beyond the limit, and kill the sandbox that wrote it.
        """
        while True:
            chunk = self._receive_bounded(timeout)
            if chunk is None:
                return None
            stream, data = chunk
            kept = data[: self._output_left]
            self._output_left -= len(kept)
            if len(kept) < len(data):
                self._end_for_output()
            if kept:
                return stream, kept

    @abstractmethod
    def _end_for_output(self) -> None:
        """Kill the sandbox for exceeding the output limit. May be called repeatedly until the command exits."""

    def _receive_bounded(self, timeout: float | None) -> Chunk | None:
        reached(FaultPoint.SANDBOX_READ)
        remaining = self._remaining()
        if timeout is not None and timeout < remaining:
            return self._streams.receive(timeout)
        try:
            return self._streams.receive(remaining)
        except TimeoutError:
            message, hint = self.hanging
            raise EngineError(message.format(KILL_GRACE), hint=hint) from None

    def _remaining(self) -> float:
        return max(0.1, self._give_up - time.monotonic())
