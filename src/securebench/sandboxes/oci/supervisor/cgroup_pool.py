"""A pool of processes that wait, each in its own cgroup, until they become a sandbox's runtime.

Moving a process into a cgroup can take the kernel 10 ms, because it waits for an RCU grace period on all processors.
That is as long as the rest of a sandbox's start, so it is done in advance. A waiting process is used once. Its cgroup
is reused if it is empty and almost no memory is charged to it, because removing a cgroup takes the kernel twice as long
as entering one and would block all sandboxes.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

from securebench.sandboxes.oci.supervisor.cgroups import Group
from securebench.sandboxes.oci.supervisor.processes import DEFAULT_SIGNALS, PATH, SCRATCH_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.sandboxes.oci.supervisor.context import SupervisorContext
    from securebench.sandboxes.oci.supervisor.processes import RuntimeCall

_COUNT = 4
_KEPT_GROUPS = 8
_SHELL = ("/bin/sh", "-s", "securebench: spare")
"""The command of a waiting process. It reads commands from stdin. The last argument only labels it in process lists."""

LEAST_MEMORY = 32 * 1024 * 1024
"""A sandbox with a lower memory limit, in bytes, gets no pooled cgroup.

The memory of the cgroup's waiting process counts towards the limit.
"""


class PooledCgroup:
    """A shell in ``group`` that waits to become a runtime. Raises ``OSError``.

    The shell is started with ``posix_spawn``, not with a fork. A fork would copy the supervisor's page tables.
    Afterwards, both processes would have to copy each page of memory before they write to it.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        commands, self._commands = os.pipe2(os.O_CLOEXEC)
        actions = [(os.POSIX_SPAWN_DUP2, commands, 0), (os.POSIX_SPAWN_DUP2, 1, 2)]  # discard the shell's errors
        try:
            self.pid = os.posix_spawn(
                _SHELL[0], _SHELL, {"PATH": PATH}, file_actions=actions, setsid=True, setsigdef=DEFAULT_SIGNALS
            )
            self._send_commands(*(f"echo 0 >{_quoted(path)} || exit" for path in group.process_lists()))
        except OSError:
            os.close(self._commands)
            raise
        finally:
            os.close(commands)

    def launch(self, runtime: RuntimeCall, streams: Sequence[int]) -> bool:
        """Make the waiting shell execute ``runtime``. Return ``False`` if the shell is gone.

        ``streams`` are pipes that the shell opens itself. The caller must keep them open until the container has
        started.
        """
        own = f"/proc/{os.getpid()}/fd"
        program = runtime.argv[0] if runtime.program is None else f"{own}/{runtime.program}"
        words = " ".join(map(_quoted, (program, *runtime.argv[1:])))
        stdin, stdout, stderr = streams
        try:
            self._send_commands(
                f"cd {_quoted(runtime.directory)} || exit",
                f"export {SCRATCH_VARIABLE}={_quoted(runtime.directory)}",
                f"exec {words} <{own}/{stdin} >{own}/{stdout} 2>{own}/{stderr}",
            )
        except OSError:
            return False
        finally:
            os.close(self._commands)
        return True

    def _send_commands(self, *commands: str) -> None:
        os.write(self._commands, os.fsencode("".join(f"{command}\n" for command in commands)))


class CgroupPool:
    """The waiting processes and empty cgroups that a supervisor keeps ready."""

    def __init__(self, context: SupervisorContext) -> None:
        self._context = context
        self._numbers = itertools.count(1)
        self._ready: list[PooledCgroup] = []
        self._groups: list[Group] = []

    def take(self, limits: dict[str, float]) -> PooledCgroup | None:
        """Return a waiting process with ``limits`` applied, or ``None`` if none is suitable. Raises ``OSError``."""
        if not self._ready or limits["memory"] < LEAST_MEMORY:
            return None
        pooled = self._ready.pop(0)
        pooled.group.limit(limits)
        return pooled

    def refill(self) -> None:
        """Start processes that wait to become a runtime, until there are enough of them.

        Do nothing if the pool is switched off, if there are no cgroups, or if runtimes create their own.
        """
        context, settings = self._context, self._context.settings
        while settings.pooled and context.hierarchies and not settings.inner_groups and len(self._ready) < _COUNT:
            self._ready.append(PooledCgroup(self._groups.pop() if self._groups else self._new_group()))

    def keep(self, group: Group) -> bool:
        """Keep the cgroup of an exited sandbox for another sandbox, if it can be reused. Return whether it was kept."""
        if len(self._groups) >= _KEPT_GROUPS or not group.is_as_new():
            return False
        group.reset_peak()
        self._groups.append(group)
        return True

    def remove(self) -> None:
        """Remove all cgroups of the pool. Their processes must have been killed."""
        for group in (*self._groups, *(pooled.group for pooled in self._ready)):
            group.remove()

    def _new_group(self) -> Group:
        context = self._context
        return Group(context.hierarchies, f"{context.group}/spare-{next(self._numbers)}", inner=False)


def _quoted(word: str) -> str:
    """Return ``word`` quoted for a shell. ``shlex`` would load modules that the supervisor does not need."""
    return "'" + word.replace("'", "'\\''") + "'"
