"""The executor interface: an executor runs tasks concurrently and yields their results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

T = TypeVar("T")
R = TypeVar("R")


class Executor(ABC):
    """Runs tasks concurrently."""

    @abstractmethod
    def run(
        self,
        tasks: Iterable[T],
        work: Callable[[T], R | None],
        *,
        draining: Callable[[], bool],
        abandoned: Callable[[], None],
    ) -> Generator[R]:
        """Yield the result of ``work`` for each task as it finishes; ``None`` is skipped.

        A task is taken from ``tasks`` only when a worker is free, and none once ``draining()`` is true; tasks in
        flight are awaited. Results are not kept after they are yielded. An exception from ``work`` is raised here and
        ends the iteration. If the iteration ends early, by an exception or because the generator is closed,
        ``abandoned()`` is called; it should make the tasks in flight end soon. They are awaited and their results
        dropped.
        """
