"""Tasks on threads of this process."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from securebench.executors.base import Executor

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

T = TypeVar("T")
R = TypeVar("R")

_POLL_SECONDS = 0.1


class LocalExecutor(Executor):
    """``workers`` threads, each with one task at a time. A task's work is waiting for its sandboxes, not computing."""

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise ValueError(f"{workers} workers; at least one is needed")
        self.workers = workers

    def run(
        self,
        tasks: Iterable[T],
        work: Callable[[T], R | None],
        *,
        draining: Callable[[], bool],
        abandoned: Callable[[], None],
    ) -> Generator[R]:
        """Yield what ``work`` returns for each task, as :class:`Executor` has it."""
        crew = _Crew(iter(tasks), work, draining, self.workers)
        try:
            yield from crew.results()
        except BaseException:
            abandoned()
            raise
        finally:
            crew.dismiss()


class _Crew(Generic[T, R]):
    """The threads of one run. What they have done waits in a queue as long as they are many, so memory stays flat."""

    def __init__(
        self, tasks: Iterator[T], work: Callable[[T], R | None], draining: Callable[[], bool], size: int
    ) -> None:
        self._tasks = tasks
        self._work = work
        self._draining = draining
        self._lock = threading.Lock()
        self._dismissed = False
        self._done: queue.Queue[R | BaseException | None] = queue.Queue(maxsize=size)
        self._threads = [
            threading.Thread(target=self._labour, name=f"securebench-worker-{n}", daemon=True) for n in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def results(self) -> Iterator[R]:
        """Yield results until every thread has left, which each says with a ``None``."""
        working = len(self._threads)
        while working:
            result = self._done.get()
            if result is None:
                working -= 1
            elif isinstance(result, BaseException):
                raise result
            else:
                yield result

    def dismiss(self) -> None:
        """Hand out nothing more, and wait for the threads."""
        self._dismissed = True
        for thread in self._threads:
            while thread.is_alive():
                self._make_room()
                thread.join(_POLL_SECONDS)

    def _make_room(self) -> None:
        """Let a thread go that waits to hand over a result that nobody wants any more."""
        try:
            while True:
                self._done.get_nowait()
        except queue.Empty:
            return

    def _labour(self) -> None:
        try:
            while (task := self._next()) is not None:
                result = self._work(task[0])
                del task
                if result is not None:
                    self._done.put(result)
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that reads the results
            self._done.put(error)
        finally:
            self._done.put(None)

    def _next(self) -> tuple[T] | None:
        with self._lock:
            if self._dismissed or self._draining():
                return None
            for task in self._tasks:
                return (task,)
            return None
