"""Sandboxes of the oci driver: ephemeral with a container for each command, or persistent with one for all.

:class:`OciContainer` creates the requests to the supervisor. :class:`OciSandbox` decides when a container is started.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import InfrastructureError
from securebench.faults import FaultPoint, reached
from securebench.sandboxes.lifecycle import KILL_GRACE, DriverSandbox, OpenSandboxes
from securebench.sandboxes.oci.config import (
    DEVICES_TARGET,
    INIT_TARGET,
    HostIds,
    HostLayout,
    compile_config,
    compile_process,
    identity_map,
    outside,
)
from securebench.sandboxes.oci.process import OciProcess, OciStreams, pipes_to_pass_on, raise_failure
from securebench.sandboxes.oci.runtime import LOG, PID, record_of
from securebench.sandboxes.oci.seccomp import seccomp_for
from securebench.sandboxes.oci.supervisor.containers import DEVICES, NETWORK
from securebench.sandboxes.oci.supervisor.context import SHOWN
from securebench.sandboxes.oci.warm_pool import ContainerKind, Started, WarmPool
from securebench.sandboxes.spec_rules import (
    binds,
    granted_capabilities,
    memory_limit,
    nothing_to_collect,
    serve_forwarded_ports,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from securebench.sandboxes.base import Command, ForwardedPort, SandboxSpec
    from securebench.sandboxes.collected import CollectedLayer
    from securebench.sandboxes.oci.config import OciConfig, OciProcessConfig
    from securebench.sandboxes.oci.connection import Hello, ProcessHandle, SupervisorConnection
    from securebench.sandboxes.oci.process import Pipes
    from securebench.sandboxes.oci.runtime import OciRuntime
    from securebench.sandboxes.optimisations import Optimisations

LIFETIME_SECONDS: Final = 10 * 365 * 86400.0
"""The time limit of a persistent or warm container in seconds, which is never reached. Commands have their own."""

_START_SECONDS: Final = 60.0
"""The time limit in seconds for starting a process, and for the greeting of a persistent sandbox."""

_PORT_SECONDS: Final = 60.0
"""Seconds that the supervisor may take to open forwarded ports."""

_GREETING_BYTES: Final = 16
"""Number of random bytes that are sent, in hexadecimal, to the idle process ``cat``. It echoes them once it runs."""

_TRACING: Final = frozenset({"CAP_SYS_PTRACE", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH"})
"""Capabilities with which root can trace a process of an unreadable program, or read such a program."""


@dataclass(frozen=True)
class OciContext:
    """The state that all sandboxes of a driver share.

    ``run`` is the supervisor's directory and ``group`` the name of its cgroups. The supervisor copies some files for
    all sandboxes: ``shown`` maps the path of each of these files to the name of its copy.
    """

    connection: SupervisorConnection
    runtime: OciRuntime
    run: Path
    group: str
    shown: Mapping[Path, str]
    init: Path
    optimisations: Optimisations
    sandboxes: OpenSandboxes[OciSandbox] = field(default_factory=OpenSandboxes)
    warm_pool: WarmPool = field(default_factory=WarmPool)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def hello(self) -> Hello:
        """The supervisor's report. Raises :class:`EngineError`."""
        return self.connection.hello()

    @cached_property
    def has_cgroups(self) -> bool:
        """Whether cgroups enforce the memory and process limits of sandboxes. Raises :class:`EngineError`."""
        return {"memory", "pids"} <= set(self.hello.controllers)

    @cached_property
    def ids(self) -> HostIds:
        """The host ids to which ids in sandboxes can be mapped. Raises :class:`EngineError`."""
        return HostIds.of_namespace(self.hello.uid_map, self.hello.gid_map) if os.geteuid() else HostIds.of_root()


class OciContainer:
    """A container of ``spec`` on the unpacked image at ``tree``. It is created by :meth:`start`, not before."""

    def __init__(self, context: OciContext, spec: SandboxSpec, tree: Path) -> None:
        self._context = context
        self._spec = spec
        self._tree = tree
        self._name = f"s{next(context.numbers)}"
        self._directory = f"{context.run}/{self._name}"
        self._state = f"{context.run}/state"
        self._documents = itertools.count(1)

    def start(self, command: Command | None, pipes: Pipes) -> ProcessHandle:
        """Start the container and serve its forwarded ports. ``pipes`` are the standard streams of its process.

        The container runs ``command`` or, if that is ``None``, an idle process.

        Raises the errors of :func:`compile_config` and :func:`open_forwarded_ports`.
        """
        staged, sources = self._binds()
        document = compile_config(self._spec, command, self._layout(sources))
        limits, runtime, detached = self._spec.limits, self._context.runtime, self._is_detached()
        request = {
            "tree": str(self._tree),
            "size": limits.memory,
            "mounts": staged,
            "forwarded_ports": [forwarded_port.port for forwarded_port in self._spec.forwarded_ports],
            "enter": bool(self._spec.forwarded_ports) and not runtime.enters_networks,
            "limits": {
                "memory": memory_limit(self._spec),
                "pids": limits.pids + runtime.extra_pids,
                "cpu": limits.cpus,
            },
            "processes": limits.pids if self._needs_process_counter() else None,
            "argv": runtime.run_argv(
                self._directory, self._state, self._name, collects=self._spec.collect is not None, detached=detached
            ),
            "detached": detached,
            "record": record_of(self._state, self._name),
            "collect": self._spec.collect,
            "document": f"{self._directory}/config.json",
            "log": f"{self._directory}/{LOG}",
            "started": f"{self._directory}/{PID}",
            "seconds": LIFETIME_SECONDS if command is None else command.timeout_seconds,
        }
        handle = self._send(request, document, pipes)
        if self._spec.forwarded_ports:
            open_forwarded_ports(handle, self._spec.forwarded_ports)
        return handle

    def execute(self, command: Command, pipes: Pipes, within: ProcessHandle) -> ProcessHandle:
        """Start ``command`` in the running container ``within``.

        Raises the errors of :func:`compile_process` and :meth:`SupervisorConnection.start`.
        """
        path = f"{self._directory}/process-{next(self._documents)}/process.json"
        request = {
            "argv": self._context.runtime.exec_argv(path, self._state, self._name),
            "document": path,
            "log": f"{path}.{LOG}",
            "started": f"{path}.{PID}",
            "detached": self._context.runtime.detaches_commands,
            "seconds": command.timeout_seconds,
        }
        return self._send(request, compile_process(self._spec, command, self._layout({})), pipes, within)

    def _binds(self) -> tuple[list[tuple[str, bool]], dict[str, str]]:
        """Return a list of the mounts that the supervisor stages, and a dictionary of all bind mounts.

        The list has the source of each staged mount, and whether the mount is read-only. The dictionary has the target
        of each bind mount, and the path that the runtime mounts at the target.
        """
        shown = {source: f"{self._context.run}/{SHOWN}/{name}" for source, name in self._context.shown.items()}
        staged: list[tuple[str, bool]] = []
        sources = {INIT_TARGET: shown[self._context.init]}
        for mount in binds(self._spec):
            if mount.read_only and mount.source in shown:
                sources[mount.target] = shown[mount.source]
            else:
                sources[mount.target] = f"{self._directory}/mounts/{len(staged)}"
                staged.append((str(mount.source), mount.read_only))
        if self._spec.forwarded_ports:
            sources[DEVICES_TARGET] = f"{self._directory}/{DEVICES}"
        return staged, sources

    def _needs_process_counter(self) -> bool:
        """Whether the runtime needs a new user namespace, so that this sandbox's processes are counted separately."""
        return self._context.runtime.limits_itself and not self._context.has_cgroups

    def _is_detached(self) -> bool:
        """Return whether the supervisor, and not the runtime, waits for the container's first process."""
        # Root with one of the tracing capabilities could trace the first process, and choose how that process exits.
        may_trace = self._spec.user[0] == 0 and not _TRACING.isdisjoint(granted_capabilities(self._spec))
        # A waiting supervisor learns whether the first process was killed. Only cgroups show whether the kill was due
        # to the sandbox's own memory limit. Without cgroups, an agent could use up the machine's memory, and the kill
        # of its first process would count as an infrastructure error. Cgroups also list the processes that a killed
        # runtime left running.
        return self._context.runtime.detaches_containers and self._context.has_cgroups and not may_trace

    def _layout(self, sources: dict[str, str]) -> HostLayout:
        uid_map, gid_map = identity_map(self._spec.user, self._context.ids)
        return HostLayout(
            root=f"{self._directory}/root",
            sources=sources,
            uid_map=uid_map,
            gid_map=gid_map,
            seccomp=seccomp_for(self._spec, keep=self._context.optimisations.compiled_filters),
            runtime=self._context.runtime,
            network=f"{self._directory}/{NETWORK}" if self._spec.forwarded_ports else None,
            cgroup=f"/securebench/{self._context.group}/{self._name}" if self._context.has_cgroups else None,
        )

    def _chown(self, pipes: Pipes) -> None:
        """Make the sandbox's user the owner of the streams, so that programs can reopen them as ``/dev/stdout``.

        Do nothing if this process does not run as root. runc changes the owner itself, unless it detaches.
        """
        uids, gids = identity_map(self._spec.user, self._context.ids)
        for descriptor in pipes.remote if os.geteuid() == 0 else ():
            os.fchown(descriptor, outside(uids, self._spec.user[0]), outside(gids, self._spec.user[1]))

    def _send(
        self,
        request: dict[str, Any],
        document: OciConfig | OciProcessConfig,
        pipes: Pipes,
        within: ProcessHandle | None = None,
    ) -> ProcessHandle:
        if request["detached"]:
            self._chown(pipes)
        named = {"container": self._name, "start_seconds": _START_SECONDS, **request}
        return self._context.connection.start(named, json.dumps(document).encode(), pipes.remote, within)


def open_forwarded_ports(handle: ProcessHandle, forwarded_ports: Sequence[ForwardedPort]) -> None:
    """Receive the listening sockets of a starting container, and pass each to the ``serve`` of its port.

    If the container could not be created, do nothing: the supervisor's report gives the reason. Any other error kills
    the container. Raises :class:`InfrastructureError`, and the errors of ``serve``.
    """
    try:
        if listeners := handle.listeners(_PORT_SECONDS):
            serve_forwarded_ports(forwarded_ports, listeners)
    except BaseException:
        handle.kill()
        handle.hang_up()
        raise


class OciSandbox(DriverSandbox[OciProcess]):
    """An ephemeral sandbox: each command runs in a new container with the same spec."""

    def __init__(self, context: OciContext, spec: SandboxSpec, tree: Path) -> None:
        self._context = context
        self._tree = tree
        self._in_use: list[ContainerKind] = []
        super().__init__(context.sandboxes, spec)

    def collected(self) -> CollectedLayer:
        """Return the changes in the overlay's upper directory, which is kept in memory until the sandbox is closed."""
        self._raise_if_closed()
        reached(FaultPoint.SANDBOX_COLLECT)
        if self._collecting is None or self._spec.collect is None:
            raise nothing_to_collect()
        return self._collecting.changes(self._spec.collect)

    def kill(self) -> None:
        """Ask the supervisor to kill all commands. Do not wait for it. Afterwards the sandbox has to be closed."""
        self._closed = True
        for process in list(self._running):
            process.kill()

    def _start_command(self, command: Command) -> OciProcess:
        """Start ``command`` in a warm container, or in a new one if none is warm.

        If the runtime fails, :meth:`OciProcess.wait` raises the error.
        """
        started = self._take(command) or self._start_container(command)
        streams = OciStreams(started.pipes, started.handle, command.stdin)
        return OciProcess(streams, started.handle, command, self._spec.limits.output, self._running.discard)

    def _end_commands(self) -> None:
        """Kill all commands. If killed commands could still write to the host, wait until they have exited."""
        self.kill()
        for process in list(self._running):
            if not all(mount.read_only for mount in self._spec.mounts):
                process.await_end()
            process.abandon()
        if self._collecting is not None:
            self._collecting.release_changes()
        with suppress(IndexError):  # another closing thread may pop the last kind
            while True:
                self._replace(self._in_use.pop())

    def _take(self, command: Command) -> Started | None:
        """Return a warm container for this kind of command, or ``None`` if there is none."""
        may_wait = command.waits and self._context.optimisations.warm_pool
        kind = ContainerKind.of(self._spec, command) if may_wait else None
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
        with pipes_to_pass_on() as pipes:
            return Started(self._start(command, pipes), pipes)

    def _start(self, command: Command, pipes: Pipes) -> ProcessHandle:
        return OciContainer(self._context, self._spec, self._tree).start(command, pipes)


class PersistentOciSandbox(OciSandbox):
    """A persistent sandbox: one container, in which an idle main process and all commands run."""

    def _take(self, _command: Command) -> None:
        """Return ``None``: commands run in this sandbox's own container, never in a warm one."""

    def kill(self) -> None:
        """Ask the supervisor to kill the container, and return without waiting for its end."""
        super().kill()
        self._handle.kill()

    def _prepare(self) -> None:
        self._container = OciContainer(self._context, self._spec, self._tree)
        with pipes_to_pass_on() as pipes:
            self._handle = self._container.start(None, pipes)
        # The idle process exits when this end of its stdin is closed, which also happens if this process is killed.
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
            raise InfrastructureError(
                "this sandbox has exited: all its processes were killed, possibly because a limit was exceeded"
            )
        return self._container.execute(command, pipes, self._handle)


def _greet(handle: ProcessHandle, pipes: Pipes) -> None:
    """Send a greeting to the idle process, and wait for the echo. Raises the errors of :func:`raise_failure`.

    The greeting is random. Otherwise an error message of the runtime, which has the same stdout, might contain it.
    """
    greeting, echo = os.urandom(_GREETING_BYTES).hex().encode(), b""
    with suppress(BrokenPipeError):  # the idle process has exited: its report gives the reason
        os.write(pipes.stdin, greeting)
    poll = select.poll()
    poll.register(pipes.stdout, select.POLLIN)
    poll.register(handle, select.POLLIN)
    deadline = time.monotonic() + _START_SECONDS
    while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        try:
            echo = (echo + os.read(pipes.stdout, len(greeting)))[-len(greeting) :]
            if echo == greeting:
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
