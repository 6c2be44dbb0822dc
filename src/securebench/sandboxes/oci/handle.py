"""A process as its driver sees it: a container or a command in one, and what its supervisor reports of it."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from securebench.errors import EngineError, InfrastructureError
from securebench.ipc.frames import FrameError, pack, receive, send
from securebench.sandboxes.oci.wire import FORWARDED_PORTS, KILL, LIMIT, REPORT_DESCRIPTORS

if TYPE_CHECKING:
    from collections.abc import Iterator


class ProcessHandle:
    """A container, or a command in one, as its driver sees it. Thread safe. ``fileno`` is for polling alone.

    ``within`` is the container in which it runs, if it is a command. ``descriptor`` came with its report, or is -1: a
    directory that the container has changed.
    """

    def __init__(self, channel: socket.socket, within: ProcessHandle | None = None) -> None:
        self._channel = channel
        self._within = within
        weakref.finalize(self, channel.close)  # not before: somebody may be polling it
        self._reading = threading.Lock()
        self._report: dict[str, Any] | None = None
        self._lost = False
        self._listeners: list[socket.socket] | None = None
        self.descriptor = -1

    def fileno(self) -> int:
        """Return the descriptor that becomes readable with the report, and hangs up with the end."""
        return self._channel.fileno()

    def is_over(self) -> bool:
        """Whether its end was reported, or will never be."""
        with self._reading:
            if self._report is None and not self._lost:
                self._read()
            return self._report is not None or self._lost

    def report(self, timeout: float) -> dict[str, Any]:
        """Wait for its end.

        Raises :class:`EngineError` when the supervisor is gone, or silent for ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while not self.is_over():
            self._await_readable(deadline)
        if self._report is None:
            raise gone()
        return self._report

    def listeners(self, timeout: float) -> list[socket.socket]:
        """Wait for the listening sockets of its forwarded ports. None if it ended before, as :meth:`report` then says.

        Raises as :meth:`report` does, and :class:`InfrastructureError` when this process has no room for them.
        """
        deadline = time.monotonic() + timeout
        with self._reading:
            while self._listeners is None and self._report is None and not self._lost:
                self._await_readable(deadline)
                self._read()
            listeners, self._listeners = self._listeners or [], None
        return listeners

    def await_end(self, timeout: float) -> None:
        """Wait for its end, however it is told: without a supervisor nothing runs at all."""
        with suppress(EngineError):
            self.report(timeout)

    @property
    def is_command(self) -> bool:
        """Whether it runs in a container that was there before it."""
        return self._within is not None

    def fell(self, patience: float) -> bool:
        """Whether the container in which it ran has ended as well, or does within ``patience`` seconds.

        Not if that was lost itself: what ran in it has not brought that about.
        """
        if self._within is None:
            return False
        try:
            return not self._within.report(patience).get("lost")
        except EngineError:  # it lives, or nobody can say how it went
            return False

    def kill(self) -> None:
        """Ask for the end of its whole sandbox, and do not wait for it."""
        with suppress(OSError):
            send(self._channel, pack({KILL: True}))

    def limit(self, seconds: float) -> None:
        """Set its time limit to ``seconds`` from now."""
        with suppress(OSError):
            send(self._channel, pack({LIMIT: seconds}))

    def hang_up(self) -> None:
        """Let go of it: the supervisor ends it if it still runs, and whoever polls sees a hang-up."""
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)

    def forget_changes(self) -> None:
        """Let go of what ``descriptor`` is of. Who still reads it finds nothing, and nothing else, by its number."""
        with self._reading:
            if self._report is None and not self._lost:
                self._read()
            if self.descriptor >= 0:
                os.dup2(self._channel.fileno(), self.descriptor, inheritable=False)

    def _await_readable(self, deadline: float) -> None:
        poll = select.poll()
        poll.register(self, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise EngineError("nothing was heard of a sandbox in time", hint="look at what keeps this machine busy")

    def _read(self) -> None:
        try:
            # A report is worth more than its descriptors: what uses those sees that they are missing.
            received = receive(self._channel, REPORT_DESCRIPTORS, may_lose_descriptors=True)
        except BlockingIOError:
            return
        except (OSError, FrameError):
            received = None
        if received is None:
            self._lost = True
            return
        report, descriptors = received
        if FORWARDED_PORTS in report:
            self._listeners = _sockets(descriptors, report[FORWARDED_PORTS])
            return
        self._report = report
        if descriptors:
            self.descriptor = descriptors[0]
            weakref.finalize(self, os.close, self.descriptor)  # not before: somebody may be reading it


def _sockets(descriptors: list[int], expected: int) -> list[socket.socket]:
    listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    with exhaustion():
        if len(listeners) < expected:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return listeners


@contextmanager
def exhaustion() -> Iterator[None]:
    """Say so where this process has no room for more descriptors. Raises :class:`InfrastructureError`."""
    try:
        yield
    except OSError as error:
        raise InfrastructureError(
            f"this process cannot start another sandbox: {error}",
            hint="raise its limit of open files (ulimit -n), or run fewer tasks at once (--workers)",
        ) from error


def gone() -> EngineError:
    """Return the error that says that the supervisor is gone."""
    return EngineError(
        "the process that keeps the sandboxes has ended, and all of them with it",
        code="sandbox-supervisor-gone",
        hint="check whether something killed it, such as the kernel for lack of memory; then continue with --resume",
    )
