"""The local executor: tasks run on threads of this process."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from securebench.executors.base import Executor

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from securebench.executors.base import Worker

_POLL_SECONDS = 0.1


class LocalExecutor(Executor):
    """Runs tasks on threads of this process. Threads suffice: a task mostly waits for its sandboxes."""

    def run(
        self,
        assignments: Iterable[bytes],
        worker: Worker,
        *,
        draining: Callable[[], bool],
        abandoned: Callable[[], None],
    ) -> Generator[bytes]:
        """See :meth:`Executor.run`."""
        return on_threads(assignments, worker, self.workers, draining=draining, abandoned=abandoned)


def on_threads(
    assignments: Iterable[bytes],
    execute: Callable[[bytes], bytes],
    size: int,
    *,
    draining: Callable[[], bool],
    abandoned: Callable[[], None],
) -> Generator[bytes]:
    """Call ``execute`` with each assignment on ``size`` threads, and yield the results as :meth:`Executor.run` does."""
    threads = _WorkerThreads(iter(assignments), execute, draining, size)
    try:
        yield from threads.results()
    except BaseException:
        abandoned()
        raise
    finally:
        threads.close()


class _WorkerThreads:
    """The threads of one run. The result queue holds at most one result per thread, so memory use stays constant."""

    def __init__(
        self,
        assignments: Iterator[bytes],
        execute: Callable[[bytes], bytes],
        draining: Callable[[], bool],
        size: int,
    ) -> None:
        self._assignments = assignments
        self._execute = execute
        self._draining = draining
        self._lock = threading.Lock()
        self._is_closed = False
        self._done: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=size)
        self._threads = [
            threading.Thread(target=self._work_loop, name=f"securebench-worker-{n}", daemon=True) for n in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def results(self) -> Iterator[bytes]:
        """Yield results until every thread has finished. Each thread puts ``None`` into the queue when it ends."""
        working = len(self._threads)
        while working:
            # A signal that arrives just before this thread starts to wait does not wake the thread up: the signal's
            # handler would run only after the next result. So each wait is short.
            try:
                result = self._done.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
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
            while (assignment := self._next()) is not None:
                result = self._execute(assignment)
                del assignment
                self._done.put(result)
                del result
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that reads the results
            self._done.put(error)
        finally:
            self._done.put(None)

    def _next(self) -> bytes | None:
        with self._lock:
            return None if self._is_closed or self._draining() else next(self._assignments, None)
