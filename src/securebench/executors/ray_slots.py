"""The slots of a Ray cluster: actors, each of which executes one task at a time.

Actors run only on nodes that offer the resource ``securebench_slot``. Each actor uses one unit of it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import InfrastructureError, SecureBenchError
from securebench.executors.base import DeliveryError
from securebench.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from securebench.executors.base import RemoteWorker, Worker

SLOT: Final = "securebench_slot"
"""The name of the resource that a node offers. One unit is one slot: room for one task at a time."""

_PIECE: Final = 32 * 1024
"""Bytes of settings in one call. Ray stores arguments of 100 kB and more in shared memory, which may go to disk."""
_BATCH: Final = 4 * MIB
"""Approximate number of bytes of content in one call."""
_AHEAD: Final = 16
"""Maximum number of pieces of a result that a worker has produced and the coordinator has not yet fetched."""
_POLL_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 30.0
"""Seconds to wait for a worker to end. Then it is killed, and the next worker on that node removes what it left."""
_HEAD_SECONDS: Final = 15.0
"""How many seconds the cluster's head may be unreachable before the run stops.

If the run did not stop, Ray would end this process after a minute.
"""
_WAIT_SECONDS: Final = 30.0
"""Seconds without any slot after which the user gets a message."""
_MAX_LOSSES: Final = 3
"""The run stops after one task has lost this many workers. A node is excluded after this many failures in a row."""


class SlotActor:
    """One slot on a node. Expected errors are returned as strings, because Ray wraps exceptions."""

    def __init__(self) -> None:
        self._settings = b""
        self._worker: RemoteWorker | None = None
        self._making = threading.Lock()
        self._is_closed = False

    def is_authenticated(self) -> bool:
        """Return whether this cluster requires a token."""
        return os.environ.get("RAY_AUTH_MODE") == "token"

    def node(self) -> str:
        """Return the id of the node on which this actor runs."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def add_settings(self, piece: bytes) -> None:
        """Add a piece of the settings."""
        self._settings += piece

    def begin(self, remote: Callable[[bytes], RemoteWorker], names: tuple[str, ...]) -> tuple[str, ...] | str:
        """Make the worker. Return those of ``names`` whose content it lacks, or an error message."""
        try:
            with self._making:
                if self._is_closed:
                    return "the run has ended"
                self._worker = remote(self._settings)
            return self._worker.lacks(names)
        except SecureBenchError as error:
            return f"{error.message} [{error.code}]"

    def lacks(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of ``names`` whose content the worker lacks."""
        return self._made.lacks(names)

    def take(self, name: str, piece: bytes) -> str:
        """Pass a piece of content to the worker. Return an error message, or an empty string."""
        try:
            self._made.take(name, piece)
        except SecureBenchError as error:
            return f"{error.message} [{error.code}]"
        return ""

    def open(self) -> str:
        """Open the worker. Return an error message, or an empty string."""
        try:
            self._made.open()
        except SecureBenchError as error:
            return f"{error.message} [{error.code}]"
        return ""

    def execute(self, assignment: bytes) -> Iterator[bytes]:
        """Yield the pieces of the worker's result."""
        yield from self._made.execute(assignment)

    def stop(self) -> None:
        """Stop the worker."""
        if self._worker is not None:
            self._worker.stop()

    def close(self) -> None:
        """Close the worker. Another thread may be making or opening it."""
        with self._making:
            self._is_closed = True
        if self._worker is not None:
            self._worker.close()

    @property
    def _made(self) -> RemoteWorker:
        assert self._worker is not None
        return self._worker


@dataclass(frozen=True, slots=True)
class _Slot:
    actor: Any
    node: str


class _NodeUnfitError(Exception):
    """A node cannot execute tasks of this run."""


class RaySlots:
    """The slots of a run. Calling this object executes an assignment in a free slot.

    If a worker is lost, its assignment is given to another worker, but to at most ``_MAX_LOSSES`` workers in all.
    """

    def __init__(self, ray: Any, worker: Worker, size: int) -> None:
        self._ray = ray
        self._worker = worker
        self._settings, self._names = worker.remote_settings, worker.needs()
        self._actor = ray.remote(SlotActor)
        self._changed = threading.Condition()
        self._free: list[_Slot] = []
        self._all: list[Any] = []
        self._threads: list[threading.Thread] = []
        self._excluded: dict[str, str] = {}
        self._failures: Counter[str] = Counter()
        """The number of worker failures on each node since its last result."""
        self._failed_starts = 0
        """How many workers in a row failed to start."""
        self._sending: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._fatal_problem = ""
        self._closed = False
        self._notified_of_wait = False
        self._is_headless = False
        self._start(self._watch_head)
        for _ in range(size):
            self._start(self._add_slot)

    def when_free(self, assignments: Iterable[bytes], draining: Callable[[], bool]) -> Iterator[bytes]:
        """Yield each assignment when a slot is free for it."""
        left = iter(assignments)
        while self._wait(draining) and (assignment := next(left, None)) is not None:
            yield assignment

    def __call__(self, assignment: bytes) -> bytes:
        """Return the record of ``assignment``, or empty bytes if the run ended. Raises :class:`InfrastructureError`."""
        for _ in range(_MAX_LOSSES):
            slot = self._take()
            if slot is None:
                return b""
            try:
                self._send_missing(slot, self._worker.needs(assignment))
                result = self._worker.receive(assignment, self._pieces(slot, assignment), slot.node)
            except (self._ray.exceptions.RayError, DeliveryError, _NodeUnfitError) as error:
                self._replace(slot, error)
                if self._closed or self._worker.is_stopped:
                    return b""
                continue
            if not result and self._fatal_problem:
                raise self._failure()
            self._give_back(slot)
            return result
        raise InfrastructureError(
            f"a task lost its worker {_MAX_LOSSES} times",
            code="executor-failed",
            hint="see Ray's logs on the nodes, then continue with --resume",
        )

    def close(self) -> None:
        """End all slots. Idempotent."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            actors = list(self._all)
            self._changed.notify_all()
        if not self._is_headless:
            with suppress(self._ray.exceptions.RayError, ValueError):
                closing = [actor.close.remote() for actor in actors]
                self._ray.wait(closing, num_returns=max(1, len(closing)), timeout=_STOP_SECONDS)
        for actor in actors:
            with suppress(self._ray.exceptions.RayError, ValueError):
                self._ray.kill(actor)
        for thread in self._threads:
            thread.join(_STOP_SECONDS)

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name="securebench-ray", daemon=True)
        with self._changed:
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]
            thread.start()

    def _wait(self, draining: Callable[[], bool]) -> bool:
        """Wait for a free slot. Return ``False`` if the run drains or ends before a slot is free.

        Raises :class:`InfrastructureError`.
        """
        since = time.monotonic()
        with self._changed:
            while not self._free:
                if self._fatal_problem:
                    raise self._failure()
                if self._closed or draining():
                    return False
                self._changed.wait(_POLL_SECONDS)
                if not (self._all or self._notified_of_wait) and time.monotonic() - since > _WAIT_SECONDS:
                    self._notified_of_wait = True
                    self._worker.notify(
                        f"waiting for a free slot: no node of the Ray cluster offers a free {SLOT}; start nodes with"
                        f" --resources='{{\"{SLOT}\": 4}}'"
                    )
            return True

    def _failure(self) -> InfrastructureError:
        return InfrastructureError(
            self._fatal_problem, code="ray-unavailable", hint="fix the problem, then continue with --resume"
        )

    def _take(self) -> _Slot | None:
        while self._wait(lambda: self._worker.is_stopped):
            with self._changed:
                if self._free:
                    return self._free.pop()
        return None

    def _give_back(self, slot: _Slot) -> None:
        self._failures[slot.node] = 0
        if why := self._worker.distrusts(slot.node):
            self._exclude(slot.node, why)
        if not (self._offer(slot) or self._closed):
            self._kill(slot.actor)
            self._start(self._add_slot)

    def _offer(self, slot: _Slot) -> bool:
        """Make a slot available. Return ``False`` instead if its node was excluded or the run has ended."""
        with self._changed:
            if slot.node in self._excluded or self._closed:
                return False
            self._free.append(slot)
            self._changed.notify()
            return True

    def _replace(self, slot: _Slot, error: Exception) -> None:
        """Replace a failed slot. Exclude its node if the node is unfit, sent an invalid result or fails repeatedly."""
        if self._closed:
            return
        self._failures[slot.node] += 1
        if isinstance(error, DeliveryError | _NodeUnfitError):
            self._exclude(slot.node, str(error))
        elif self._failures[slot.node] >= _MAX_LOSSES:
            self._exclude(slot.node, _lost_worker(error))
        self._kill(slot.actor)
        self._start(self._add_slot)

    def _kill(self, actor: Any) -> None:
        """Kill ``actor``, unless the run has ended and :meth:`close` kills it, which lets it clean up first."""
        with self._changed:
            if actor in self._all:
                if self._closed:
                    return
                self._all.remove(actor)
        with suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(actor)

    def _exclude(self, node: str, why: str) -> None:
        with self._changed:
            if node in self._excluded or self._closed:
                return
            self._excluded[node] = why
            self._free = [slot for slot in self._free if slot.node != node]
            self._changed.notify_all()
        nodes = [one for one in self._ray.nodes() if one["Alive"] and one["Resources"].get(SLOT)]
        name = next((one["NodeManagerHostname"] for one in nodes if one["NodeID"] == node), node)
        self._worker.notify(f"the node {name} gets no more tasks: {why}")
        if all(one["NodeID"] in self._excluded for one in nodes):
            self._fatal_problem = (
                f"no node of the Ray cluster can execute tasks; the last problem was on the node {name}: {why}"
            )

    def _add_slot(self) -> None:
        """Wait until a node has room for another slot, and add it."""
        while not self._closed and not self._fatal_problem:
            options: dict[str, Any] = {"resources": {SLOT: 1}, "num_cpus": 0, "max_concurrency": 2}
            if self._excluded:
                options["label_selector"] = {"ray.io/node-id": f"!in({','.join(self._excluded)})"}
            actor = self._actor.options(scheduling_strategy="SPREAD", max_restarts=0, **options).remote()
            node = ""
            try:
                node = self._node_of(actor)
                if node:
                    self._prepare(_Slot(actor, node))
                    self._failed_starts = 0
                    return
            except _NodeUnfitError as error:
                self._exclude(node, str(error))
            except self._ray.exceptions.RayError as error:
                if node:
                    self._failures[node] += 1
                    if self._failures[node] >= _MAX_LOSSES:
                        self._exclude(node, _lost_worker(error))
                else:
                    self._failed_starts += 1
                if self._failed_starts >= _MAX_LOSSES:
                    self._fatal_problem = (
                        f"cannot start workers on the Ray cluster ({type(error).__name__}): all of its nodes need"
                        " RAY_AUTH_MODE=token, the same token, and the same versions of Python and Ray"
                    )
            except Exception as error:  # noqa: BLE001 - without this, the run would wait for the slot forever
                self._fatal_problem = error.message if isinstance(error, SecureBenchError) else _lost_worker(error)
            self._kill(actor)

    def _node_of(self, actor: Any) -> str:
        """Wait until ``actor`` runs. Return its node's id, or an empty string if the run ends or has to end."""
        ready = actor.is_authenticated.remote()
        while not self._ray.wait([ready], timeout=_POLL_SECONDS)[0]:
            if self._closed or self._fatal_problem:
                return ""
        if not self._ray.get(ready):
            self._fatal_problem = (
                "the Ray cluster does not require a token, so anyone who can connect to it could read keys: start"
                " its nodes with RAY_AUTH_MODE=token"
            )
            return ""
        node: str = self._ray.get(actor.node.remote())
        return node

    def _prepare(self, slot: _Slot) -> None:
        actor = slot.actor
        with self._changed:
            if self._closed:
                raise _NodeUnfitError("the run has ended")
            self._all.append(actor)
        for start in range(0, len(self._settings), _PIECE):
            self._ray.get(actor.add_settings.remote(self._settings[start : start + _PIECE]))
        with self._sending[slot.node]:  # one worker at a time, so content is sent to a node once
            lacking = self._ray.get(actor.begin.remote(self._worker.remote, self._names))
            if isinstance(lacking, str):
                raise _NodeUnfitError(lacking)
            self._send(actor, lacking)
        if problem := self._ray.get(actor.open.remote()):
            raise _NodeUnfitError(problem)
        if not self._offer(slot):
            raise _NodeUnfitError("the node was excluded while the worker was being prepared")

    def _send_missing(self, slot: _Slot, names: tuple[str, ...]) -> None:
        if names:
            with self._sending[slot.node]:
                self._send(slot.actor, self._ray.get(slot.actor.lacks.remote(names)))

    def _send(self, actor: Any, names: Iterable[str]) -> None:
        for name in names:
            for piece in _batched(self._worker.content(name)):
                self._accepted(actor, name, piece)
            self._accepted(actor, name, b"")

    def _accepted(self, actor: Any, name: str, piece: bytes) -> None:
        if problem := self._ray.get(actor.take.remote(name, piece)):
            raise _NodeUnfitError(problem)

    def _pieces(self, slot: _Slot, assignment: bytes) -> Iterator[bytes]:
        """Yield the pieces of the worker's result. If the run ends, stop the worker: the result is then incomplete."""
        execute = slot.actor.execute.options(num_returns="streaming", _generator_backpressure_num_objects=_AHEAD)
        results = execute.remote(assignment)
        while True:
            if not self._ray.wait([results], timeout=_POLL_SECONDS)[0]:
                if self._closed or self._fatal_problem or self._worker.is_stopped:
                    self._stop(slot.actor, results)
                    return
                continue
            try:
                reference = next(results)
            except StopIteration:
                return
            yield self._ray.get(reference)

    def _stop(self, actor: Any, results: Any) -> None:
        if self._is_headless:
            return
        actor.stop.remote()
        self._ray.wait([results], timeout=_STOP_SECONDS)

    def _watch_head(self) -> None:
        """Stop the run if the head is gone. Without this check, Ray would notice the loss later and end the process."""
        host, _, port = self._ray.get_runtime_context().gcs_address.rpartition(":")
        seen = time.monotonic()
        while not self._closed:
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=_POLL_SECONDS):
                seen = time.monotonic()
            if time.monotonic() - seen > _HEAD_SECONDS:
                with self._changed:
                    self._is_headless = True
                    self._fatal_problem = "the head of the Ray cluster no longer responds"
                    self._changed.notify_all()
                return
            time.sleep(_POLL_SECONDS)


def _lost_worker(error: Exception) -> str:
    """Describe the loss of a worker by the type of ``error``. Its text is left out, as it may contain anything."""
    return f"workers failed with {type(error).__name__}; see Ray's logs on the node"


def _batched(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in fewer and larger pieces, none of them empty."""
    batch = bytearray()
    for piece in pieces:
        batch += piece
        if len(batch) >= _BATCH:
            yield bytes(batch)
            batch.clear()
    if batch:
        yield bytes(batch)
