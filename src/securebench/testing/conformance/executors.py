"""The conformance suite of executors: what every executor promises, as checks that need no test framework.

``EXECUTOR_CHECKS`` lists them, so that a test framework can parametrize over them. Each check gets a function that
returns an executor with a given number of workers. The check raises ``AssertionError`` if the executor breaks a
promise.
"""

from __future__ import annotations

import json
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from securebench.executors.base import DeliveryError, RemoteWorker, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from securebench.executors.base import Executor

_CONTENT: Final = "greeting"
_SECONDS: Final = 0.2
_LONG: Final = 60.0


class SleepingWorker(Worker):
    """A worker that sleeps. An assignment is JSON: how many seconds to ``sleep``, or an ``error`` to raise."""

    def __init__(self) -> None:
        self.stopped = False

    @staticmethod
    def entry(settings: bytes, assignment: bytes) -> bytes:
        """See :class:`Worker`."""
        del settings
        return _slept(assignment, lambda: False)

    @staticmethod
    def remote(settings: bytes) -> RemoteWorker:
        """See :class:`Worker`."""
        return RemoteSleepingWorker(settings)

    @property
    def settings(self) -> bytes:
        """See :class:`Worker`."""
        return b"settings"

    @property
    def remote_settings(self) -> bytes:
        """See :class:`Worker`. These settings are too long for one message to a node."""
        return bytes(100_000)

    @property
    def is_stopped(self) -> bool:
        """See :class:`Worker`."""
        return self.stopped

    def __call__(self, assignment: bytes) -> bytes:
        """See :class:`Worker`."""
        return _slept(assignment, lambda: self.stopped)

    def needs(self, assignment: bytes | None = None) -> tuple[str, ...]:
        """See :class:`Worker`."""
        return (_CONTENT,) if assignment is None else ()

    def content(self, name: str) -> Iterator[bytes]:
        """See :class:`Worker`. Pieces may be empty."""
        yield from (name.encode(), b"", b"!")

    def receive(self, assignment: bytes, pieces: Iterable[bytes], node: str) -> bytes:
        """See :class:`Worker`."""
        record = b"".join(pieces)
        if record and json.loads(record)["assignment"] != json.loads(assignment):
            raise DeliveryError(f"{node} returned the record of another assignment")
        return record

    def notify(self, message: str) -> None:
        """See :class:`Worker`."""

    def distrusts(self, node: str) -> str:
        """See :class:`Worker`."""
        del node
        return ""


class RemoteSleepingWorker(RemoteWorker):
    """A :class:`SleepingWorker` on another machine. It works only if it received the right settings and content."""

    def __init__(self, settings: bytes) -> None:
        self._settings = settings
        self._content = b""
        self._stopped = False

    def lacks(self, names: Iterable[str]) -> tuple[str, ...]:
        """See :class:`RemoteWorker`."""
        return () if self._content else tuple(names)

    def take(self, name: str, piece: bytes) -> None:
        """See :class:`RemoteWorker`."""
        del name
        self._content += piece

    def open(self) -> None:
        """See :class:`RemoteWorker`."""
        assert self._content == f"{_CONTENT}!".encode()
        assert len(self._settings) == len(SleepingWorker().remote_settings)

    def execute(self, assignment: bytes) -> Iterator[bytes]:
        """See :class:`RemoteWorker`."""
        record = _slept(assignment, lambda: self._stopped)
        size = len(record) // 3 + 1
        yield from (record[start : start + size] for start in range(0, len(record), size))

    def stop(self) -> None:
        """See :class:`RemoteWorker`."""
        self._stopped = True

    def close(self) -> None:
        """See :class:`RemoteWorker`."""


def _slept(assignment: bytes, is_stopped: Callable[[], bool]) -> bytes:
    wanted, began = json.loads(assignment), time.time()
    if "error" in wanted:
        raise KeyError(wanted["error"])
    while time.time() - began < wanted["sleep"]:
        if is_stopped():
            return b""
        time.sleep(0.01)
    return json.dumps({"assignment": wanted, "began": began, "ended": time.time()}).encode()


class _Execution:
    """One call of ``Executor.run``, and its ``results``.

    ``taken`` is the number of assignments that the executor has taken so far. ``abandoned`` is true if the
    executor abandoned any assignment.
    """

    def __init__(self, executor: Executor, assignments: list[dict[str, object]]) -> None:
        self.worker = SleepingWorker()
        self.taken = 0
        self.abandoned = False
        self.drained = False
        self._assignments = assignments
        self.results: Generator[bytes] = executor.run(
            self._source(), self.worker, draining=lambda: self.drained, abandoned=self._abandon
        )

    def _source(self) -> Iterator[bytes]:
        for assignment in self._assignments:
            self.taken += 1
            yield json.dumps(assignment).encode()

    def _abandon(self) -> None:
        self.abandoned = self.worker.stopped = True


def _sleeps(count: int, seconds: float = 0.0) -> list[dict[str, object]]:
    return [{"number": number, "sleep": seconds} for number in range(count)]


def each_has_one_result(make: Callable[[int], Executor]) -> None:
    """Each assignment has one result, and ``abandoned`` is not called if all assignments finish."""
    one = _Execution(make(3), _sleeps(20))
    numbers = sorted(json.loads(result)["assignment"]["number"] for result in one.results)
    assert numbers == list(range(20))
    assert not one.abandoned


def nothing_to_do(make: Callable[[int], Executor]) -> None:
    """Without assignments there are no results."""
    assert not list(_Execution(make(2), []).results)


def as_many_at_once_as_workers(make: Callable[[int], Executor]) -> None:
    """As many assignments are in progress as there are workers, and no more."""
    one = _Execution(make(2), _sleeps(8, _SECONDS))
    spans = [(found["began"], found["ended"]) for found in map(json.loads, one.results)]
    most = max(sum(began <= moment < ended for began, ended in spans) for moment, _ in spans)
    assert most == 2, most


def taken_when_they_can_start(make: Callable[[int], Executor]) -> None:
    """An assignment is taken only when it can start, and unread results do not pile up."""
    one = _Execution(make(2), _sleeps(50))
    with closing(one.results):
        next(one.results)
        time.sleep(_SECONDS)
        assert one.taken <= 6, one.taken


def draining_takes_no_more(make: Callable[[int], Executor]) -> None:
    """Once the run drains, assignments in progress finish, and no others begin."""
    one = _Execution(make(1), _sleeps(50))
    read = 0
    for _ in one.results:
        read += 1
        one.drained = True
    assert read == one.taken < 6, (read, one.taken)


def an_error_is_raised(make: Callable[[int], Executor]) -> None:
    """An error in a worker ends the iteration with an error."""
    one = _Execution(make(1), [*_sleeps(1), {"error": "broken"}])
    error = None
    try:
        list(one.results)
    except Exception as raised:  # noqa: BLE001 - the executor may raise any exception
        error = raised
    assert error is not None
    assert one.abandoned


def closing_abandons(make: Callable[[int], Executor]) -> None:
    """If the iteration is closed early, assignments in progress are ended."""
    one = _Execution(make(2), [*_sleeps(1), *_sleeps(5, _LONG)])
    next(one.results)
    start = time.monotonic()
    one.results.close()
    assert time.monotonic() - start < _LONG / 2
    assert one.abandoned


def a_stopped_run_ends(make: Callable[[int], Executor]) -> None:
    """If the run is stopped, assignments in progress end soon, with an empty result or without a result."""
    one = _Execution(make(2), [*_sleeps(1), *_sleeps(5, _LONG)])
    next(one.results)
    start = time.monotonic()
    one.worker.stopped = one.drained = True
    with suppress(StopIteration):
        while True:
            assert next(one.results) == b""
    assert time.monotonic() - start < _LONG / 2


EXECUTOR_CHECKS: Final[tuple[Callable[[Callable[[int], Executor]], None], ...]] = (
    each_has_one_result,
    nothing_to_do,
    as_many_at_once_as_workers,
    taken_when_they_can_start,
    draining_takes_no_more,
    an_error_is_raised,
    closing_abandons,
    a_stopped_run_ends,
)
"""Every check of executors."""
