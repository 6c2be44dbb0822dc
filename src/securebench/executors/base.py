"""What an executor is: it works through tasks, several at once, and hands back what came of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

T = TypeVar("T")
R = TypeVar("R")


class Executor(ABC):
    """Works through tasks."""

    @abstractmethod
    def run(
        self,
        tasks: Iterable[T],
        work: Callable[[T], R | None],
        *,
        draining: Callable[[], bool],
        abandoned: Callable[[], None],
    ) -> Generator[R]:
        """Yield what ``work`` returns for each task, as it ends; ``None`` is left out.

        No task is handed out before it can start, nor once ``draining()`` is true; those in flight are waited for.
        Nothing is kept of what was yielded. An exception of ``work`` is raised here, and ends the iteration. When it
        ends early, so or because the generator is closed, ``abandoned()`` is called, which should make the tasks in
        flight end soon; then they are waited for, and what comes of them is dropped.
        """
