"""The executor interface: an executor hands the tasks of a run to workers and returns their records, all as bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

from securebench.errors import InfrastructureError
from securebench.plugins import Extension

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from securebench.strict_input.models import WireModel


class Worker(ABC):
    """Turns an assignment, one trial of a task, into a record. For executors, both are just bytes.

    A worker may be called from any thread. All calls in one process share a sandbox driver and an egress gateway. A
    different process of this machine calls ``entry(settings, assignment)`` instead: ``entry`` needs no worker and can
    be pickled. In that process, the first call prepares the run, and later calls use what it prepared. Both
    processes must have access to the run directory.

    Another machine makes a :class:`RemoteWorker` with ``remote(remote_settings)``. The two machines share no files: the
    remote worker receives its input as :meth:`content`, and its results are passed to :meth:`receive`.

    The settings contain keys of model providers and the values of ``harness.env``: never store or log them.
    """

    entry: Callable[[bytes, bytes], bytes]
    remote: Callable[[bytes], RemoteWorker]

    @property
    @abstractmethod
    def settings(self) -> bytes:
        """What ``entry`` needs to know about the run."""

    @property
    @abstractmethod
    def remote_settings(self) -> bytes:
        """What ``remote`` needs to know about the run."""

    @property
    @abstractmethod
    def is_stopped(self) -> bool:
        """Whether the run was stopped. If so, results of assignments in progress must be discarded."""

    @abstractmethod
    def __call__(self, assignment: bytes) -> bytes:
        """Execute ``assignment`` and return its record, or empty bytes if the run was stopped meanwhile."""

    @abstractmethod
    def needs(self, assignment: bytes | None = None) -> tuple[str, ...]:
        """Return the names of the content that a remote worker needs for the run, or for one ``assignment``."""

    @abstractmethod
    def content(self, name: str) -> Iterator[bytes]:
        """Yield the content ``name`` in pieces of at most a few MiB. Raises :class:`InfrastructureError`."""

    @abstractmethod
    def receive(self, assignment: bytes, pieces: Iterable[bytes], node: str) -> bytes:
        """Store what a remote worker on ``node`` yields for ``assignment``, and return the record.

        Empty bytes mean that the run was stopped. Raises :class:`DeliveryError` if ``pieces`` are not what a worker
        yields or are too large, and :class:`StorageError` if they cannot be stored. No file of another trial is
        overwritten.
        """

    @abstractmethod
    def notify(self, message: str) -> None:
        """Show a message to the user."""

    @abstractmethod
    def distrusts(self, node: str) -> str:
        """Return why ``node`` should get no more assignments, or an empty string if it may get more.

        If no node is left, the executor must raise :class:`InfrastructureError`.
        """


class RemoteWorker(ABC):
    """A worker on another machine. It executes one assignment at a time.

    Call :meth:`lacks` and :meth:`take` until no content is missing, then :meth:`open`, then :meth:`execute`.
    """

    @abstractmethod
    def lacks(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of ``names`` whose content this machine does not have yet."""

    @abstractmethod
    def take(self, name: str, piece: bytes) -> None:
        """Add a piece to the content ``name``. An empty piece completes it.

        All workers of this machine can use complete content. Raises :class:`InfrastructureError`, for example if
        the digest of the content is not the one that ``name`` contains.
        """

    @abstractmethod
    def open(self) -> None:
        """Clean up after killed workers, prepare the run, and check that sandboxes on this machine are isolated.

        Raises :class:`InfrastructureError`, and :class:`ConfigError` if anything that could affect a verdict differs
        between this process and the one that coordinates the run.
        """

    @abstractmethod
    def execute(self, assignment: bytes) -> Iterator[bytes]:
        """Execute an assignment, and yield what :meth:`Worker.receive` stores."""

    @abstractmethod
    def stop(self) -> None:
        """Ask a running :meth:`execute` in another thread to stop.

        Kills its sandboxes; the worker cannot be used afterwards.
        """

    @abstractmethod
    def close(self) -> None:
        """Release and remove everything. Idempotent."""


class DeliveryError(InfrastructureError):
    """A remote worker returned something that is not the result of its assignment."""

    default_code = "executor-failed"


class Executor(Extension, ABC):
    """Executes the tasks of a run, at most ``workers`` of them at once."""

    settings_model: ClassVar[type[WireModel] | None] = None
    """The Pydantic model of ``run.executor_config``, or ``None`` if the executor has no settings."""
    is_local: bool = True
    """Whether tasks run on this machine, whose memory then limits how many run at once."""

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self.workers = workers

    @classmethod
    def from_settings(cls, settings: WireModel, workers: int) -> Self:
        """Return an executor with ``settings``, or without settings if ``settings_model`` is ``None``."""
        return cls(workers, settings) if cls.settings_model else cls(workers)  # type: ignore[call-arg]

    @abstractmethod
    def run(
        self,
        assignments: Iterable[bytes],
        worker: Worker,
        *,
        draining: Callable[[], bool],
        abandoned: Callable[[], None],
    ) -> Generator[bytes]:
        """Yield the result of ``worker`` for each assignment as it finishes, in any order.

        An assignment is taken only when it can start. Once ``draining()`` is true, no more assignments are taken, and
        those in progress are finished. Results are not kept after they are yielded. An exception from ``worker`` is
        raised here and ends the iteration. If the iteration ends early, by an exception or because the generator is
        closed, ``abandoned()`` is called, which makes calls of ``worker`` in this process end soon. Assignments in
        progress are awaited or stopped, and their results discarded.
        """
