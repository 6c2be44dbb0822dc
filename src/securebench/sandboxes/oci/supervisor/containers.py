"""A container and everything that was created for it.

Each container has a directory with a tmpfs. All its mounts are below this directory, so one system call unmounts them.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from securebench.faults import FaultPoint, reached
from securebench.sandboxes.oci.supervisor import mounts
from securebench.sandboxes.oci.supervisor.cgroups import Group
from securebench.sandboxes.oci.supervisor.changes import open_changes
from securebench.sandboxes.oci.supervisor.network import make_network
from securebench.sandboxes.oci.supervisor.processes import OomKills, RuntimeCall, children, is_exiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.sandboxes.oci.supervisor.cgroup_pool import CgroupPool, PooledCgroup
    from securebench.sandboxes.oci.supervisor.context import SupervisorContext
    from securebench.sandboxes.oci.supervisor.processes import RuntimeProcess
    from securebench.sandboxes.oci.wire import ProcessReport

_EXIT_NOTICE_SECONDS = 2.0
"""How many seconds a runtime may take to exit after the kill of its container. Then the runtime is killed too."""

_DOCUMENT_BYTES = 1024 * 1024
"""Space in bytes for the runtime's documents, in addition to what the container may write."""

NETWORK = "network"
"""The file in a container's directory to which the container's network namespace is bound.

It exists only if the supervisor created this namespace.
"""

DEVICES = "sys"
"""The directory that is mounted at ``/sys`` of a container whose network namespace the supervisor created."""


class SupervisedContainer:
    """The files, mounts, cgroup and processes of one container. The container exits with its process ``main``.

    ``delayed`` are exited processes, each with its wait status, that are reported only after ``main``. ``lost`` is the
    reason if the machine, and not the sandbox, caused the exit of ``main``. Otherwise it is empty.
    """

    def __init__(self, name: str, context: SupervisorContext) -> None:
        self.name = name
        self.directory = f"{context.run}/{name}"
        self.processes: set[RuntimeProcess] = set()
        self.main: RuntimeProcess | None = None
        self._context = context
        self._group: Group | None = None
        self._pooled: PooledCgroup | None = None
        self._cgroup_pool: CgroupPool | None = None
        self.delayed: list[tuple[RuntimeProcess, int]] = []
        self._first_kill: float | None = None
        self._collect: str | None = None
        self._record: str | None = None
        self.lost = ""
        self._enters = False
        self._main_was_reaped = False

    def prepare(self, request: dict[str, Any], cgroup_pool: CgroupPool) -> None:
        """Create the mounts and cgroup for ``request``. Raises ``OSError`` and :class:`~.mounts.UnsafeSourceError`."""
        reached(FaultPoint.CONTAINER_PREPARE)
        self._collect = request.get("collect")
        self._enters = request["enter"]
        self._record = request["record"]
        os.mkdir(self.directory)
        mounts.mount_tmpfs(self.directory, "711", request["size"] + _DOCUMENT_BYTES)
        self._mount_root(request)
        os.mkdir(f"{self.directory}/mounts", 0o711)
        for number, (source, read_only) in enumerate(request["mounts"]):
            mounts.stage(source, f"{self.directory}/mounts/{number}", read_only=read_only)
        if self._context.hierarchies:
            # A pooled process is a shell, which cannot enter a network namespace or create a user namespace. With a
            # runtime that does not detach, the supervisor's copies of the streams would stay open until the container
            # exits.
            may_pool = request["detached"] and not self._enters and request["processes"] is None
            self._pooled = cgroup_pool.take(request["limits"]) if may_pool else None
            self._cgroup_pool = cgroup_pool if self._pooled else None
            self._group = self._pooled.group if self._pooled else self._make_group(request["limits"])

    def write(self, path: str, document: bytes) -> None:
        """Write a runtime's document to ``path`` in this container's directory, or in a new directory below it."""
        directory = os.path.dirname(path)
        if directory != self.directory:
            os.mkdir(directory, 0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(document)

    def discard(self, path: str) -> None:
        """Remove the directory of the file ``path``, with all files in it."""
        _remove_directory(os.path.dirname(path))

    @property
    def is_ending(self) -> bool:
        """Whether the container is being killed."""
        return self._first_kill is not None

    def is_exiting(self) -> bool:
        """Whether the first process of a detached container is exiting. The kernel then kills all other processes.

        The kernel marks the first process as exiting, then kills the others. It waits until they have exited before the
        first process itself exits. So the supervisor sees the exits of the others earlier. If another process was
        killed but the first process is not marked, the kill had a different cause.
        """
        first = self._first_pid()
        return first > 0 and is_exiting(first)

    def launch(self, process: RuntimeProcess, argv: list[str], processes: int | None) -> None:
        """Start the runtime of ``process`` in the container's cgroup. Raises ``OSError``.

        ``processes`` is the process limit if the supervisor must apply it to the runtime, else ``None``.
        """
        reached(FaultPoint.RUNTIME_START, "exec" if self.main else "run")
        process.oom_before = self.oom_kills()
        pooled, self._pooled = self._pooled, None
        network = f"{self.directory}/{NETWORK}" if self._enters else None
        runtime = RuntimeCall(argv, self.directory, process.log, network, processes, self._context.program)
        if pooled is not None and pooled.launch(runtime, process.streams):
            process.pid = pooled.pid
        else:
            process.start(runtime, self._enter)
        self.processes.add(process)

    def oom_kills(self) -> OomKills:
        """Return the counts of out-of-memory kills from the container's cgroup. Without a cgroup, both counts are 0."""
        group = self._group
        return OomKills() if group is None else OomKills(group.out_of_memory_kills(), group.kills_at_limit())

    def open_forwarded_ports(self, ports: list[int]) -> list[int]:
        """Create the network namespace. Return a listening socket in it for each port. Raises ``OSError``."""
        return make_network(ports, f"{self.directory}/{NETWORK}", f"{self.directory}/{DEVICES}")

    def with_changes(self, report: ProcessReport) -> tuple[ProcessReport, list[int]]:
        """Return ``report`` with the outcome of collecting changes, and a list of descriptors.

        The list contains the descriptor of the directory with the changes, or is empty if no directory was opened. The
        processes of the container must have exited.
        """
        if self._collect is None:
            return report, []
        opaque = mounts.opaque(user_attributes=self._context.nested)
        report, descriptor = open_changes(report, f"{self.directory}/upper", self._collect, opaque)
        return report, [descriptor] if descriptor >= 0 else []

    def kill(self) -> bool:
        """Kill the container. Return whether ``main`` is still running. If it is, repeat this call.

        When the first process of a pid namespace dies, the kernel kills all others in it, and the runtime then exits.
        The first process is a child of the runtime, unless the runtime detaches and writes the pid to a file.
        """
        if self._main_was_reaped:
            return False  # the pid of ``main`` may be in use again; :meth:`kill_rest` kills the others
        now = time.monotonic()
        self._first_kill = self._first_kill or now
        for process in self.processes:
            process.killed = True
        if self.main not in self.processes or self.main is None:
            return False
        first = self._first_pid()
        pids = [first] if first else children(self.main.pid)
        if now - self._first_kill > _EXIT_NOTICE_SECONDS:
            pids.append(self.main.pid)
        _kill(pids)
        return True

    def kill_rest(self, orphans: Callable[[], list[int]]) -> bool:
        """Kill the container's remaining processes after ``main`` was killed. Return whether none is left.

        If the container has no cgroup, ``orphans`` returns these processes. They have become children of the
        supervisor, because the supervisor is the first process of its own pid namespace.
        """
        # From now on, the container counts as ending. This kill also ends the container's commands, whose runtimes may
        # then exit with 137, as if a process in the container had killed them.
        self._first_kill = self._first_kill or time.monotonic()
        self._main_was_reaped = True
        if self._group is not None:
            self._group.kill()
            return self._group.is_empty()
        remaining = orphans()
        _kill(remaining)
        return not remaining

    def remove(self) -> bool:
        """Remove the container. Return ``False`` if its cgroup still exists. If so, repeat this call.

        The kernel keeps a cgroup briefly after its last process exits.
        """
        with suppress(OSError):
            reached(FaultPoint.CONTAINER_REMOVE)
            mounts.detach(self.directory)
        with suppress(OSError):
            os.rmdir(self.directory)
        if self._record is not None:  # a runtime that detached or was killed leaves its record
            _remove_directory(self._record)
        group, self._group = self._group, None
        if group is None or (self._cgroup_pool is not None and self._cgroup_pool.keep(group)) or group.remove():
            return True
        self._group, self._cgroup_pool = group, None
        return False

    def _first_pid(self) -> int:
        """Return the pid of the first process of a detached container, or 0 if it is not known (yet).

        The first process may die before the runtime that started it has exited.
        """
        if self.main is None:
            return 0
        return self.main.pid if self.main.is_adopted else self.main.detached_pid()

    def _make_group(self, limits: dict[str, float]) -> Group:
        context = self._context
        group = Group(context.hierarchies, f"{context.group}/{self.name}", inner=context.settings.inner_groups)
        try:
            group.limit(limits)
        except OSError:
            group.remove()
            raise
        return group

    def _enter(self) -> None:
        """Join the container's cgroup. Before a further command, also wait until ``main`` has started.

        This method can wait because it runs in the new process that becomes the runtime, not in the supervisor.
        """
        if self._group is not None:
            self._group.enter()
        if self.main is not None:  # this process is going to run a command
            self.main.await_start()

    def _mount_root(self, request: dict[str, Any]) -> None:
        for name in ("work", "root", "upper", "upper/dev"):  # gVisor creates files in /dev before it mounts there
            os.mkdir(f"{self.directory}/{name}")
        settings = self._context.settings
        for name in ("upper", "upper/dev"):
            os.chown(f"{self.directory}/{name}", settings.owner, settings.owner)
        nested = self._context.nested
        mounts.mount_overlay(self.directory, request["tree"], locked=settings.locks_root, user_attributes=nested)


def _remove_directory(directory: str) -> None:
    """Remove a directory and the runtime's files in it. Do nothing if it does not exist."""
    with suppress(OSError):
        for name in os.listdir(directory):
            os.unlink(f"{directory}/{name}")
        os.rmdir(directory)


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
