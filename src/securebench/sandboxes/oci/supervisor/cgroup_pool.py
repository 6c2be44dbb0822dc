"""Processes that wait in cgroups, each in its own, until they become a sandbox's runtime.

Moving a process into a cgroup can take the kernel 10 ms, because it waits for an RCU grace period on all processors.
The rest of a sandbox does not take longer. So it is done in advance. A waiting process is used once. Its cgroup is
reused when it is empty and has no memory charged to it that could affect another sandbox, because removing a cgroup
takes the kernel twice as long as entering one and would block all sandboxes.
"""

from __future__ import annotations

import itertools
import os
import signal
from typing import TYPE_CHECKING

from securebench.ipc.frames import channel_pair, pack, receive, send
from securebench.sandboxes.oci.supervisor.cgroups import Group
from securebench.sandboxes.oci.supervisor.processes import RuntimeCall, become

if TYPE_CHECKING:
    import socket

    from securebench.sandboxes.oci.supervisor.context import SupervisorContext

_COUNT = 4
_KEPT_GROUPS = 8
_REQUEST_DESCRIPTORS = 4
"""Three standard streams and the runtime's program."""
_FIRST_DESCRIPTOR = 3
_LAST_DESCRIPTOR = 1 << 20

LEAST_MEMORY = 32 * 1024 * 1024
"""Bytes. A waiting process has memory charged to its cgroup already, so it is not used for smaller limits."""


class PooledCgroup:
    """A process in ``group`` that waits to become a runtime. Raises ``OSError``."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._channel, remote = channel_pair()
        self.pid = os.fork()
        if self.pid == 0:
            _wait_in(group, remote)
        remote.close()

    def launch(self, runtime: RuntimeCall, streams: list[int]) -> bool:
        """Turn it into ``runtime``. Return whether it was still running."""
        program = () if runtime.program is None else (runtime.program,)
        with self._channel:
            try:
                send(self._channel, pack({"runtime": runtime[:-1]}), (*streams, *program))
            except OSError:
                return False
        return True


class CgroupPool:
    """The cgroups that a supervisor keeps ready."""

    def __init__(self, context: SupervisorContext) -> None:
        self._context = context
        self._numbers = itertools.count(1)
        self._ready: list[PooledCgroup] = []
        self._groups: list[Group] = []

    def take(self, limits: dict[str, float]) -> PooledCgroup | None:
        """Return the oldest one, with ``limits`` applied, or ``None`` if none is suitable. Raises ``OSError``."""
        if not self._ready or limits["memory"] < LEAST_MEMORY:
            return None
        pooled = self._ready.pop(0)
        pooled.group.limit(limits)
        return pooled

    def refill(self) -> None:
        """Create cgroups until there are enough. If the runtime creates its own, or none can be created, do nothing."""
        context, settings = self._context, self._context.settings
        while settings.pooled and context.hierarchies and not settings.inner_groups and len(self._ready) < _COUNT:
            self._ready.append(PooledCgroup(self._groups.pop() if self._groups else self._new_group()))

    def keep(self, group: Group) -> bool:
        """Keep the cgroup of an exited process for another one. Return whether it can be reused."""
        if len(self._groups) >= _KEPT_GROUPS or not group.is_as_new():
            return False
        group.reset_peak()
        self._groups.append(group)
        return True

    def remove(self) -> None:
        """Remove their cgroups, after they were killed."""
        for group in (*self._groups, *(pooled.group for pooled in self._ready)):
            group.remove()

    def _new_group(self) -> Group:
        context = self._context
        return Group(context.hierarchies, f"{context.group}/spare-{next(self._numbers)}", inner=False)


def _wait_in(group: Group, channel: socket.socket) -> None:
    try:
        signal.set_wakeup_fd(-1)
        # When the supervisor closes a descriptor, no copy of it may stay open in this process: others wait for that.
        os.closerange(_FIRST_DESCRIPTOR, channel.fileno())
        os.closerange(channel.fileno() + 1, _LAST_DESCRIPTOR)
        group.enter()
        if frame := receive(channel, _REQUEST_DESCRIPTORS):
            stdin, stdout, stderr, *program = frame.descriptors
            become(RuntimeCall(*frame.body["runtime"], *program), [stdin, stdout, stderr])
    finally:
        os._exit(127)
