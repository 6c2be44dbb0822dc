"""Processes that wait in cgroups of their own to become a sandbox's runtime.

Putting a process into a cgroup can take the kernel 10 ms, as it waits for every processor to pass a quiet state: as
long as a whole sandbox takes otherwise. So it is done beforehand, while nobody waits. No spare is used twice; its group
is, once nothing is in it any more and nothing is charged to it that another sandbox could feel: removing one takes the
kernel twice as long as entering it, and everybody would wait for that.
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
_ORDER_DESCRIPTORS = 4
"""Three standard streams and the runtime's program."""
_FIRST_DESCRIPTOR = 3
_LAST_DESCRIPTOR = 1 << 20

LEAST_MEMORY = 32 * 1024 * 1024
"""Bytes. A spare has used some memory in its group already: none is used for a limit that it would not fit into."""


class PooledCgroup:
    """A process in ``group``, where it waits for what to become. Raises ``OSError``."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._ours, theirs = channel_pair()
        self.pid = os.fork()
        if self.pid == 0:
            _wait_in(group, theirs)
        theirs.close()

    def launch(self, runtime: RuntimeCall, streams: list[int]) -> bool:
        """Let it become ``runtime``. Return whether it was there to do so."""
        program = () if runtime.program is None else (runtime.program,)
        with self._ours:
            try:
                send(self._ours, pack({"runtime": runtime[:-1]}), (*streams, *program))
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
        """Return the oldest spare, now limited, or ``None`` if there is none that fits. Raises ``OSError``."""
        if not self._ready or limits["memory"] < LEAST_MEMORY:
            return None
        pooled = self._ready.pop(0)
        pooled.group.limit(limits)
        return pooled

    def refill(self) -> None:
        """Create cgroups until there are enough. If the runtime creates its own, or none can be created, do nothing."""
        around = self._context
        while around.pooled and around.hierarchies and not around.inner_groups and len(self._ready) < _COUNT:
            self._ready.append(PooledCgroup(self._groups.pop() if self._groups else self._new_group()))

    def keep(self, group: Group) -> bool:
        """Keep the group of a spare that has ended for another one. Return whether it can be."""
        if len(self._groups) >= _KEPT_GROUPS or not group.is_as_new():
            return False
        group.forget_peak()
        self._groups.append(group)
        return True

    def remove(self) -> None:
        """Remove their groups. They have been killed."""
        for group in (*self._groups, *(pooled.group for pooled in self._ready)):
            group.remove()

    def _new_group(self) -> Group:
        around = self._context
        return Group(around.hierarchies, f"{around.group}/spare-{next(self._numbers)}", inner=False)


def _wait_in(group: Group, orders: socket.socket) -> None:
    try:
        signal.set_wakeup_fd(-1)
        # Whoever waits for the supervisor to close one of its descriptors must not wait for this copy of it.
        os.closerange(_FIRST_DESCRIPTOR, orders.fileno())
        os.closerange(orders.fileno() + 1, _LAST_DESCRIPTOR)
        group.enter()
        if frame := receive(orders, _ORDER_DESCRIPTORS):
            stdin, stdout, stderr, *program = frame.descriptors
            become(RuntimeCall(*frame.body["runtime"], *program), [stdin, stdout, stderr])
    finally:
        os._exit(127)
