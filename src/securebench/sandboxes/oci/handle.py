"""The driver's handle of a container, or of a command in one, and the supervisor's reports about it."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from securebench.errors import EngineError, InfrastructureError
from securebench.ipc.frames import FrameError, pack, receive, send
from securebench.sandboxes.oci.wire import FORWARDED_PORTS, KILL, LIMIT, REPORT_DESCRIPTORS, ProcessReport

if TYPE_CHECKING:
    from collections.abc import Iterator


class ProcessHandle:
    """The driver's handle of a container, or of a command in one. Thread-safe. ``fileno`` is only for polling.

    For a command, ``within`` is the container in which it runs. ``descriptor``, from its report, is the directory of
    the container's changes, or -1.
    """

    def __init__(self, channel: socket.socket, within: ProcessHandle | None = None) -> None:
        self._channel = channel
        self._within = within
        weakref.finalize(self, channel.close)  # not earlier: another thread may be polling it
        self._reading = threading.Lock()
        self._report: ProcessReport | None = None
        self._lost = False
        self._listeners: list[socket.socket] | None = None
        self.descriptor = -1

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when there is a report, and hangs up at the end."""
        return self._channel.fileno()

    def is_over(self) -> bool:
        """Whether its exit was reported, or never will be."""
        with self._reading:
            if self._report is None and not self._lost:
                self._read()
            return self._report is not None or self._lost

    def report(self, timeout: float) -> ProcessReport:
        """Wait until it exits.

        Raises :class:`EngineError` if the supervisor is gone, or reports nothing for ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while not self.is_over():
            self._await_readable(deadline)
        if self._report is None:
            raise gone()
        return self._report

    def listeners(self, timeout: float) -> list[socket.socket]:
        """Wait for the listening sockets of its forwarded ports. Empty if it exited first: see :meth:`report`.

        Raises the errors of :meth:`report`, and :class:`InfrastructureError` if this process has too many open files.
        """
        deadline = time.monotonic() + timeout
        with self._reading:
            while self._listeners is None and self._report is None and not self._lost:
                self._await_readable(deadline)
                self._read()
            listeners, self._listeners = self._listeners or [], None
        return listeners

    def await_end(self, timeout: float) -> None:
        """Wait until it is no longer running. If the supervisor is gone, nothing is."""
        with suppress(EngineError):
            self.report(timeout)

    @property
    def is_command(self) -> bool:
        """Whether it is a command in an existing container."""
        return self._within is not None

    def container_exited(self, timeout: float) -> bool:
        """Whether the container in which it ran has exited as well, or does so within ``timeout`` seconds.

        ``False`` if that container was lost: then nothing that ran in it is the cause.
        """
        if self._within is None:
            return False
        try:
            return not self._within.report(timeout).lost
        except EngineError:  # it is still running, or its state is unknown
            return False

    def kill(self) -> None:
        """Request the kill of its whole sandbox, without waiting."""
        with suppress(OSError):
            send(self._channel, pack({KILL: True}))

    def limit(self, seconds: float) -> None:
        """Set its time limit to ``seconds`` from now."""
        with suppress(OSError):
            send(self._channel, pack({LIMIT: seconds}))

    def hang_up(self) -> None:
        """Close the channel: the supervisor kills the process if it is still running, and pollers see a hang-up."""
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)

    def release_changes(self) -> None:
        """Release the directory of ``descriptor``.

        The number stays in use, for the channel, so that a thread that still reads it cannot hit another file.
        """
        with self._reading:
            if self._report is None and not self._lost:
                self._read()
            if self.descriptor >= 0:
                os.dup2(self._channel.fileno(), self.descriptor, inheritable=False)

    def _await_readable(self, deadline: float) -> None:
        poll = select.poll()
        poll.register(self, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise EngineError("the supervisor did not report on a sandbox in time", hint="check what keeps it busy")

    def _read(self) -> None:
        try:
            # A report without its descriptors is still useful, and their users notice that they are missing.
            received = receive(self._channel, REPORT_DESCRIPTORS, may_lose_descriptors=True)
        except BlockingIOError:
            return
        except (OSError, FrameError):
            received = None
        if received is None:
            self._lost = True
            return
        body, descriptors = received
        if FORWARDED_PORTS in body:
            self._listeners = _sockets(descriptors, body[FORWARDED_PORTS])
            return
        self._report = ProcessReport(**body)
        if descriptors:
            self.descriptor = descriptors[0]
            weakref.finalize(self, os.close, self.descriptor)  # not earlier: another thread may be reading it


def _sockets(descriptors: list[int], expected: int) -> list[socket.socket]:
    listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    with descriptor_errors():
        if len(listeners) < expected:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return listeners


@contextmanager
def descriptor_errors() -> Iterator[None]:
    """Turn ``OSError``, such as for too many open files, into :class:`InfrastructureError` with a hint."""
    try:
        yield
    except OSError as error:
        raise InfrastructureError(
            f"this process cannot start another sandbox: {error}",
            hint="raise its limit of open files (ulimit -n), or run fewer tasks at once (--workers)",
        ) from error


def gone() -> EngineError:
    """Return the error for a supervisor that is gone."""
    return EngineError(
        "the supervisor of the sandboxes exited unexpectedly, and all sandboxes ended with it",
        code="sandbox-supervisor-gone",
        hint="check whether something killed it, such as the kernel for lack of memory; then continue with --resume",
    )
