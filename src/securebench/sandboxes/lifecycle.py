"""The life of a sandbox on a real driver: created, commands started, closed; and the stop of the whole run meanwhile.

Several threads meet here: the one of the task, which starts commands and closes; the one that stops the run; and with
Docker those that remove things in the background. Starting and ending a container takes long and calls back, so no lock
is held meanwhile. Each race has two sides, of which at least one sees the other:

* *Creating against stopping.* The creator adds its sandbox to the open ones, then looks whether the run was stopped.
  Stopping sets that first, then lists the open ones. So either the list has the sandbox, or its creator closes it.
* *Starting a command against closing.* The starter adds the command to the running ones, then looks whether the sandbox
  was closed. Closing sets that first, then lists the running ones. If both see each other the command ends twice,
  which is harmless.
* *Ending against ending.* What may be ended once only is claimed first (:func:`claim`). A persistent container has a
  descriptor to close: a second close would hit whatever has the same number by then.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from securebench.errors import EngineError, InfrastructureError
from securebench.sandboxes.base import Sandbox, SandboxProcess
from securebench.sandboxes.collecting import one_command_only

if TYPE_CHECKING:
    from securebench.sandboxes.base import Command, SandboxSpec

T = TypeVar("T")
SandboxT = TypeVar("SandboxT", bound=Sandbox)
ProcessT = TypeVar("ProcessT", bound=SandboxProcess)


def claim(held: set[T], item: T) -> bool:
    """Remove ``item`` from ``held``. Return whether it was present: of many competing threads, one gets ``True``."""
    try:
        held.remove(item)  # atomic: the interpreter does not switch threads within it
    except KeyError:
        return False
    return True


class OpenSandboxes(Generic[SandboxT]):
    """The open sandboxes of a driver, and whether it may create more. Thread-safe."""

    def __init__(self) -> None:
        self._open: set[SandboxT] = set()
        self._stopped = threading.Event()

    @property
    def is_stopped(self) -> bool:
        """Whether the run is stopping."""
        return self._stopped.is_set()

    def raise_if_stopped(self) -> None:
        """Raise :class:`EngineError` (``run-stopped``) if the run is stopping."""
        if self.is_stopped:
            raise EngineError("the run is being stopped: no more sandboxes are started", code="run-stopped")

    def add(self, sandbox: SandboxT) -> None:
        """Add ``sandbox`` to the open ones."""
        self._open.add(sandbox)

    def claim(self, sandbox: SandboxT) -> bool:
        """Remove ``sandbox`` from the open ones. Returns ``True`` to exactly one caller."""
        return claim(self._open, sandbox)

    def stop(self) -> set[SandboxT]:
        """Allow no more sandboxes, and return the open ones for the caller to close."""
        self._stopped.set()
        return self._open.copy()


class DriverSandbox(Sandbox, Generic[ProcessT]):
    """A sandbox of a real driver. ``siblings`` are the open sandboxes of the driver.

    A subclass removes each process from ``_running`` when it has ended.
    """

    def __init__(self, siblings: OpenSandboxes[Any], spec: SandboxSpec) -> None:
        """Prepare it. Raises :class:`InfrastructureError` after cleaning up."""
        self._siblings = siblings
        self._spec = spec
        self._running: set[ProcessT] = set()
        self._collecting: ProcessT | None = None
        self._closed = False
        siblings.raise_if_stopped()
        self._prepare()
        siblings.add(self)
        if siblings.is_stopped:  # the thread that stops the run may have missed it during preparation
            self.close()
            siblings.raise_if_stopped()

    def open(self, command: Command) -> ProcessT:
        """Start ``command``. Raises :class:`InfrastructureError`."""
        self._raise_if_closed()
        if self._collecting is not None:
            raise one_command_only()
        process = self._start_command(command)
        self._running.add(process)
        if self._spec.collect is not None:
            self._collecting = process
        if self._closed or self._siblings.is_stopped:  # the thread that closed it may have missed the new command
            self.close()
            self._raise_if_closed()
        return process

    def close(self) -> None:
        """Stop all its processes.

        When this returns, no process of this sandbox can change files of the host any more.
        """
        self._closed = True
        self._end_commands()
        if self._siblings.claim(self):
            self._end_container()

    def _raise_if_closed(self) -> None:
        self._siblings.raise_if_stopped()
        if self._closed:
            raise InfrastructureError("this sandbox is closed", code="sandbox-closed")

    def _prepare(self) -> None:
        """Start the container of a persistent sandbox. Ephemeral ones have no container before their first command."""

    @abstractmethod
    def _start_command(self, command: Command) -> ProcessT:
        """Start ``command``."""

    @abstractmethod
    def _end_commands(self) -> None:
        """Stop running commands. May be called repeatedly, and by several threads at once."""

    def _end_container(self) -> None:
        """Stop the container of a persistent sandbox. Called once."""
