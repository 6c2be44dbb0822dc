"""Sandboxes of the Docker driver: ephemeral, a container a command, and persistent, an exec a command."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from securebench.errors import EngineError, InfrastructureError
from securebench.sandboxes.base import Sandbox
from securebench.sandboxes.collecting import nothing_to_collect, one_command_only
from securebench.sandboxes.docker.changes import left_directory
from securebench.sandboxes.docker.container import DockerContainer, remove_quietly
from securebench.sandboxes.docker.forwarding import holder_of
from securebench.sandboxes.docker.process import DockerProcess
from securebench.sandboxes.docker.spec import compile_container

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from securebench.engine.client import Engine
    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import Command, SandboxSpec
    from securebench.sandboxes.collected import CollectedArchive
    from securebench.sandboxes.docker.container import DockerTarget
    from securebench.sandboxes.docker.stream import EngineStream

_REMOVERS = 8


class Background:
    """Ends and removes things on threads of its own."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_REMOVERS, thread_name_prefix="securebench-remove")
        self._pending: set[Future[None]] = set()

    def do(self, call: Callable[[], None]) -> None:
        """Call it soon, or now if there are no threads any more."""
        try:
            future = self._pool.submit(call)
        except RuntimeError:  # closed, or the interpreter is ending
            call()
            return
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)

    def drain(self, timeout: float) -> None:
        """Wait for what is pending, and what that asks for in turn, ``timeout`` seconds at most."""
        deadline = time.monotonic() + timeout
        while (pending := self._pending.copy()) and (left := deadline - time.monotonic()) > 0:
            wait(pending, timeout=left)

    def close(self) -> None:
        """Take no more threads for it."""
        self._pool.shutdown(wait=False)


@dataclass(frozen=True, slots=True)
class DockerContext:
    """What a driver lends to its sandboxes."""

    engine: Engine
    labels: Mapping[str, str]
    resolve: Callable[[str], ResolvedImage]
    runtime: str | None = None
    background: Background = field(default_factory=Background)
    open: set[DockerSandbox] = field(default_factory=set)
    stopped: threading.Event = field(default_factory=threading.Event)

    def raise_if_stopped(self) -> None:
        """Raise :class:`EngineError` (``run-stopped``) once the run is being stopped."""
        if self.stopped.is_set():
            raise EngineError("the run is being stopped: no sandbox is started any more", code="run-stopped")


class DockerSandbox(Sandbox):
    """An ephemeral sandbox: each command runs in a container of its own, made from the same spec."""

    def __init__(self, context: DockerContext, spec: SandboxSpec) -> None:
        self._context = context
        self._spec = spec
        self._running: dict[DockerProcess, DockerContainer] = {}
        self._collecting: DockerProcess | None = None
        self._kept: DockerContainer | None = None
        self._closed = False
        context.raise_if_stopped()
        self._prepare()
        context.open.add(self)
        if context.stopped.is_set():  # while it was prepared
            self.close()
            context.raise_if_stopped()

    def open(self, command: Command) -> DockerProcess:
        """Create, attach and start a container for ``command``."""
        self._raise_if_closed()
        if self._collecting is not None:
            raise one_command_only()
        container, stream = self._start(command, output=True)
        return self._watch(stream, container, container, command)

    def collected(self) -> CollectedArchive:
        """Return what the container has in the directory: it has ended, and is removed when this is closed."""
        self._raise_if_closed()
        if self._spec.collect is None or self._kept is None or not (self._collecting and self._collecting.has_ended):
            raise nothing_to_collect()
        return left_directory(self._kept, self._spec.collect)

    def close(self) -> None:
        """End what still runs: in the background, unless it could still write to the host.

        When this returns, no process of this sandbox can change a file of the host any more.
        """
        self._closed = True
        for process in list(self._running):
            container = self._running.pop(process, None)
            process.abandon()
            if container is not None:
                self._end(container)
        kept, self._kept = self._kept, None
        if kept is not None:
            self._end(kept)
        self._context.open.discard(self)

    def _end(self, container: DockerContainer) -> None:
        if all(mount.read_only for mount in self._spec.mounts):
            self._context.background.do(partial(remove_quietly, container))
        else:
            remove_quietly(container)

    def _prepare(self) -> None:
        """Do what must be done before the first command: here nothing."""

    def _start(self, command: Command | None, *, output: bool) -> tuple[DockerContainer, EngineStream]:
        around = self._context
        with holder_of(self._spec.forwarded_ports, around) as holder, ExitStack() as undo:
            document = compile_container(self._spec, command, around.labels, around.runtime, joined=holder)
            container = DockerContainer.create(around.engine, document)
            undo.callback(remove_quietly, container)
            stream = container.attach(output=output, stdin=b"" if command is None else command.stdin)
            undo.callback(stream.close)
            container.start()
            undo.pop_all()
        return container, stream

    def _watch(
        self, stream: EngineStream, container: DockerContainer, target: DockerTarget, command: Command
    ) -> DockerProcess:
        process = DockerProcess(stream, target, command, output_limit=self._spec.limits.output, on_end=self._ended)
        self._running[process] = container
        self._collecting = process if self._spec.collect is not None else None
        if self._closed or self._context.stopped.is_set():  # while it started
            self.close()
            self._raise_if_closed()
        return process

    def _ended(self, process: DockerProcess) -> None:
        container = self._running.pop(process, None)
        if container is not None and self._spec.collect is None:
            self._context.background.do(partial(remove_quietly, container))
        elif container is not None:
            self._kept = container
            if self._closed:  # meanwhile
                self.close()

    def _raise_if_closed(self) -> None:
        self._context.raise_if_stopped()
        if self._closed:
            raise InfrastructureError("this sandbox is closed", code="sandbox-closed")


class PersistentDockerSandbox(DockerSandbox):
    """A persistent sandbox: one container for its life, and an exec in it for each command."""

    def open(self, command: Command) -> DockerProcess:
        """Run ``command`` beside what the container already runs."""
        self._raise_if_closed()
        stream, target = self._container.execute(command)
        return self._watch(stream, self._container, target, command)

    def close(self) -> None:
        """End the container and everything in it."""
        self._closed = True
        if self not in self._context.open:
            return
        self._context.open.discard(self)
        for process in list(self._running):
            process.abandon()
        self._lifeline.close()
        remove_quietly(self._container)

    def _prepare(self) -> None:
        self._container, self._lifeline = self._start(None, output=False)

    def _ended(self, process: DockerProcess) -> None:
        self._running.pop(process, None)
