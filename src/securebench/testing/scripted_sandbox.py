"""A scripted sandbox driver for unit tests of harnesses, verifiers and runs. Its programs are Python callables.

::

    driver = ScriptedDriver()

    @driver.program("agent")
    def agent(context: ProgramContext) -> None:
        task = json.loads(context.path("task.json").read_text())
        context.stdout.write(solve(task))

    spec = SandboxSpec(image=driver.resolve_image(DEFAULT_IMAGE), mounts=(Mount(workspace, "/workspace"),))
    with driver.create(spec) as sandbox:
        result = sandbox.run(Command(argv=("agent",), timeout_seconds=5, workdir="/workspace"))

The driver isolates nothing: programs run on threads of this process. :meth:`ProgramContext.path` finds only host paths
that the spec mounts. The time limit, the output limit and kill are enforced. Other limits and restrictions of a spec
are recorded in ``commands`` but not enforced; some are checked for validity. To test a driver, use
:mod:`securebench.testing.conformance`.
"""

from __future__ import annotations

import io
import os
import posixpath
import shutil
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path, PurePosixPath
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

from securebench.errors import EngineError, ImageError, InfrastructureError
from securebench.images.model import ResolvedImage
from securebench.images.store.leases import TreeLease
from securebench.sandboxes.base import (
    BASE_ENVIRONMENT,
    TIMEOUT_EXIT_CODE,
    DriverInfo,
    ExitState,
    Sandbox,
    SandboxDriver,
    SandboxProcess,
    Stream,
)
from securebench.sandboxes.collected import CollectedLayer
from securebench.sandboxes.spec_rules import (
    check_collect,
    check_forwarded_ports,
    check_mount,
    exact_argv,
    exact_environment,
    nothing_to_collect,
    one_command_only,
    process_environment,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import WriteableBuffer

    from securebench.sandboxes.base import Chunk, Command, SandboxSpec
    from securebench.sandboxes.collected import Collected

DEFAULT_IMAGE: Final = "securebench/python:3.11"
"""An image that every scripted driver has."""

_NOT_FOUND: Final = 127
_SIGKILLED: Final = 137


class ProgramKilled(BaseException):
    """Raised in a program whose process was ended. Not an ``Exception``, so that a program does not catch it."""


class ProgramInput(io.RawIOBase):
    """A program's stdin, an unbuffered binary file.

    After the process has ended, reading returns what is left of a partly read chunk, and then raises
    :class:`ProgramKilled`.
    """

    def __init__(self, process: ScriptedProcess) -> None:
        self._process = process
        self._unread = b""

    def readable(self) -> bool:
        """Return ``True``."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Wait for data and copy what fits into ``buffer``. Returns the number of bytes copied, 0 at the end."""
        view = memoryview(buffer).cast("B")
        if not self._unread:
            self._unread = self._process.next_input()
        size = min(len(view), len(self._unread))
        view[:size], self._unread = self._unread[:size], self._unread[size:]
        return size


class ProgramOutput:
    """A program's stdout or stderr."""

    def __init__(self, process: ScriptedProcess, stream: Stream) -> None:
        self._process = process
        self._stream = stream

    def write(self, data: bytes | str) -> None:
        """Write ``data``. Text is encoded as UTF-8.

        Raises :class:`ProgramKilled` if the process ended or writes too much.
        """
        self._process.write(self._stream, data.encode() if isinstance(data, str) else data)


@dataclass(frozen=True, slots=True)
class ProgramContext:
    """The context of a program: its arguments and variables, its streams, and the spec of its sandbox."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    workdir: str
    spec: SandboxSpec
    stdin: ProgramInput
    stdout: ProgramOutput
    stderr: ProgramOutput
    process: ScriptedProcess

    def path(self, name: str = ".") -> Path:
        """Return the host path of ``name``, which is absolute or relative to ``workdir``.

        Raises ``FileNotFoundError`` if nothing is mounted there. A read-only mount is not protected from the program.
        """
        target = PurePosixPath(posixpath.normpath(posixpath.join(self.workdir, name)))
        mounts = [mount for mount in self.spec.mounts if target.is_relative_to(mount.target)]
        if not mounts:
            raise FileNotFoundError(f"nothing is mounted at {target}")
        mount = max(mounts, key=lambda mount: len(mount.target))
        return mount.source / target.relative_to(mount.target)

    def sleep(self, seconds: float) -> None:
        """Sleep. Raises :class:`ProgramKilled` as soon as the process is ended."""
        if self.process.is_over.wait(seconds):
            raise ProgramKilled

    def run_out_of_memory(self) -> None:
        """End the process as if the sandbox had exceeded its memory limit. Raises :class:`ProgramKilled`."""
        self.process.end(ExitState(exit_code=_SIGKILLED, out_of_memory=True))
        raise ProgramKilled

    def leave(self, collected: Collected) -> None:
        """Set the result of ``Sandbox.collected``. By default there are no changes."""
        self.process.left = collected


ScriptedProgram: TypeAlias = Callable[[ProgramContext], int | None]
"""A program. It returns its exit code (``None`` is 0) or raises ``SystemExit``. Any ``Exception`` means exit code 1."""


class ScriptedProcess(SandboxProcess):
    """A program on a thread.

    If the process is ended early, the thread continues until the program next uses its :class:`ProgramContext` to read,
    write or sleep.
    """

    def __init__(self, command: Command, output_limit: int, *, on_wait: Callable[[], None]) -> None:
        self.is_over = threading.Event()
        self.left: Collected = CollectedLayer(-1)
        self._on_wait = on_wait
        self._lock = threading.Lock()
        self._state: ExitState | None = None
        self._input: SimpleQueue[bytes] = SimpleQueue()
        self._output: SimpleQueue[Chunk | None] = SimpleQueue()
        self._output_left = output_limit
        timed_out = ExitState(exit_code=TIMEOUT_EXIT_CODE, timed_out=True)
        self._timer = threading.Timer(command.timeout_seconds, self.end, (timed_out,))
        self._timer.daemon = True
        self.send(command.stdin)

    def start(self, program: ScriptedProgram, context: ProgramContext) -> None:
        """Run ``program`` on a thread of its own."""
        self._timer.start()
        threading.Thread(target=self._run, args=(program, context), daemon=True).start()

    def end(self, state: ExitState) -> None:
        """End the process with ``state``. Only the first call has an effect. The program cannot write afterwards."""
        with self._lock:
            if self._state is not None:
                return
            self._state = state
            self._output.put(None)
        self._timer.cancel()
        self.is_over.set()
        self.close_stdin()  # wakes a program that waits for input

    def next_input(self) -> bytes:
        """Wait for input and return it; ``b""`` at the end. Raises :class:`ProgramKilled` if the process ended."""
        data = self._input.get()
        if not data:
            self._input.put(b"")  # the next read must find the end, too
        if self.is_over.is_set():
            raise ProgramKilled
        return data

    def write(self, stream: Stream, data: bytes) -> None:
        """Forward the program's output. Raises :class:`ProgramKilled` if the process ended or wrote too much."""
        with self._lock:
            if self._state is not None:
                raise ProgramKilled
            kept = data[: self._output_left]
            self._output_left -= len(kept)
            if kept:
                self._output.put((stream, kept))
        if len(kept) < len(data):
            self.end(ExitState(exit_code=_SIGKILLED, output_limit_exceeded=True))
            raise ProgramKilled

    def send(self, data: bytes) -> None:
        """Write all of ``data`` to the program's stdin, without waiting for the program to read it.

        Raises ``BrokenPipeError`` if the program has ended.
        """
        if self.is_over.is_set():
            raise BrokenPipeError("the program has ended")
        if data:
            self._input.put(data)

    def close_stdin(self) -> None:
        """End the program's stdin."""
        self._input.put(b"")

    def receive(self, timeout: float | None = None) -> Chunk | None:
        """Return the next output, or ``None`` at its end. Raises ``TimeoutError`` after ``timeout`` seconds."""
        try:
            chunk = self._output.get(timeout=timeout)
        except Empty:
            raise TimeoutError from None
        if chunk is None:
            self._output.put(None)  # the next read must find the end, too
        return chunk

    def wait(self) -> ExitState:
        """Discard unread output, wait until the process has ended, and return its exit state."""
        while self.receive() is not None:
            pass
        self._on_wait()
        assert self._state is not None  # end() sets the state before it ends the output
        return self._state

    def kill(self) -> None:
        """End the process."""
        self.end(ExitState(exit_code=_SIGKILLED))

    def _run(self, program: ScriptedProgram, context: ProgramContext) -> None:
        try:
            code = program(context) or 0
        except ProgramKilled:
            code = _SIGKILLED  # has no effect: end() has already set the state
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except Exception:  # noqa: BLE001 - any exception of a program ends it with a traceback, as in an interpreter
            code = 1
            with suppress(ProgramKilled):
                context.stderr.write(traceback.format_exc())
        self.end(ExitState(exit_code=code))


class ScriptedSandbox(Sandbox):
    """A sandbox of the scripted driver."""

    def __init__(self, driver: ScriptedDriver, spec: SandboxSpec) -> None:
        self._driver = driver
        self._spec = spec
        self._processes: list[ScriptedProcess] = []
        self._closed = False
        driver.open_sandboxes.add(self)

    def open(self, command: Command) -> ScriptedProcess:
        """Start the program that matches ``command``."""
        self._driver.raise_if_stopped()
        if self._closed:
            raise InfrastructureError("this sandbox is closed", code="sandbox-closed")
        self._driver.raise_failure("open")
        if self._spec.collect is not None and self._processes:
            raise one_command_only()
        for mount in self._spec.mounts:
            check_mount(mount)
        environment = process_environment(self._spec, command.environment)
        exact_environment(environment)
        process = ScriptedProcess(
            command, self._spec.limits.output, on_wait=partial(self._driver.raise_failure, "wait")
        )
        context = ProgramContext(
            argv=tuple(exact_argv(command.argv)),
            environment=environment,
            workdir=command.workdir or self._spec.workdir,
            spec=self._spec,
            stdin=ProgramInput(process),
            stdout=ProgramOutput(process, Stream.STDOUT),
            stderr=ProgramOutput(process, Stream.STDERR),
            process=process,
        )
        self._processes.append(process)
        self._driver.commands.append((self._spec, command))
        process.start(self._driver.find_program(command.argv), context)
        return process

    def collected(self) -> Collected:
        """Return the value that the program set with :meth:`ProgramContext.leave`, or a layer without changes."""
        if self._closed:
            raise InfrastructureError("this sandbox is closed", code="sandbox-closed")
        if self._spec.collect is None or not self._processes or not self._processes[0].is_over.is_set():
            raise nothing_to_collect()
        return self._processes[0].left

    def close(self) -> None:
        """End all running programs."""
        self._closed = True
        for process in self._processes:
            process.kill()
        self._driver.open_sandboxes.discard(self)


class ScriptedDriver(SandboxDriver):
    """A driver whose programs a test registers.

    ``commands`` lists the commands that ran, each with its sandbox's spec, in order. ``open_sandboxes`` are the
    sandboxes that are not closed.
    """

    def __init__(self, images: tuple[str, ...] = (DEFAULT_IMAGE,)) -> None:
        self.commands: list[tuple[SandboxSpec, Command]] = []
        self.open_sandboxes: set[ScriptedSandbox] = set()
        self._images: dict[str, ResolvedImage] = {}
        self._files: dict[str, Mapping[str, bytes]] = {}
        self._programs: list[tuple[Callable[[tuple[str, ...]], bool], ScriptedProgram]] = []
        self._failures: dict[str, list[Exception]] = {}
        self._stopped = threading.Event()
        for reference in images:
            self.add_image(reference)

    def identity(self) -> None:
        """Return ``None``, so that records treat a test's subclass as a part of SecureBench, not as an extension."""

    def add_image(
        self,
        reference: str,
        *,
        environment: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> ResolvedImage:
        """Add an image. ``environment`` contains the image's variables, by default only ``PATH``.

        ``files`` maps absolute paths to contents. :meth:`image_tree` puts these files into a directory.
        """
        image = ResolvedImage(
            reference=reference,
            id=f"sha256:{sha256(reference.encode()).hexdigest()}",
            environment={"PATH": BASE_ENVIRONMENT["PATH"]} if environment is None else environment,
            architecture="amd64",
        )
        self._images[reference] = image
        self._files[image.id] = files or {}
        return image

    def program(self, match: str | Callable[[tuple[str, ...]], bool]) -> Callable[[ScriptedProgram], ScriptedProgram]:
        """Register the decorated callable for matching commands. ``match`` is a name, or a predicate of the argv.

        A name matches ``argv[0]`` or its last component. The latest matching registration is used.
        """

        def matches_name(argv: tuple[str, ...]) -> bool:
            return match in {argv[0], posixpath.basename(argv[0])}

        def register(program: ScriptedProgram) -> ScriptedProgram:
            self._programs.insert(0, (matches_name if isinstance(match, str) else match, program))
            return program

        return register

    def fail_next(self, error: Exception, *, on: str = "open") -> None:
        """Make the next call of the operation ``on`` raise ``error``.

        ``on`` is ``open``, ``create``, ``wait``, ``self_test`` or ``resolve_image``.
        """
        self._failures.setdefault(on, []).append(error)

    def info(self) -> DriverInfo:
        """Return a description without a runtime."""
        return DriverInfo("scripted", "none", "1")

    def resolve_image(self, reference: str, on_progress: Callable[[str], None] | None = None) -> ResolvedImage:
        """Return the image that was added as ``reference``. Raises :class:`ImageError` if there is none."""
        if on_progress is not None:
            on_progress(f"resolving {reference}")
        self.raise_failure("resolve_image")
        if reference not in self._images:
            raise ImageError(f"the image {reference} is not on this machine", hint="add it with add_image()")
        return self._images[reference]

    def image_tree(self, image: ResolvedImage) -> TreeLease:
        """Return the files of an image in a temporary directory, which exists as long as this driver."""
        root = Path(tempfile.mkdtemp(prefix="scripted-image-"))
        weakref.finalize(self, shutil.rmtree, root, ignore_errors=True)
        for path, data in self._files[image.id].items():
            file = root / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        return TreeLease(root, os.open(root, os.O_RDONLY | os.O_CLOEXEC))

    def self_test(self, image: ResolvedImage, *, forwarded_ports: bool = False) -> None:
        """Raise an error registered by :meth:`fail_next`, if any. Otherwise do nothing: programs are not isolated."""
        del image, forwarded_ports
        self.raise_failure("self_test")

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> ScriptedSandbox:
        """Create a sandbox. Forwarded ports are accepted but not served."""
        self.raise_if_stopped()
        self.raise_failure("create")
        check_forwarded_ports(spec)
        check_collect(spec, persistent=persistent)
        return ScriptedSandbox(self, spec)

    def reap(self) -> int:
        """Return 0: the programs of an earlier process ended with it, so there is nothing to remove."""
        return 0

    def kill_all(self) -> None:
        """End every sandbox, and refuse new ones."""
        self._stopped.set()
        self.close()

    def close(self) -> None:
        """End every sandbox."""
        for sandbox in list(self.open_sandboxes):
            sandbox.close()

    def raise_if_stopped(self) -> None:
        """Raise :class:`EngineError` (``run-stopped``) after :meth:`kill_all`."""
        if self._stopped.is_set():
            raise EngineError("the run is stopping: no new sandboxes", code="run-stopped")

    def raise_failure(self, operation: str) -> None:
        """Raise the next error that :meth:`fail_next` registered for ``operation``, if any."""
        if waiting := self._failures.get(operation):
            raise waiting.pop(0)

    def find_program(self, argv: tuple[str, ...]) -> ScriptedProgram:
        """Return the program for ``argv``, or one that fails with "command not found"."""
        return next((program for matches, program in self._programs if matches(argv)), _not_found)


def _not_found(context: ProgramContext) -> int:
    context.stderr.write(f"{context.argv[0]}: command not found\n")
    return _NOT_FOUND
