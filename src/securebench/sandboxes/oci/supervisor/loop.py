"""The keeper's one loop: requests in, reports out, time limits kept, children waited for."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from securebench.sandboxes.oci.supervisor.cgroup_pool import CgroupPool
from securebench.sandboxes.oci.supervisor.containers import SupervisedContainer
from securebench.sandboxes.oci.supervisor.mounts import UnsafeSourceError
from securebench.sandboxes.oci.supervisor.network import close_all
from securebench.sandboxes.oci.supervisor.processes import RuntimeProcess, children
from securebench.sandboxes.oci.wire import DOORS, LIMIT, receive_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.sandboxes.oci.supervisor.context import SupervisorContext

_RETRY_SECONDS = 0.002
"""How soon a kill or a removal that did not work at once is tried again; each time waits twice as long."""

_LONGEST_RETRY_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 3600.0
_REMOVAL_SECONDS = 2.0


class Supervisor:
    """The state of the loop: cells by their names, jobs by their pids, and what is to be tried again when."""

    def __init__(self, control: socket.socket, surroundings: SupervisorContext) -> None:
        self._control = control
        self._surroundings = surroundings
        self._cells: dict[str, SupervisedContainer] = {}
        self._jobs: dict[int, tuple[SupervisedContainer, RuntimeProcess]] = {}
        self._strays: dict[int, int] = {}
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._over = False
        self._spares = CgroupPool(surroundings)

    def serve(self, owner: int) -> None:
        """Serve until the driver is done, or its process, of which ``owner`` is a descriptor, is gone."""
        children = _child_signals()
        self._watch(self._control.fileno(), self._serve_request)
        self._watch(owner, self._stop)
        self._watch(children, partial(self._reap, children))
        self._refill()
        while not self._over:
            for descriptor, _ in self._poll.poll(self._wait_seconds()):
                if descriptor in self._handlers:  # handling one event may have ended what another was for
                    self._handlers[descriptor]()
            self._do_what_is_due()
        _end_everything()
        self._remove_all()
        self._spares.remove()  # with the groups that the cells before left to them

    def _watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        self._handlers[descriptor] = handler
        self._poll.register(descriptor, select.EPOLLIN)

    def _stop(self) -> None:
        self._over = True

    # --- requests

    def _serve_request(self) -> None:
        try:
            frame = receive_frame(self._control)
        except ConnectionError:
            frame = None
        if frame is None:
            self._stop()
            return
        request, document, (channel, *streams) = frame
        talk = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, channel)
        job = RuntimeProcess(talk, request["log"], request["started"], request["seconds"], leaves=request["leaves"])
        job.first = "tree" in request
        try:
            self._start(request, document, job, streams)
        except UnsafeSourceError as error:
            job.report({"failed": str(error), "unsafe": True})
        except (OSError, KeyError) as error:
            job.report({"failed": str(error) if isinstance(error, OSError) else "its sandbox has ended"})
        finally:
            for descriptor in streams:
                os.close(descriptor)
            if not job.pid:
                job.channel.close()

    def _start(self, request: dict[str, Any], document: bytes, job: RuntimeProcess, streams: list[int]) -> None:
        name = request["cell"]
        if "tree" in request:
            cell = SupervisedContainer(name, self._surroundings)
            try:
                cell.prepare(request, self._spares)
                _hand_over(cell, request["doors"], job)
                self._launch(cell, request, document, job, streams)
            except BaseException:
                cell.remove()
                raise
            cell.main = job
            self._cells[name] = cell
            self._later(0.0, self._refill)
        else:
            cell = self._cells[name]
            if cell.is_ending or cell.main not in cell.jobs:
                raise KeyError(name)
            self._launch(cell, request, document, job, streams)

    def _refill(self) -> None:
        with suppress(OSError):  # what is missing is heard of when it is needed
            self._spares.refill()

    def _launch(
        self,
        cell: SupervisedContainer,
        request: dict[str, Any],
        document: bytes,
        job: RuntimeProcess,
        streams: list[int],
    ) -> None:
        cell.write(request["document"], document)
        cell.launch(job, request["argv"], streams, request.get("processes"))
        self._jobs[job.pid] = (cell, job)
        self._watch(job.channel.fileno(), partial(self._hear, cell, job))

    # --- ends

    def _hear(self, cell: SupervisedContainer, job: RuntimeProcess) -> None:
        """End the cell of a job, as the driver has asked for that or let go of the job; or give the job its time."""
        try:
            asked = job.channel.recv(64, socket.MSG_DONTWAIT)
        except BlockingIOError:  # an event of an earlier job, whose number this one has: nothing was said
            return
        except OSError:
            asked = b""
        if asked.startswith(LIMIT):
            job.deadline = time.monotonic() + float(asked[len(LIMIT) :])
            return
        if not asked:
            self._forget(job)
        self._end(cell)

    def _forget(self, job: RuntimeProcess) -> None:
        if job.channel.fileno() >= 0:
            del self._handlers[job.channel.fileno()]
            self._poll.unregister(job.channel)
            job.channel.close()

    def _end(self, cell: SupervisedContainer) -> None:
        if not cell.is_ending:
            self._kill(cell)

    def _kill(self, cell: SupervisedContainer, delay: float = _RETRY_SECONDS) -> None:
        """Kill all of a cell. A runtime that is still setting it up may need to be asked again."""
        if cell.kill():
            self._later(delay, partial(self._kill, cell, delay * 2))

    def _reap(self, children: int) -> None:
        with suppress(BlockingIOError):
            os.read(children, 4096)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._child_ended(*ended)
        if not any(job.leaves for _, job in self._jobs.values()):
            self._strays.clear()

    def _child_ended(self, pid: int, status: int) -> None:
        """Settle the job of a child that has ended, or go on with the process that a runtime has left."""
        if pid not in self._jobs:  # an orphan of some runtime: maybe left by one that has not ended yet
            self._strays[pid] = status
            return
        cell, job = self._jobs.pop(pid)
        if not job.leaves or status:
            self._settle(cell, job, status)
            return
        job.pid, job.leaves, job.is_left = job.left(), False, True
        if _is_there(job.pid):
            self._jobs[job.pid] = (cell, job)
        else:
            self._settle(cell, job, self._strays.get(job.pid, signal.SIGKILL))

    def _settle(
        self, cell: SupervisedContainer, job: RuntimeProcess, status: int, delay: float = _RETRY_SECONDS
    ) -> None:
        """Report the end of ``job``, but of a cell that was killed not before nothing in it can run any more."""
        main = cell.main
        if job is main and os.WIFSIGNALED(status) and not cell.is_still(self._orphans):
            self._later(delay, partial(self._settle, cell, job, status, delay * 2))
        elif job is not main and main in cell.jobs and (cell.is_ending or cell.is_falling()):
            cell.held.append((job, status))
        else:
            self._report_end(cell, job, status)
            if job is main:
                for held, held_status in cell.held:
                    self._report_end(cell, held, held_status)
                self._remove(cell)
                self._forget(job)

    def _report_end(self, cell: SupervisedContainer, job: RuntimeProcess, status: int) -> None:
        cell.jobs.discard(job)
        report = job.outcome(status, cell.starved(), cell.lost)
        if job is cell.main:
            cell.lost = report["lost"]
        changes, descriptors = cell.changes() if job is cell.main else ({}, [])
        job.report(report | changes, *descriptors)
        close_all(descriptors)
        if job is not cell.main:
            cell.discard(job.log)
            self._forget(job)

    def _orphans(self) -> list[int]:
        pids = children(os.getpid())
        left = {job.left() for _, job in self._jobs.values()}  # read after them: what is left was written down before
        return [pid for pid in pids if pid not in self._jobs and pid not in left]

    def _remove(self, cell: SupervisedContainer, delay: float = _RETRY_SECONDS) -> None:
        if not cell.jobs and cell.remove():
            del self._cells[cell.name]
        else:
            self._later(delay, partial(self._remove, cell, delay * 2))

    def _remove_all(self) -> None:
        deadline = time.monotonic() + _REMOVAL_SECONDS
        left = list(self._cells.values())
        while (left := [cell for cell in left if not cell.remove()]) and time.monotonic() < deadline:
            time.sleep(_RETRY_SECONDS)

    # --- time

    def _later(self, delay: float, call: Callable[[], None]) -> None:
        self._due.append((time.monotonic() + min(delay, _LONGEST_RETRY_SECONDS), call))

    def _wait_seconds(self) -> float | None:
        times = [job.deadline for _, job in self._jobs.values() if not job.killed]
        times += [moment for moment, _ in self._due]
        return min(max(0.0, min(times) - time.monotonic()), _LONGEST_WAIT_SECONDS) if times else None

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        due, self._due = [call for moment, call in self._due if moment <= now], [e for e in self._due if e[0] > now]
        for call in due:
            call()
        for cell, job in list(self._jobs.values()):
            if job.deadline <= now and not job.killed:
                job.timed_out = True
                self._end(cell)


def _hand_over(cell: SupervisedContainer, ports: list[int], job: RuntimeProcess) -> None:
    """Make the doors of a cell, and give them to its driver. Raises ``OSError``."""
    if not ports:
        return
    listeners = cell.open_doors(ports)
    try:
        job.report({DOORS: len(listeners)}, *listeners)
    finally:
        close_all(listeners)


def _is_there(pid: int) -> bool:
    """Whether ``pid`` was not waited for yet.

    It need not be our child yet: crun ends when a child of a child of it has started the container and written down
    its first process. That one becomes ours with the end of the other, whether it still runs then or not.
    """
    if pid < 1:  # which would be a group
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _child_signals() -> int:
    """Return a descriptor that can be read whenever a child has ended."""
    readable, writable = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    return readable


def _end_everything() -> None:
    """Kill every other process of this namespace, and wait until none is left."""
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.wait()
