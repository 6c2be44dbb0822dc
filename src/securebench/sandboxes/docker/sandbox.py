"""Sandboxes of the Docker driver.

An ephemeral sandbox has a new container for each command. A persistent sandbox has one container, in which each command
is an exec.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from securebench.faults import FaultPoint, reached
from securebench.sandboxes.collected import CollectedArchive, DirectoryReplacedError
from securebench.sandboxes.docker.container import DockerContainer, remove_quietly
from securebench.sandboxes.docker.forwarding import port_holder
from securebench.sandboxes.docker.process import DockerProcess
from securebench.sandboxes.docker.spec import compile_container
from securebench.sandboxes.lifecycle import DriverSandbox, OpenSandboxes, claim
from securebench.sandboxes.spec_rules import nothing_to_collect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from securebench.engine.client import Engine
    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import Command, SandboxSpec
    from securebench.sandboxes.docker.container import DockerTarget
    from securebench.sandboxes.docker.stream import EngineStream

_REMOVERS = 8


_DIRECTORY: Final = 1 << 31
"""The directory bit in Go's file modes, which the engine returns. It is not set for a link."""


class Background:
    """Kills and removes containers on background threads."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_REMOVERS, thread_name_prefix="securebench-remove")
        self._pending: set[Future[None]] = set()

    def do(self, call: Callable[[], None]) -> None:
        """Call ``call`` in the background, or right now if the threads have been shut down."""
        try:
            future = self._pool.submit(call)
        except RuntimeError:  # closed, or the interpreter is ending
            call()
            return
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)

    def drain(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds for all pending calls and for calls that they add."""
        deadline = time.monotonic() + timeout
        while (pending := self._pending.copy()) and (left := deadline - time.monotonic()) > 0:
            wait(pending, timeout=left)

    def close(self) -> None:
        """Shut down the threads."""
        self._pool.shutdown(wait=False)


@dataclass(frozen=True, slots=True)
class DockerContext:
    """The state that all sandboxes of a driver share."""

    engine: Engine
    labels: Mapping[str, str]
    resolve: Callable[[str], ResolvedImage]
    runtime: str | None = None
    background: Background = field(default_factory=Background)
    starting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(len(os.sched_getaffinity(0))))
    """Lets at most one container per core start at the same time: more would only slow each other down."""
    sandboxes: OpenSandboxes[DockerSandbox] = field(default_factory=OpenSandboxes)


class DockerSandbox(DriverSandbox[DockerProcess]):
    """An ephemeral sandbox: each command runs in a new container with the same spec."""

    def __init__(self, context: DockerContext, spec: SandboxSpec) -> None:
        self._context = context
        self._kept: DockerContainer | None = None
        super().__init__(context.sandboxes, spec)

    def collected(self) -> CollectedArchive:
        """Return the ``collect`` directory of the exited container, which is kept until the sandbox is closed."""
        self._raise_if_closed()
        reached(FaultPoint.SANDBOX_COLLECT)
        if self._spec.collect is None or self._kept is None or not (self._collecting and self._collecting.has_ended):
            raise nothing_to_collect()
        return left_directory(self._kept, self._spec.collect)

    def _start_command(self, command: Command) -> DockerProcess:
        container, stream = self._start(command, output=True)
        return self._process(stream, container, command, partial(self._ended, container))

    def _end_commands(self) -> None:
        for process in list(self._running):
            process.abandon()
        kept, self._kept = self._kept, None
        if kept is not None:
            self._end(kept)

    def _ended(self, container: DockerContainer, process: DockerProcess) -> None:
        """Remove the container of an exited or abandoned process, or keep it if its files are to be collected."""
        if not claim(self._running, process):
            return
        if self._spec.collect is not None:
            self._kept = container
            if self._closed:  # the closing thread may have run before the container was kept
                self._end_commands()
        elif process.has_ended:
            self._context.background.do(partial(remove_quietly, container))
        else:
            self._end(container)

    def _end(self, container: DockerContainer) -> None:
        """Remove a container that may be running.

        This is done in the background, unless the container can write to the host.
        """
        if all(mount.read_only for mount in self._spec.mounts):
            self._context.background.do(partial(remove_quietly, container))
        else:
            remove_quietly(container)

    def _start(self, command: Command | None, *, output: bool) -> tuple[DockerContainer, EngineStream]:
        context = self._context
        with context.starting, port_holder(self._spec.forwarded_ports, context) as holder, ExitStack() as undo:
            document = compile_container(self._spec, command, context.labels, context.runtime, joined=holder)
            container = DockerContainer.create(context.engine, document)
            undo.callback(remove_quietly, container)
            stream = container.attach(output=output, stdin=b"" if command is None else command.stdin)
            undo.callback(stream.close)
            container.start()
            undo.pop_all()
        return container, stream

    def _process(
        self, stream: EngineStream, target: DockerTarget, command: Command, on_end: Callable[[DockerProcess], None]
    ) -> DockerProcess:
        return DockerProcess(stream, target, command, output_limit=self._spec.limits.output, on_end=on_end)


class PersistentDockerSandbox(DockerSandbox):
    """A persistent sandbox: one container, and an exec in it for each command."""

    def _prepare(self) -> None:
        self._container, self._lifeline = self._start(None, output=False)

    def _start_command(self, command: Command) -> DockerProcess:
        stream, target = self._container.execute(command)
        return self._process(stream, target, command, self._running.discard)

    def _end_container(self) -> None:
        self._lifeline.close()
        remove_quietly(self._container)


def left_directory(container: DockerContainer, path: str) -> CollectedArchive:
    """Return the directory ``path`` of an exited container. Raises the errors of :meth:`Sandbox.collected`.

    The engine follows links in the path, within the container, so each component is checked first. Because no process
    of the container is running, no component can change in between.
    """
    target = PurePosixPath(path)
    for directory in (*reversed(target.parents[:-1]), target):
        mode = container.mode(str(directory))
        if mode is None or not mode & _DIRECTORY:
            raise DirectoryReplacedError(path)
    return CollectedArchive(container.archive(path))
