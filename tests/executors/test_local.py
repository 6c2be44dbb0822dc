"""The local executor, which runs tasks on threads."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from securebench.executors.local import LocalExecutor
from securebench.testing.conformance.executors import EXECUTOR_CHECKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.executors.base import Executor


def local(workers: int) -> Any:
    """Return an untyped executor, because these tests pass numbers and functions instead of bytes and a worker."""
    return LocalExecutor(workers)


def never() -> bool:
    """Return ``False``: the run never stops taking tasks."""
    return False


def nothing() -> None:
    """Do nothing."""


@pytest.mark.parametrize("check", EXECUTOR_CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: Callable[[Callable[[int], Executor]], None]) -> None:
    """The local executor passes the conformance suite of executors (I24)."""
    check(LocalExecutor)


@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers(workers: int) -> None:
    """At least one worker is needed."""
    with pytest.raises(ValueError, match="at least 1"):
        LocalExecutor(workers)


def test_results_are_not_kept() -> None:
    """The executor keeps at most one of the results that it has returned, so memory use stays constant (L17)."""

    class Result:
        pass

    seen: list[weakref.ref[Result]] = []
    results = local(2).run(range(30), lambda _: Result(), draining=never, abandoned=nothing)
    gc.freeze()  # the 30 collections then skip objects of other tests
    try:
        for result in results:
            seen.append(weakref.ref(result))
            del result
            gc.collect()
            assert sum(reference() is not None for reference in seen) <= 1
    finally:
        results.close()
        gc.unfreeze()


def test_an_exception_is_raised_where_results_are_read() -> None:
    """An exception in a task ends the run and is raised in the thread that reads the results."""

    def work(number: int) -> int:
        if number == 2:
            raise KeyError(number)
        return number

    with pytest.raises(KeyError):
        list(local(1).run(range(10), work, draining=never, abandoned=nothing))
    assert not _threads()


def test_an_abandoned_run_ends_its_threads() -> None:
    """If the results are closed early, few more tasks start and no thread is left."""
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
    """When a run ends early, running tasks are asked to end before the executor waits for them."""
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


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("securebench-worker")]
