"""Sandboxes of the oci driver: ephemeral with a container for each command, or persistent with one for all."""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from securebench.errors import InfrastructureError
from securebench.sandboxes.bounded import KILL_GRACE
from securebench.sandboxes.collecting import nothing_to_collect
from securebench.sandboxes.lifecycle import DriverSandbox
from securebench.sandboxes.oci.container import LIFETIME_SECONDS, OciContainer
from securebench.sandboxes.oci.process import OciProcess, raise_failure
from securebench.sandboxes.oci.streams import OciStreams, Pipes
from securebench.sandboxes.oci.warm_pool import ContainerKind, Started

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import Command, SandboxSpec
    from securebench.sandboxes.collected import CollectedLayer
    from securebench.sandboxes.oci.container import OciContext
    from securebench.sandboxes.oci.handle import ProcessHandle

_START_SECONDS: Final = 60.0
"""How long a persistent sandbox may take until its first process answers."""

_GREETING: Final = b"\n"
"""Sent to the idle process, ``cat``, which sends it back when it is running."""


class OciSandbox(DriverSandbox[OciProcess]):
    """An ephemeral sandbox: each command runs in a new container with the same spec."""

    def __init__(self, context: OciContext, spec: SandboxSpec, tree: Path) -> None:
        self._context = context
        self._tree = tree
        self._in_use: list[ContainerKind] = []
        super().__init__(context.sandboxes, spec)

    def collected(self) -> CollectedLayer:
        """Return the overlay's directory of changes, which stays in memory until the sandbox is closed."""
        self._raise_if_closed()
        if self._collecting is None or self._spec.collect is None:
            raise nothing_to_collect()
        return self._collecting.changes(self._spec.collect)

    def kill(self) -> None:
        """Request the kill of all commands, without waiting, before the sandbox is closed."""
        self._closed = True
        for process in list(self._running):
            process.kill()

    def _start_command(self, command: Command) -> OciProcess:
        """Start a container for ``command``. Errors are raised when its output is read or it is waited for."""
        started = self._take(command) or self._start_container(command)
        streams = OciStreams(started.pipes, started.handle, command.stdin)
        return OciProcess(streams, started.handle, command, self._spec.limits.output, self._running.discard)

    def _end_commands(self) -> None:
        """Kill all commands, and wait for their exit only if they could still write to the host."""
        self.kill()
        for process in list(self._running):
            if not all(mount.read_only for mount in self._spec.mounts):
                process.await_end()
            process.abandon()
        if self._collecting is not None:
            self._collecting.release_changes()
        with suppress(IndexError):  # another closing thread may pop the last one
            while True:
                self._replace(self._in_use.pop())

    def _take(self, command: Command) -> Started | None:
        """Return a warm container for this kind of command, if there is one."""
        kind = ContainerKind.of(self._spec, command) if self._context.optimisations.warm_pool else None
        if kind is None:
            return None
        started = self._context.warm_pool.take(kind)
        self._in_use.append(kind)
        if started is not None:
            started.handle.limit(command.timeout_seconds)
        return started

    def _replace(self, kind: ContainerKind) -> None:
        """Start a warm container for the next command of this kind, to replace the used one."""
        warm_pool = self._context.warm_pool
        warm_pool.give_back()
        with suppress(InfrastructureError):  # the next command that needs a container gets the error
            self._siblings.raise_if_stopped()
            warm_pool.add(kind, self._start_container(replace(kind.command, timeout_seconds=LIFETIME_SECONDS)))
        if self._siblings.is_stopped:  # the pool may have been cleared while the container was starting
            warm_pool.clear()

    def _start_container(self, command: Command) -> Started:
        pipes = Pipes()
        try:
            return Started(self._start(command, pipes), pipes)
        except BaseException:
            pipes.close_local()
            raise
        finally:
            pipes.close_remote()

    def _start(self, command: Command, pipes: Pipes) -> ProcessHandle:
        return OciContainer(self._context, self._spec, self._tree).start(command, pipes)


class PersistentOciSandbox(OciSandbox):
    """A persistent sandbox: one container with an idle main process, in which all commands run."""

    def _take(self, _command: Command) -> None:
        """Return nothing: commands run in this sandbox's own container."""

    def kill(self) -> None:
        """Request the kill of the container, without waiting."""
        super().kill()
        self._handle.kill()

    def _prepare(self) -> None:
        self._container = OciContainer(self._context, self._spec, self._tree)
        pipes = Pipes()
        try:
            self._handle = self._container.start(None, pipes)
        except BaseException:
            pipes.close_local()
            raise
        finally:
            pipes.close_remote()
        # The idle process exits when this end of its stdin is closed, also when this process is killed.
        self._lifeline = pipes.stdin
        try:
            _greet(self._handle, pipes)
        except BaseException:
            self._handle.kill()
            _let_go(self._handle, self._lifeline)
            raise
        finally:
            os.close(pipes.stdout)
            os.close(pipes.stderr)

    def _end_container(self) -> None:
        _let_go(self._handle, self._lifeline)

    def _start(self, command: Command, pipes: Pipes) -> ProcessHandle:
        if self._handle.is_over():
            raise InfrastructureError("this sandbox has exited: everything in it was killed, possibly at a limit")
        return self._container.execute(command, pipes, self._handle)


def _greet(handle: ProcessHandle, pipes: Pipes) -> None:
    """Wait until the idle process runs and echoes its input. Raises :class:`InfrastructureError`."""
    with suppress(BrokenPipeError):  # it has exited already: its report says how
        os.write(pipes.stdin, _GREETING)
    poll = select.poll()
    poll.register(pipes.stdout, select.POLLIN)
    poll.register(handle, select.POLLIN)
    deadline = time.monotonic() + _START_SECONDS
    while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        try:
            if os.read(pipes.stdout, len(_GREETING)) == _GREETING:
                return
        except BlockingIOError:
            pass
        if handle.is_over():
            raise_failure(handle.report(KILL_GRACE))
    raise InfrastructureError(f"a sandbox did not start within {_START_SECONDS:g} s")


def _let_go(handle: ProcessHandle, lifeline: int) -> None:
    handle.await_end(KILL_GRACE)
    handle.hang_up()
    os.close(lifeline)
