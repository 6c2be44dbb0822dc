"""The local executor: tasks run on threads of this process."""

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
    """Runs tasks on ``workers`` threads. Threads suffice: a task mostly waits for its sandboxes."""

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self.workers = workers

    def run(
        self,
        tasks: Iterable[T],
        work: Callable[[T], R | None],
        *,
        draining: Callable[[], bool],
        abandoned: Callable[[], None],
    ) -> Generator[R]:
        """See :meth:`Executor.run`."""
        workers = _WorkerThreads(iter(tasks), work, draining, self.workers)
        try:
            yield from workers.results()
        except BaseException:
            abandoned()
            raise
        finally:
            workers.close()


class _WorkerThreads(Generic[T, R]):
    """The threads of one run. The result queue is bounded by their number, so memory use stays constant."""

    def __init__(
        self, tasks: Iterator[T], work: Callable[[T], R | None], draining: Callable[[], bool], size: int
    ) -> None:
        self._tasks = tasks
        self._work = work
        self._draining = draining
        self._lock = threading.Lock()
        self._is_closed = False
        self._done: queue.Queue[R | BaseException | None] = queue.Queue(maxsize=size)
        self._threads = [
            threading.Thread(target=self._work_loop, name=f"securebench-worker-{n}", daemon=True) for n in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def results(self) -> Iterator[R]:
        """Yield results until every thread has finished; each thread puts a final ``None``."""
        working = len(self._threads)
        while working:
            result = self._done.get()
            if result is None:
                working -= 1
            elif isinstance(result, BaseException):
                raise result
            else:
                yield result

    def close(self) -> None:
        """Start no more tasks, and wait for the threads."""
        self._is_closed = True
        for thread in self._threads:
            while thread.is_alive():
                self._discard_results()
                thread.join(_POLL_SECONDS)

    def _discard_results(self) -> None:
        """Discard queued results, so that no thread blocks on a full queue."""
        try:
            while True:
                self._done.get_nowait()
        except queue.Empty:
            return

    def _work_loop(self) -> None:
        try:
            while (task := self._next()) is not None:
                result = self._work(task[0])
                del task
                if result is not None:
                    self._done.put(result)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that reads the results
            self._done.put(error)
        finally:
            self._done.put(None)

    def _next(self) -> tuple[T] | None:
        with self._lock:
            if self._is_closed or self._draining():
                return None
            for task in self._tasks:
                return (task,)
            return None
