"""The executor interface: an executor hands the tasks of a run to workers and returns their records, all as bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

from securebench.plugins import Extension

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from securebench.strict_input.models import WireModel


class Worker(ABC):
    """Turns an assignment, one trial of a task, into the bytes of its record. An executor looks into neither.

    Called in this process, from any thread, all calls share one sandbox driver and one egress gateway. Another process
    calls ``entry(settings, assignment)`` instead: ``entry`` is a function of a module and can be pickled. There, the
    first call prepares the run, and later calls share what it made. Both processes must see the run directory.

    ``settings`` contains keys of model providers and the values of ``harness.env``: never store or log it.
    """

    entry: Callable[[bytes, bytes], bytes]

    @property
    @abstractmethod
    def settings(self) -> bytes:
        """What ``entry`` needs to know about the run."""

    @abstractmethod
    def __call__(self, assignment: bytes) -> bytes:
        """Return the record. Empty bytes mean that the run was stopped meanwhile."""


class Executor(Extension, ABC):
    """Executes the tasks of a run, ``workers`` of them at once."""

    settings_model: ClassVar[type[WireModel] | None] = None
    """The model of ``run.executor_config``, or ``None`` if the executor has no settings."""

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self.workers = workers

    @classmethod
    def from_settings(cls, settings: WireModel, workers: int) -> Self:
        """Return an executor with these settings, an instance of ``settings_model``."""
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

        An assignment is taken only when it can start, and none once ``draining()`` is true; those in flight are
        awaited. Results are not kept after they are yielded. An exception from ``worker`` is raised here and ends the
        iteration. If the iteration ends early, by an exception or because the generator is closed, ``abandoned()`` is
        called, which ends calls in this process soon. Those in flight are awaited or ended, and their results dropped.
        """
