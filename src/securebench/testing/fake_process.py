"""A process of the fake: a Python callable on a thread of its own, and the context that it sees the world through."""

from __future__ import annotations

import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from securebench.sandboxes.base import TIMEOUT_EXIT_CODE, ExitState, SandboxProcess, Stream
from securebench.testing.fake_container import PIPE_SIZE, Cause, FakeContainer, FakePipe, FakeStdin, Killed

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from securebench.sandboxes.base import Chunk, Command, SandboxSpec
    from securebench.testing.fake_files import FakeFiles

SIGKILLED = 137
NOT_FOUND = 127


class FakeOutput:
    """A program's stdout or stderr. Written bytes are there at once."""

    def __init__(self, stream: Stream, process: FakeProcess) -> None:
        self._stream = stream
        self._process = process

    def write(self, data: bytes | str) -> None:
        """Write ``data``. Raises :class:`Killed` when the sandbox was ended, also for writing too much."""
        self._process.write(self._stream, data.encode() if isinstance(data, str) else bytes(data))


@dataclass(slots=True)
class FakeProcessContext:
    """What a fake program is given: its whole world."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    workdir: str
    spec: SandboxSpec
    files: FakeFiles
    stdin: FakeStdin
    stdout: FakeOutput
    stderr: FakeOutput
    container: FakeContainer

    @property
    def user(self) -> tuple[int, int]:
        """Its uid and gid."""
        return self.spec.user

    def check(self) -> None:
        """Raise :class:`Killed` if the sandbox was ended. Long programs call it; every other call here does."""
        self.container.check()

    def sleep(self, seconds: float) -> None:
        """Sleep, unless the sandbox is ended meanwhile."""
        if self.container.ended.wait(seconds):
            raise Killed

    def connect(self, port: int) -> socket.socket:
        """Return a connection to a forwarded port, at ``port`` of 127.0.0.1.

        Raises ``ConnectionRefusedError`` where none is.
        """
        return self.container.connect(port)

    def allocate(self, size: int) -> None:
        """Use ``size`` bytes of memory: beyond the limit the sandbox is ended for it."""
        with self.container.lock:
            self.container.memory += size
            used = self.container.memory + self.files.temporary_bytes()
        if used > self.spec.limits.memory:
            self.container.end(Cause.MEMORY)
        self.check()

    def spawn(self, program: Callable[[FakeProcessContext], object]) -> None:
        """Start ``program`` as a child, which lives until it ends or the container does.

        Raises ``BlockingIOError`` beyond the limit of processes.
        """
        with self.container.lock:
            if self.container.processes >= self.spec.limits.pids:
                raise BlockingIOError("no more processes")
            self.container.processes += 1
        threading.Thread(target=self._child, args=(program,), daemon=True).start()

    def _child(self, program: Callable[[FakeProcessContext], object]) -> None:
        with suppress(Killed, BrokenPipeError):
            program(self)
        with self.container.lock:
            self.container.processes -= 1


Program: TypeAlias = "Callable[[FakeProcessContext], int | None]"
"""A fake program. It returns its exit code; ``None`` is 0, ``SystemExit`` is honoured, any other exception is 1."""


class FakeProcess(SandboxProcess):
    """A fake program that runs."""

    def __init__(
        self,
        command: Command,
        spec: SandboxSpec,
        container: FakeContainer,
        *,
        owns_container: bool,
        on_wait: Callable[[], None],
    ) -> None:
        self._on_wait = on_wait
        self._container = container
        self._owns_container = owns_container
        self._exit_code = 0
        self._output_left = spec.limits.output
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._output = FakePipe(container)
        self._input = FakePipe(container)
        self._initial_stdin = command.stdin
        self._close_after_initial = False
        self._timer = threading.Timer(command.timeout_seconds, self._end, (Cause.TIME,))
        self._timer.daemon = True

    def start(self, program: Program, context: FakeProcessContext) -> None:
        """Start it."""
        container = self._container
        with container.lock:
            container.processes += 1
        threading.Thread(target=self._run, args=(program, context), daemon=True).start()
        threading.Thread(target=self._feed_initial, daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()
        self._timer.start()

    def stdin(self) -> FakeStdin:
        """Return the program's end of its stdin."""
        return FakeStdin(self._input, self._container)

    def output(self, stream: Stream) -> FakeOutput:
        """Return the program's end of an output stream."""
        return FakeOutput(stream, self)

    def write(self, stream: Stream, data: bytes) -> None:
        """Take output of the program."""
        self._container.check()
        with self._lock:
            kept = data[: self._output_left]
            self._output_left -= len(kept)
        if kept:
            self._output.put(stream, kept)
        if len(kept) < len(data):
            self._end(Cause.OUTPUT)
            raise Killed

    def send(self, data: bytes) -> None:
        """Write all of ``data``."""
        try:
            for start in range(0, len(data), PIPE_SIZE):
                self._input.put(Stream.STDOUT, data[start : start + PIPE_SIZE])
        except Killed:
            raise BrokenPipeError("the process was ended") from None

    def close_stdin(self) -> None:
        """End its stdin, after what was to be sent first."""
        with self._lock:
            self._close_after_initial = True
            if self._initial_stdin:
                return
        self._input.finish(writer=True)

    def receive(self, timeout: float | None = None) -> Chunk | None:
        """Return the next output, or ``None`` at its end."""
        return self._output.get(timeout)

    def wait(self) -> ExitState:
        """Drop what nobody read, and wait for its end."""
        while self.receive() is not None:
            pass
        self._over.wait()
        self._on_wait()
        return self._state()

    def kill(self) -> None:
        """End its sandbox."""
        self._end(Cause.CALLER)

    def _end(self, cause: Cause) -> None:
        if not self._over.is_set():
            self._container.end(cause)

    def _run(self, program: Program, context: FakeProcessContext) -> None:
        try:
            self._finish(_exit_code(program, context))
        except Killed:
            self._finish(SIGKILLED)

    def _finish(self, code: int) -> None:
        with self._container.lock:
            self._container.processes -= 1
        self._close(code)
        if self._owns_container:
            self._container.end(None)

    def _close(self, code: int) -> None:
        with self._lock:
            if self._over.is_set():
                return
            self._exit_code = code
            self._over.set()
        self._timer.cancel()
        self._input.finish(writer=True, reader=True)
        self._output.finish(writer=True)

    def _watch(self) -> None:
        # A program that looks at nothing of its context cannot be stopped, but its process ends all the same.
        self._container.ended.wait()
        self._close(SIGKILLED)

    def _feed_initial(self) -> None:
        with suppress(BrokenPipeError):  # a process need not read what it is fed
            self.send(self._initial_stdin)
        with self._lock:
            self._initial_stdin = b""
            close = self._close_after_initial
        if close:
            self._input.finish(writer=True)

    def _state(self) -> ExitState:
        cause = self._container.cause if self._exit_code == SIGKILLED else None
        return ExitState(
            exit_code=TIMEOUT_EXIT_CODE if cause is Cause.TIME else self._exit_code,
            timed_out=cause is Cause.TIME,
            output_limit_exceeded=cause is Cause.OUTPUT,
            out_of_memory=cause is Cause.MEMORY,
        )


def _exit_code(program: Program, context: FakeProcessContext) -> int:
    try:
        return program(context) or 0
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except Exception:  # noqa: BLE001 - as an interpreter does: whatever a program raises ends it with a traceback
        context.stderr.write(traceback.format_exc())
        return 1
