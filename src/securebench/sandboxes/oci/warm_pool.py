"""Containers that were started ahead, in each a command that waits for what it is to do.

Starting a container and an interpreter in it takes most of the time of a short task, on one processor, while another
is idle. So when a sandbox is closed whose command waited (:attr:`~securebench.sandboxes.base.Command.waits`), one like
it is started, for the next who asks for exactly that. It is a new container, in which nothing but that command has run
and to which nothing was sent; who takes it is the only one who ever does, and its time limit starts then.

Nothing of a host's directory is in it: what lies at a path may be another directory by the time it is taken. Nor has it
forwarded ports, which are served for one task alone.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from securebench.sandboxes.base import Command, SandboxSpec
    from securebench.sandboxes.oci.handle import ProcessHandle
    from securebench.sandboxes.oci.streams import Pipes


@dataclass(frozen=True, slots=True)
class ContainerKind:
    """All that a container and what runs in it are made from. Those of equal kinds differ in nothing."""

    spec: SandboxSpec
    command: Command

    @classmethod
    def of(cls, spec: SandboxSpec, command: Command) -> ContainerKind | None:
        """Return the kind of what can be started ahead, or ``None`` for what cannot."""
        if not command.waits or spec.mounts or spec.forwarded_ports or spec.collect is not None:
            return None
        return cls(replace(spec, labels={}), replace(command, timeout_seconds=0.0, stdin=b""))


@dataclass(frozen=True, slots=True, eq=False)
class Started:
    """A container that was started."""

    handle: ProcessHandle
    pipes: Pipes

    def end(self) -> None:
        """End it. Nobody has taken it."""
        self.handle.kill()
        self.handle.hang_up()
        self.pipes.close_ours()


class WarmPool:
    """What was started ahead: never more than were once in use at the same time. Thread safe."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._ready: list[tuple[ContainerKind, Started]] = []
        self._in_use = 0
        self._most = 0

    def take(self, kind: ContainerKind) -> Started | None:
        """Return one of ``kind``, or ``None``: then one must be started. Either is in use until :meth:`give_back`."""
        with self._changing:
            self._in_use += 1
            self._most = max(self._most, self._in_use)
            found = next((entry for entry in self._ready if entry[0] == kind), None)
            if found is None:
                return None
            self._ready.remove(found)
        if found[1].handle.is_over():
            found[1].end()
            return None
        return found[1]

    def give_back(self) -> None:
        """Say that one that was taken is no longer in use. It is ended, and not used again."""
        with self._changing:
            self._in_use -= 1

    def add(self, kind: ContainerKind, started: Started) -> None:
        """Keep one for the next who asks for ``kind``. The oldest goes when they are too many."""
        with self._changing:
            self._ready.append((kind, started))
            too_many = len(self._ready) - self._most
            over, self._ready = self._ready[: max(too_many, 0)], self._ready[max(too_many, 0) :]
        for _, old in over:
            old.end()

    def clear(self) -> None:
        """End all of it."""
        with self._changing:
            ready, self._ready = self._ready, []
        for _, started in ready:
            started.end()
