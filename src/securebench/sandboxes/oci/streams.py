"""The driver's ends of the pipes that are the standard streams of a process in a sandbox."""

from __future__ import annotations

import itertools
import os
import select
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from securebench.sandboxes.base import Stream
from securebench.sandboxes.oci.handle import descriptor_errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.sandboxes.base import Chunk
    from securebench.sandboxes.oci.handle import ProcessHandle

_READ = 64 * 1024


class Pipes:
    """Three new pipes. ``remote`` are the process's ends, to be closed here; the others are the driver's ends."""

    def __init__(self) -> None:
        """Create them. Raises :class:`InfrastructureError` if this process has too many open files."""
        pairs: list[tuple[int, int]] = []
        with descriptor_errors():
            try:
                pairs.extend(os.pipe2(os.O_CLOEXEC) for _ in range(3))
            except OSError:
                _close(itertools.chain(*pairs))
                raise
        (stdin, self.stdin), (self.stdout, stdout), (self.stderr, stderr) = pairs
        self.remote = (stdin, stdout, stderr)
        for descriptor in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(descriptor, False)

    def close_remote(self) -> None:
        """Close the process's ends, which have been passed on."""
        _close(self.remote)

    def close_local(self) -> None:
        """Close the driver's ends, if they are not used by an :class:`OciStreams`."""
        _close((self.stdin, self.stdout, self.stderr))


class OciStreams:
    """Stdin, stdout and stderr of a process. One thread receives; others may send and close."""

    def __init__(self, pipes: Pipes, handle: ProcessHandle, stdin: bytes = b"") -> None:
        self._handle = handle
        self._stdin: int | None = pipes.stdin
        self._outputs = {pipes.stdout: Stream.STDOUT, pipes.stderr: Stream.STDERR}
        self._ready: deque[Chunk] = deque()
        self._pending = memoryview(stdin)
        self._reading = threading.RLock()
        self._writing = threading.RLock()
        self._close_after_pending = False
        self._broken = False
        self._abandoned = False

    def receive(self, timeout: float | None) -> Chunk | None:
        """Return the next output, or ``None`` at the end. Raises ``TimeoutError`` after ``timeout`` seconds.

        While it waits, it also sends the rest of the initial stdin, so that neither side can block the other. The
        output ends when both streams are closed or the process has exited: processes that it left are not waited for.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._reading:
            while not self._ready and self._outputs and not self._abandoned:
                over = self._handle.is_over()
                ready = self._wait(0.0 if over else _left(deadline), over=over)
                self._read(ready)
                if over and not ready:
                    self._close_outputs()
                elif not ready:
                    raise TimeoutError
            return self._ready.popleft() if self._ready else None

    def send(self, data: bytes) -> None:
        """Write all of ``data``. Raises ``BrokenPipeError`` if the other end is closed, also while it is blocked."""
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
        """Make :meth:`send` raise ``BrokenPipeError``; a blocked call raises it when the process is gone."""
        self._broken = True

    def close(self) -> None:
        """Close everything: readers get the end of the output, and writers a broken pipe."""
        self._abandoned = self._broken = True
        self._handle.hang_up()
        with self._reading, self._writing:
            self._close_stdin()
            self._close_outputs()

    def _wait(self, seconds: float | None, *, over: bool) -> list[int]:
        """Return the descriptors that are ready: outputs, stdin if data is pending, the process until it exits."""
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
            elif descriptor == self._stdin and self._writing.acquire(blocking=False):
                try:
                    self._write()
                finally:
                    self._writing.release()

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

    def _flush(self) -> None:
        while self._pending:
            self._await_room()
            self._write()
        self._raise_if_broken()

    def _await_room(self) -> None:
        self._raise_if_broken()
        poll = select.poll()
        if self._stdin is not None:
            poll.register(self._stdin, select.POLLOUT)
        poll.register(self._handle, 0)  # a hang-up means that the process is gone, even if others have its stdin open
        if any(descriptor == self._handle.fileno() for descriptor, _ in poll.poll()):
            self._broken = True

    def _write(self) -> None:
        if self._broken or self._stdin is None:
            self._pending = memoryview(b"")
            return
        try:
            self._pending = self._pending[os.write(self._stdin, self._pending[:_READ]) :]
        except BlockingIOError:
            return
        except OSError:
            self._broken = True
            self._pending = memoryview(b"")
        if not self._pending and self._close_after_pending:
            self._close_stdin()

    def _close_stdin(self) -> None:
        self._broken = True
        if self._stdin is not None:
            descriptor, self._stdin = self._stdin, None
            os.close(descriptor)

    def _close_outputs(self) -> None:
        _close(self._outputs)
        self._outputs.clear()

    def _raise_if_broken(self) -> None:
        # The runtime, or the init, keeps the streams open while it runs. When both outputs end, it is exiting.
        if self._broken or not self._outputs or self._handle.is_over():
            self._pending = memoryview(b"")
            raise BrokenPipeError("the process no longer reads its stdin")


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
