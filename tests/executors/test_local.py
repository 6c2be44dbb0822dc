"""Tasks on threads."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from securebench.executors.local import LocalExecutor

if TYPE_CHECKING:
    from collections.abc import Iterator


def local(workers: int) -> Any:
    """Return an executor that these tests give numbers and functions, instead of bytes and a worker."""
    return LocalExecutor(workers)


def never() -> bool:
    """Go on."""
    return False


def nothing() -> None:
    """Do nothing."""


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_every_task_is_done_once(workers: int) -> None:
    """Each task's result comes back once, whatever the number of workers."""
    results = local(workers).run(range(50), lambda n: n * n, draining=never, abandoned=nothing)
    assert sorted(results) == [n * n for n in range(50)]


def test_no_tasks() -> None:
    """Nothing to do is done at once."""
    assert list(local(4).run([], lambda n: n, draining=never, abandoned=nothing)) == []


@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers(workers: int) -> None:
    """At least one worker is needed."""
    with pytest.raises(ValueError, match="at least 1"):
        LocalExecutor(workers)


@pytest.mark.parametrize("workers", [1, 3])
def test_so_many_in_flight_and_no_more(workers: int) -> None:
    """There are as many tasks in flight as workers (I24)."""
    lock, now, most = threading.Lock(), 0, 0

    def work(_: int) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.005)
        with lock:
            now -= 1
        return 1

    assert sum(local(workers).run(range(20), work, draining=never, abandoned=nothing)) == 20
    assert most == workers


def test_tasks_are_taken_when_they_can_start() -> None:
    """A task is taken from its source only when a worker is free, and results do not pile up unread."""
    taken = []

    def source() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    results = local(2).run(source(), lambda n: n, draining=never, abandoned=nothing)
    with closing(results):
        next(results)
        time.sleep(0.1)
        assert len(taken) <= 6  # one read, two waiting to be read, two with the workers, and one to spare


def test_results_are_not_kept() -> None:
    """What was handed over is forgotten, so that memory stays flat (L17)."""

    class Result:
        pass

    seen: list[weakref.ref[Result]] = []
    results = local(2).run(range(30), lambda _: Result(), draining=never, abandoned=nothing)
    gc.freeze()  # what other tests have left is not looked through thirty times
    try:
        for result in results:
            seen.append(weakref.ref(result))
            del result
            gc.collect()
            assert sum(reference() is not None for reference in seen) <= 1
    finally:
        results.close()
        gc.unfreeze()


def test_draining_hands_out_no_more() -> None:
    """Once the run drains, what is in flight ends and nothing else begins."""
    done: list[int] = []

    def work(number: int) -> int:
        done.append(number)
        return number

    results = list(local(1).run(range(100), work, draining=lambda: len(done) >= 3, abandoned=nothing))
    assert results == done == [0, 1, 2]


def test_an_exception_is_raised_where_results_are_read() -> None:
    """What a task raises ends the run in the thread that reads."""

    def work(number: int) -> int:
        if number == 2:
            raise KeyError(number)
        return number

    with pytest.raises(KeyError):
        list(local(1).run(range(10), work, draining=never, abandoned=nothing))
    assert not _threads()


def test_an_abandoned_run_ends_its_threads() -> None:
    """Closing the results early waits for what is in flight, hands out nothing more and leaves no thread."""
    started: list[int] = []

    def work(number: int) -> int:
        started.append(number)
        return number

    results = local(4).run(range(1000), work, draining=never, abandoned=nothing)
    next(results)
    results.close()
    assert not _threads()
    assert len(started) < 20


@pytest.mark.parametrize("how", ["closed", "raised"])
def test_an_abandoned_run_asks_what_is_in_flight_to_end(how: str) -> None:
    """When a run ends early, tasks that would take long are told to end before they are waited for."""
    end = threading.Event()

    def work(number: int) -> int:
        if number == 0:
            return 0
        if number == 1 and how == "raised":
            raise KeyError(number)
        assert end.wait(20)
        return number

    results = local(3).run(range(10), work, draining=never, abandoned=end.set)
    if how == "closed":
        assert next(results) == 0
        results.close()
    else:
        with pytest.raises(KeyError):
            list(results)
    assert end.is_set()
    assert not _threads()


def test_a_run_that_ends_is_not_abandoned() -> None:
    """A run that worked through its tasks is not ended early."""
    calls: list[int] = []
    list(local(2).run(range(5), lambda n: n, draining=never, abandoned=lambda: calls.append(1)))
    assert not calls


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("securebench-worker")]
