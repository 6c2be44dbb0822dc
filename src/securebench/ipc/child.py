"""A child process that runs a module of SecureBench, and serves its parent over a channel of frames.

The child starts with its own environment, one descriptor besides the standard streams, and no ``site-packages``. It
exits when the parent's end of the channel is closed, so it does not outlive its parent. If a third process may have a
copy of that end open, the child has to watch the parent process, too.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from securebench.faults import FaultPoint, code_for_children, reached
from securebench.ipc.frames import FrameError, channel_pair, pack, receive, send

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SOURCE: Final = str(Path(__file__).resolve().parents[2])
_BOOT: Final = "import sys; sys.path += {paths!r}; from {module} import main; main(int(sys.argv[1]))"
"""With ``-I -S``, Python ignores its environment variables and ``.pth`` files, so the paths are set here."""

_SEND_SECONDS: Final = 30
"""Seconds for which sending a frame may wait while the child does not read."""

_EXIT_SECONDS: Final = 5.0
"""Seconds for a child to exit after it has closed its channel."""

_STDERR_BYTES: Final = 64 * 1024
_TAIL_BYTES: Final = 4096


class ChildError(Exception):
    """A child could not start, did not become ready, or has exited. The message is the reason."""


class SupervisedChild:
    """A child process that runs ``main(descriptor)`` of ``module``. ``channel`` is the parent's end of its channel.

    The first frame to the child holds ``settings`` and ``descriptors``: see
    :func:`~securebench.ipc.frames.inherited_channel`.
    ``paths`` are directories to import from, in addition to SecureBench's own. ``launcher`` is the command (a program
    and its arguments) that runs the interpreter and exits when the interpreter exits.
    """

    def __init__(
        self,
        module: str,
        settings: Mapping[str, Any],
        descriptors: Sequence[int] = (),
        *,
        paths: Sequence[str] = (),
        launcher: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the child. Raises :class:`ChildError`."""
        self._resources = ExitStack()
        boot = code_for_children() + _BOOT.format(paths=[_SOURCE, *paths], module=module)
        try:
            reached(FaultPoint.CHILD_START, module)
            self.channel, inherited = channel_pair()
            self._resources.enter_context(self.channel)
            with inherited:
                self.channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_SECONDS, 0))
                send(self.channel, pack(settings), descriptors)
                self._stderr = _bounded_file(_STDERR_BYTES)
                self._resources.callback(os.close, self._stderr)
                self._process = subprocess.Popen(  # noqa: S603 - our own code
                    [*launcher, sys.executable, "-I", "-S", "-c", boot, str(inherited.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._stderr,
                    pass_fds=(inherited.fileno(),),
                    env=dict(environment or {}),
                    cwd="/",
                    start_new_session=True,  # an interrupt from the terminal is for the parent, which ends the child
                )
                # Opened now, because later another thread may have reaped the child, and its id may be in use again.
                try:
                    self._exited = os.pidfd_open(self._process.pid)
                except OSError:  # there are too many open files
                    self._process.kill()
                    self._process.wait()
                    raise
                self._resources.callback(os.close, self._exited)
        except (OSError, FrameError) as error:
            self._resources.close()
            raise ChildError(str(error)) from error

    @property
    def pid(self) -> int:
        """The process id of the child, or of ``launcher`` if there is one."""
        return self._process.pid

    def is_running(self) -> bool:
        """Whether the child is still running."""
        return self._process.poll() is None

    def await_ready(self, seconds: float) -> dict[str, Any]:
        """Wait for the child's first frame, which means that it is ready, and return the frame's body.

        Raises :class:`ChildError` if no frame arrives within ``seconds``, or if the child sends ``{"failed": reason}``
        or exits.
        """
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        if not poll.poll(seconds * 1000):
            raise ChildError(f"the process was not ready within {seconds:g} s")
        try:
            frame = receive(self.channel)
        except (OSError, FrameError) as error:
            raise ChildError(f"the process did not report that it is ready: {error}") from error
        if frame is None:
            self.stop(_EXIT_SECONDS)
            raise ChildError(self.exit_reason())
        if "failed" in frame.body:
            raise ChildError(frame.body["failed"])
        return frame.body

    def kill(self) -> None:
        """Kill the child, and do not wait for its exit."""
        self._process.kill()

    def stop(self, seconds: float) -> None:
        """Shut down the channel and wait for the child to exit. Kill it after ``seconds``. Idempotent."""
        with suppress(OSError):
            self.channel.shutdown(socket.SHUT_RDWR)
        if not self._await_exit(seconds):
            self._process.kill()
        self._process.wait()

    def _await_exit(self, seconds: float) -> bool:
        """Return whether the child exits within ``seconds``. ``Popen.wait`` with a timeout would sleep up to 50 ms."""
        if self._process.poll() is not None:
            return True
        poll = select.poll()
        poll.register(self._exited, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def exit_reason(self) -> str:
        """Return the last line of the child's stderr, or how it exited. Call this between ``stop`` and ``close``."""
        # The child writes through the same open file, so the file's position is the end of what it has written.
        end = os.lseek(self._stderr, 0, os.SEEK_CUR)
        tail = os.pread(self._stderr, min(end, _TAIL_BYTES), max(0, end - _TAIL_BYTES))
        lines = tail.decode("utf-8", "replace").strip().splitlines()
        code = self._process.returncode
        return lines[-1] if lines else f"killed by signal {-code}" if code < 0 else f"exit status {code}"

    def close(self, seconds: float) -> None:
        """Stop the child as :meth:`stop` does, and close the channel. Idempotent."""
        self.stop(seconds)
        self._resources.close()


def _bounded_file(size: int) -> int:
    """Return the descriptor of a new file in memory that holds ``size`` bytes and cannot grow.

    So the output of a child cannot fill the memory. A write to this file never blocks the child. A write to a pipe
    that nobody reads would block it.
    """
    descriptor = os.memfd_create("stderr", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return descriptor
