"""Warm containers: started early, each with a command that waits for input.

A short task spends most of its time on starting a container and an interpreter. If containers were started only when
needed, one processor would be busy while another is idle. So when a sandbox whose command waits for input
(:attr:`~securebench.sandboxes.base.Command.waits`) is closed, a new container of the same kind is started with the same
command. The container runs only this command, which receives no input until another sandbox uses the container. A warm
container is used once, and its time limit begins when it is used.

Warm containers have no mounts of the host, because another directory could be at the same path by the time of use. They
have no forwarded ports, because a forwarded port is served for a single task.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from securebench.sandboxes.base import Command, SandboxSpec
    from securebench.sandboxes.oci.connection import ProcessHandle
    from securebench.sandboxes.oci.process import Pipes


@dataclass(frozen=True, slots=True)
class ContainerKind:
    """Everything that determines a container and its command. Containers of equal kinds are interchangeable."""

    spec: SandboxSpec
    command: Command

    @classmethod
    def of(cls, spec: SandboxSpec, command: Command) -> ContainerKind | None:
        """Return the kind of the container for ``spec`` and ``command``, or ``None`` if it cannot be started early."""
        if not command.waits or spec.mounts or spec.forwarded_ports or spec.collect is not None:
            return None
        return cls(replace(spec, labels={}), replace(command, timeout_seconds=0.0, stdin=b""))


@dataclass(frozen=True, slots=True, eq=False)
class Started:
    """A started container."""

    handle: ProcessHandle
    pipes: Pipes

    def end(self) -> None:
        """Kill the container, which has not been used, and close its pipes."""
        self.handle.kill()
        self.handle.hang_up()
        self.pipes.close_local()


class WarmPool:
    """Warm containers. Thread-safe.

    The pool never holds more containers than have been in use at the same time.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._ready: list[tuple[ContainerKind, Started]] = []
        self._in_use = 0
        self._most = 0

    def take(self, kind: ContainerKind) -> Started | None:
        """Return a container of ``kind``, or ``None`` if the caller must start one.

        In both cases, call :meth:`give_back` when the container is no longer used.
        """
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
        """Subtract one from the number of containers in use. The pool does not reuse containers."""
        with self._changing:
            self._in_use -= 1

    def add(self, kind: ContainerKind, started: Started) -> None:
        """Keep a container for the next request of ``kind``. If there are too many, remove the oldest."""
        with self._changing:
            self._ready.append((kind, started))
            too_many = len(self._ready) - self._most
            over, self._ready = self._ready[: max(too_many, 0)], self._ready[max(too_many, 0) :]
        for _, old in over:
            old.end()

    def clear(self) -> None:
        """Kill all warm containers."""
        with self._changing:
            ready, self._ready = self._ready, []
        for _, started in ready:
            started.end()
