"""A cell: one container with all that was made for it, in a directory that is a file system in memory of its own.

Everything that is mounted for a cell lies below that directory, so taking it away is one system call.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from securebench.sandboxes.oci.supervisor import mounts
from securebench.sandboxes.oci.supervisor.cgroups import Group
from securebench.sandboxes.oci.supervisor.changes import open_changes
from securebench.sandboxes.oci.supervisor.network import make_network
from securebench.sandboxes.oci.supervisor.processes import RuntimeCall, Starved, children, is_exiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.sandboxes.oci.supervisor.cgroup_pool import CgroupPool, PooledCgroup
    from securebench.sandboxes.oci.supervisor.context import SupervisorContext
    from securebench.sandboxes.oci.supervisor.processes import RuntimeProcess

_PATIENCE_SECONDS = 2.0
"""How long a runtime whose container was killed gets to notice, before it is killed itself."""

_DOCUMENT_BYTES = 1024 * 1024
"""Room for what is written here for the runtime, beside what the container may write."""


NETWORK = "network"
"""The file of a cell's directory to which its network namespace is bound, where the supervisor made that."""

DEVICES = "sys"
"""The directory of a cell that is ``/sys`` of such a container."""


class SupervisedContainer:
    """The files, mounts, groups and jobs of one container. ``main`` is the job whose end is its end.

    ``held`` are jobs that have ended, with their wait status, whose end is not reported before that of ``main``.
    ``lost`` is why the end of ``main`` says nothing about what ran in it, or empty.
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
        self.held: list[tuple[RuntimeProcess, int]] = []
        self._first_kill: float | None = None
        self._collect: str | None = None
        self._record: str | None = None
        self.lost = ""
        self._enters = False

    def prepare(self, request: dict[str, Any], cgroup_pool: CgroupPool) -> None:
        """Make what ``request`` asks for. Raises ``OSError`` and :class:`~.mounts.UnsafeSourceError`."""
        self._collect = request.get("collect")
        self._enters = request["enter"]
        self._record = request["record"]
        os.mkdir(self.directory)
        mounts.mount_tmpfs(self.directory, "711", request["size"] + _DOCUMENT_BYTES)
        self._show_root(request)
        os.mkdir(f"{self.directory}/mounts", 0o711)
        for number, (source, read_only) in enumerate(request["mounts"]):
            mounts.stage(source, f"{self.directory}/mounts/{number}", read_only=read_only)
        around = self._context
        if around.hierarchies:
            self._pooled = cgroup_pool.take(request["limits"]) if request["processes"] is None else None
            self._cgroup_pool = cgroup_pool if self._pooled else None
            self._group = self._pooled.group if self._pooled else self._make_group(request["limits"])

    def write(self, path: str, document: bytes) -> None:
        """Write a runtime's document to ``path``, which lies in this cell, or in a new directory of it."""
        directory = os.path.dirname(path)
        if directory != self.directory:
            os.mkdir(directory, 0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(document)

    def discard(self, path: str) -> None:
        """Remove the directory of a document, which is not this cell's own, with all that the runtime put there."""
        _remove_directory(os.path.dirname(path))

    @property
    def is_ending(self) -> bool:
        """Whether it is being killed."""
        return self._first_kill is not None

    def is_falling(self) -> bool:
        """Whether its first process is ending, where that was left to us: the kernel kills all others with it.

        It is marked before it kills them, and ends when the last was waited for. So what was killed by it is heard of
        earlier than it, and what was killed while it is not marked was killed by something else.
        """
        return self.main is not None and self.main.is_left and is_exiting(self.main.pid)

    def launch(self, process: RuntimeProcess, argv: list[str], streams: list[int], processes: int | None) -> None:
        """Start the runtime of ``process`` in its groups. Raises ``OSError``.

        ``processes`` is how many it may have, where no group limits them and the runtime does not either.
        """
        process.starved_before = self.starved()
        pooled, self._pooled = self._pooled, None
        network = f"{self.directory}/{NETWORK}" if self._enters else None
        runtime = RuntimeCall(argv, self.directory, process.log, network, processes, self._context.program)
        if pooled is not None and pooled.launch(runtime, streams):
            process.pid = pooled.pid
        else:
            process.start(runtime, streams, self._enter)
        self.processes.add(process)

    def starved(self) -> Starved:
        """Return what its group says of its want of memory, which is nothing where it has none."""
        group = self._group
        return Starved() if group is None else Starved(group.out_of_memory_kills(), group.kills_at_limit())

    def open_forwarded_ports(self, ports: list[int]) -> list[int]:
        """Make its network namespace, and return a listening socket in it for each port. Raises ``OSError``."""
        return make_network(ports, f"{self.directory}/{NETWORK}", f"{self.directory}/{DEVICES}")

    def changes(self) -> tuple[dict[str, Any], list[int]]:
        """Return what is to be reported of what it changed, with its descriptor if it did.

        Nothing in it lives any more.
        """
        if self._collect is None:
            return {}, []
        opaque = mounts.opaque(user_attributes=self._context.nested)
        report, descriptor = open_changes(f"{self.directory}/upper", self._collect, opaque)
        return report, [descriptor] if descriptor >= 0 else []

    def kill(self) -> bool:
        """Kill the container. Return whether its runtime still runs, so that it should be tried again.

        The first process of a pid namespace takes all others with it, and its runtime then ends by itself. It is a
        child of its runtime, if that waits for it, and else written down as soon as it was started.
        """
        now = time.monotonic()
        self._first_kill = self._first_kill or now
        for process in self.processes:
            process.killed = True
        if self.main not in self.processes or self.main is None:
            return False
        if self.main.is_left:
            victims = [self.main.pid]
        elif first := self.main.left():
            victims = [first]
        else:
            victims = children(self.main.pid)
        if now - self._first_kill > _PATIENCE_SECONDS:
            victims.append(self.main.pid)
        _kill(victims)
        return True

    def is_still(self, orphans: Callable[[], list[int]]) -> bool:
        """Whether nothing in it runs any more, after its runtime was killed; what still does is killed.

        Without groups that is what ``orphans`` returns: they come to the first process of a namespace, the supervisor.
        """
        if self._group is not None:
            self._group.kill()
            return self._group.is_empty()
        left = orphans()
        _kill(left)
        return not left

    def remove(self) -> bool:
        """Take it away. Return whether it is gone: the kernel keeps groups for a moment after their last process."""
        with suppress(OSError):
            mounts.detach(self.directory)
        with suppress(OSError):
            os.rmdir(self.directory)
        if self._record is not None:  # a runtime that has left, or was killed, has not removed it
            _remove_directory(self._record)
        group, self._group = self._group, None
        if group is None or (self._cgroup_pool is not None and self._cgroup_pool.keep(group)) or group.remove():
            return True
        self._group, self._cgroup_pool = group, None
        return False

    def _make_group(self, limits: dict[str, float]) -> Group:
        around = self._context
        group = Group(around.hierarchies, f"{around.group}/{self.name}", inner=around.inner_groups)
        try:
            group.limit(limits)
        except OSError:
            group.remove()
            raise
        return group

    def _enter(self) -> None:
        """Join its group; in the new process of a runtime, which may wait."""
        if self._group is not None:
            self._group.enter()
        if self.main is not None:  # what is started is a command
            self.main.await_start()

    def _show_root(self, request: dict[str, Any]) -> None:
        for name in ("work", "root", "upper", "upper/dev"):  # gVisor makes files at /dev before it mounts there
            os.mkdir(f"{self.directory}/{name}")
        for name in ("upper", "upper/dev"):
            os.chown(f"{self.directory}/{name}", request["owner"], request["owner"])
        nested = self._context.nested
        mounts.mount_overlay(self.directory, request["tree"], locked=request["locked"], user_attributes=nested)


def _remove_directory(directory: str) -> None:
    """Remove a directory of a runtime's own files, if it is there."""
    with suppress(OSError):
        for name in os.listdir(directory):
            os.unlink(f"{directory}/{name}")
        os.rmdir(directory)


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
