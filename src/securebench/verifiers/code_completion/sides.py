"""The two sides of a judgement: their sandboxes, the programs in them, and whether a sandbox is kept afterwards.

The candidate's side is always a new sandbox. The tests' side may be a sandbox in which the tests of earlier tasks have
run, each in a process of its own (``guest/forks.py``).
"""

from __future__ import annotations

import math
import secrets
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from securebench.errors import ImageError, InfrastructureError
from securebench.sandboxes.base import Command
from securebench.verifiers.code_completion.channel import ChannelEndedError, ChannelFrame, End, FrameChannel, frame
from securebench.verifiers.code_completion.guest.wire import CLEAN, END, HELLO, NONCE_BYTES, SOURCE, START
from securebench.verifiers.code_completion.programs import ARGV, Program, program_bytes

if TYPE_CHECKING:
    from securebench.sandboxes.base import Chunk, Sandbox, SandboxDriver, SandboxProcess, SandboxSpec
    from securebench.sandboxes.kept import KeptSandboxes
    from securebench.verifiers.code_completion.request import CodeRequest

KEPT_OUTPUT_BYTES: Final = 8 * 1024
"""The maximum number of bytes that are kept of what the candidate prints while it is loaded: enough for a traceback."""
START_SECONDS: Final = 60.0
"""How long Python may take to start, on a busy machine. This is not part of the candidate's time limit."""
_MOST_TASKS: Final = 256
"""The maximum number of tasks in one sandbox. They share the interpreter's memory layout and hash seed."""
_KEPT_SECONDS: Final = 3600.0
"""How long a sandbox may be kept. After that, its driver ends it, even if this process hangs."""
_CHECK_SECONDS: Final = 5.0
"""How long a kept sandbox may take to begin a task, or to report that nothing is left of a task.

Creating a new sandbox takes less time, so it is not worth waiting longer.
"""


class Side(ABC):
    """One side of a judgement."""

    @abstractmethod
    def start(self) -> FrameChannel:
        """Start the side's program, send it the code, and return the channel. Raises :class:`InfrastructureError`."""

    @abstractmethod
    def close(self) -> None:
        """Close the side's sandbox, or keep it for another task."""


class CandidateSide(Side):
    """The side of the candidate: a new sandbox, in which ``program`` runs the candidate's code.

    The constructor raises :class:`InfrastructureError`.
    """

    def __init__(self, driver: SandboxDriver, spec: SandboxSpec, program: Program, request: CodeRequest) -> None:
        self._sandbox = driver.create(spec)
        self._program = program
        self._request = request

    def start(self) -> FrameChannel:
        """See :meth:`Side.start`. Sends program and code together, and then waits until the program has started."""
        # The process must outlast the start of the tests' side, which may try a kept sandbox first. The frame relay
        # enforces the real limits.
        process = _open(self._sandbox, 2 * START_SECONDS + _CHECK_SECONDS + self._request.deadlines.total)
        channel = FrameChannel(process, keep_output=KEPT_OUTPUT_BYTES)
        channel.send(program_bytes(self._program) + frame(SOURCE, code=self._request.program).encode())
        try:
            channel.receive(time.monotonic() + START_SECONDS, frozenset({HELLO}))
        except ChannelEndedError as ended:
            raise _not_started(ended, self._request.image) from ended
        return channel

    def close(self) -> None:
        """Close the side's sandbox."""
        self._sandbox.close()


class JudgingSide(Side):
    """The side of the tests. Its sandbox may come from ``kept`` and, if ``is_intact``, may be put there afterwards.

    The constructor tells ``kept`` that a sandbox is in use, and may wait for an idle one. :meth:`close` ends this use,
    so it must always be called.
    """

    def __init__(
        self, driver: SandboxDriver, spec: SandboxSpec, request: CodeRequest, kept: KeptSandboxes[JudgingGuest] | None
    ) -> None:
        self._driver = driver if kept is None else kept.driver
        self._spec = spec if kept is None else _kept_spec(spec)
        self._output_limit = spec.limits.output
        self._seconds = START_SECONDS + request.deadlines.total
        self._request = request
        self._kept = kept
        self._guest: JudgingGuest | None = kept.take(self._spec) if kept else None
        self.is_intact = False
        """Whether every answer of the candidate was valid, and the tests gave a verdict."""

    def start(self) -> FrameChannel:
        """See :meth:`Side.start`."""
        guest = self._begin_again() or self._begin_in_new_sandbox()
        guest.send(frame(SOURCE, code=self._request.tests, starter=self._request.starter).encode())
        return guest

    def close(self) -> None:
        """Keep the side's sandbox if this task has left nothing behind in it, else close it."""
        guest = self._guest
        is_kept = self._kept is not None and self.is_intact and guest is not None and guest.is_clean(_CHECK_SECONDS)
        if guest is not None and not is_kept:
            guest.close()
        if self._kept is not None:
            self._kept.put(self._spec, guest if is_kept else None)

    def _begin_again(self) -> JudgingGuest | None:
        """Begin this task in the kept sandbox and return its guest. Return ``None`` if that is impossible."""
        guest = self._guest
        if guest is None:
            return None
        try:
            if guest.may_take_another(self._seconds):
                guest.begin(self._seconds, self._output_limit, _CHECK_SECONDS)
                return guest
        except (ChannelEndedError, InfrastructureError):
            pass  # an earlier task may have caused the error, so it must not affect this task
        guest.close()
        return None

    def _begin_in_new_sandbox(self) -> JudgingGuest:
        lifetime = self._seconds if self._kept is None else self._seconds + _KEPT_SECONDS
        guest = self._guest = JudgingGuest(self._driver.create(self._spec), lifetime)
        try:
            guest.begin(0.0 if self._kept is None else self._seconds, self._output_limit, START_SECONDS)
        except ChannelEndedError as ended:
            raise _not_started(ended, self._request.image) from ended
        return guest


class JudgingGuest(FrameChannel):
    """A sandbox with the program of the tests' side, and the channel to it.

    If the program cannot start, the constructor closes ``sandbox`` and raises :class:`InfrastructureError`.
    """

    def __init__(self, sandbox: Sandbox, lifetime: float) -> None:
        self._sandbox = sandbox
        self._expires = time.monotonic() + lifetime
        self._tasks = 0
        self._output_left = 0
        self.forks = False
        """Whether the program forks a process for each task. Only then may it run another task."""
        try:
            super().__init__(_open(sandbox, lifetime), keep_output=len(CLEAN) + 1)
        except BaseException:
            sandbox.close()
            raise
        self.send(program_bytes(Program.TESTS))

    def begin(self, seconds: float, output_limit: int, start_seconds: float) -> None:
        """Begin a task that may take ``seconds`` and send ``output_limit`` bytes.

        If ``seconds`` is 0, the guest does not fork. Raises :class:`ChannelEndedError`, for example if the next frame
        is not the answer to this call: an earlier task may have written it.
        """
        nonce = secrets.token_bytes(NONCE_BYTES)
        self._output_left = output_limit
        self.send(ChannelFrame(START, nonce + math.ceil(seconds).to_bytes(4, "big")).encode())
        answer = self.receive(time.monotonic() + start_seconds, frozenset({HELLO})).payload
        if answer[:-1] != nonce:
            raise ChannelEndedError(End.VIOLATION)
        self._tasks += 1
        self.forks = answer[-1:] == b"1"

    def may_take_another(self, seconds: float) -> bool:
        """Return whether the sandbox may be used for another task, of up to ``seconds``."""
        return self._tasks < _MOST_TASKS and time.monotonic() + seconds < self._expires

    def is_clean(self, seconds: float) -> bool:
        """Wait until the process of the task has exited, and return whether nothing is left of the task.

        The forking process writes END to stdout, and then CLEAN to stderr. Only this process can write CLEAN.
        """
        if not self.forks:
            return False
        deadline = time.monotonic() + seconds
        try:
            # A frame that the task wrote after its verdict comes in place of END, or stays in the buffer.
            self.receive(deadline, frozenset({END}))
            while not self.output:
                self._receive_chunk(deadline)
        except (ChannelEndedError, InfrastructureError):
            return False
        is_clean = self.output == CLEAN and not self._buffer
        self.output.clear()
        return is_clean

    def close(self) -> None:
        """Close the sandbox."""
        self._sandbox.close()

    def _add(self, chunk: Chunk) -> None:
        """Count what a task sends, and drop what exceeds its limit.

        In a kept sandbox, the driver limits only the output of all tasks together.
        """
        stream, data = chunk
        kept = data[: max(self._output_left, 0)]
        self._output_left -= len(data)
        super()._add((stream, kept))

    def _next_frame(self, allowed: frozenset[bytes]) -> ChannelFrame | None:
        found = super()._next_frame(allowed)
        if found is None and self._output_left < 0:
            raise ChannelEndedError(End.OUTPUT_LIMIT)
        return found


def _kept_spec(spec: SandboxSpec) -> SandboxSpec:
    """Return ``spec`` for many tasks: with room for the process that forks, and for the output of all tasks."""
    limits = replace(spec.limits, pids=spec.limits.pids + 1, output=spec.limits.output * _MOST_TASKS)
    return replace(spec, limits=limits, labels={})


def _open(sandbox: Sandbox, seconds: float) -> SandboxProcess:
    return sandbox.open(Command(argv=ARGV, timeout_seconds=seconds, waits=True))


def _not_started(ended: ChannelEndedError, image: str) -> InfrastructureError:
    """Return the error for a guest that did not start.

    The candidate is not the cause: none of its code has run in this guest.
    """
    if ended.end is not End.EXITED:
        return InfrastructureError(f"Python did not start: its process in the sandbox {ended.end.text}")
    return ImageError(
        f"the image {image} cannot run python3 (exit code {ended.exit_code})",
        code="image-without-python",
        hint="use an image with Python 3.8 or later as python3 on the standard PATH",
    )
