"""The supervisor's one loop: requests in, reports out, time limits kept, children waited for."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from securebench.ipc.frames import FrameError, close_all, receive
from securebench.sandboxes.oci.supervisor.cgroup_pool import CgroupPool
from securebench.sandboxes.oci.supervisor.containers import SupervisedContainer
from securebench.sandboxes.oci.supervisor.mounts import UnsafeSourceError
from securebench.sandboxes.oci.supervisor.processes import RuntimeProcess, children
from securebench.sandboxes.oci.wire import FORWARDED_PORTS, LIMIT, START_DESCRIPTORS, read_request

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

    def __init__(self, control: socket.socket, context: SupervisorContext) -> None:
        self._control = control
        self._context = context
        self._containers: dict[str, SupervisedContainer] = {}
        self._processes: dict[int, tuple[SupervisedContainer, RuntimeProcess]] = {}
        self._strays: dict[int, int] = {}
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._over = False
        self._cgroup_pool = CgroupPool(context)

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
        self._cgroup_pool.remove()  # with the groups that the cells before left to them

    def _watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        self._handlers[descriptor] = handler
        self._poll.register(descriptor, select.EPOLLIN)

    def _stop(self) -> None:
        self._over = True

    # --- requests

    def _serve_request(self) -> None:
        try:
            frame = receive(self._control, START_DESCRIPTORS)
        except FrameError:
            # Its descriptors are lost, because this process may not open more files, and with them the channel to
            # answer on. The driver sees that channel close; the sandboxes that run are unaffected.
            return
        if frame is None:
            self._stop()
            return
        channel, payload, *streams = frame.descriptors
        request, document = read_request(payload)
        os.close(payload)
        talk = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, channel)
        process = RuntimeProcess(talk, request["log"], request["started"], request["seconds"], leaves=request["leaves"])
        process.first = "tree" in request
        try:
            self._start(request, document, process, streams)
        except UnsafeSourceError as error:
            process.report({"failed": str(error), "unsafe": True})
        except (OSError, KeyError) as error:
            process.report({"failed": str(error) if isinstance(error, OSError) else "its sandbox has ended"})
        finally:
            close_all(streams)
            if not process.pid:
                process.channel.close()

    def _start(self, request: dict[str, Any], document: bytes, process: RuntimeProcess, streams: list[int]) -> None:
        name = request["container"]
        if "tree" in request:
            container = SupervisedContainer(name, self._context)
            try:
                container.prepare(request, self._cgroup_pool)
                _hand_over(container, request["forwarded_ports"], process)
                self._launch(container, request, document, process, streams)
            except BaseException:
                container.remove()
                raise
            container.main = process
            self._containers[name] = container
            self._later(0.0, self._refill)
        else:
            container = self._containers[name]
            if container.is_ending or container.main not in container.processes:
                raise KeyError(name)
            self._launch(container, request, document, process, streams)

    def _refill(self) -> None:
        with suppress(OSError):  # what is missing is heard of when it is needed
            self._cgroup_pool.refill()

    def _launch(
        self,
        container: SupervisedContainer,
        request: dict[str, Any],
        document: bytes,
        process: RuntimeProcess,
        streams: list[int],
    ) -> None:
        container.write(request["document"], document)
        container.launch(process, request["argv"], streams, request.get("processes"))
        self._processes[process.pid] = (container, process)
        self._watch(process.channel.fileno(), partial(self._hear, container, process))

    # --- ends

    def _hear(self, container: SupervisedContainer, process: RuntimeProcess) -> None:
        """Set a new time limit for a process, or end its container: the driver asks for it, or hangs up."""
        try:
            frame = receive(process.channel)
        except BlockingIOError:
            # An event of an earlier process, whose descriptor had the same number: the driver sent nothing.
            return
        except (OSError, FrameError):
            frame = None
        if frame is not None and LIMIT in frame.body:
            process.deadline = time.monotonic() + frame.body[LIMIT]
            return
        if frame is None:
            self._forget(process)
        self._end(container)

    def _forget(self, process: RuntimeProcess) -> None:
        if process.channel.fileno() >= 0:
            del self._handlers[process.channel.fileno()]
            self._poll.unregister(process.channel)
            process.channel.close()

    def _end(self, container: SupervisedContainer) -> None:
        if not container.is_ending:
            self._kill(container)

    def _kill(self, container: SupervisedContainer, delay: float = _RETRY_SECONDS) -> None:
        """Kill all of a cell. A runtime that is still setting it up may need to be asked again."""
        if container.kill():
            self._later(delay, partial(self._kill, container, delay * 2))

    def _reap(self, children: int) -> None:
        with suppress(BlockingIOError):
            os.read(children, 4096)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._child_ended(*ended)
        if not any(process.leaves for _, process in self._processes.values()):
            self._strays.clear()

    def _child_ended(self, pid: int, status: int) -> None:
        """Settle the job of a child that has ended, or go on with the process that a runtime has left."""
        if pid not in self._processes:  # an orphan of some runtime: maybe left by one that has not ended yet
            self._strays[pid] = status
            return
        container, process = self._processes.pop(pid)
        if not process.leaves or status:
            self._settle(container, process, status)
            return
        process.pid, process.leaves, process.is_left = process.left(), False, True
        if _is_there(process.pid):
            self._processes[process.pid] = (container, process)
        else:
            self._settle(container, process, self._strays.get(process.pid, signal.SIGKILL))

    def _settle(
        self, container: SupervisedContainer, process: RuntimeProcess, status: int, delay: float = _RETRY_SECONDS
    ) -> None:
        """Report the end of ``process``, but of a cell that was killed not before nothing in it can run any more."""
        main = container.main
        if process is main and os.WIFSIGNALED(status) and not container.is_still(self._orphans):
            self._later(delay, partial(self._settle, container, process, status, delay * 2))
        elif process is not main and main in container.processes and (container.is_ending or container.is_falling()):
            container.held.append((process, status))
        else:
            self._report_end(container, process, status)
            if process is main:
                for held, held_status in container.held:
                    self._report_end(container, held, held_status)
                self._remove(container)
                self._forget(process)

    def _report_end(self, container: SupervisedContainer, process: RuntimeProcess, status: int) -> None:
        container.processes.discard(process)
        report = process.outcome(status, container.starved(), container.lost)
        if process is container.main:
            container.lost = report["lost"]
        changes, descriptors = container.changes() if process is container.main else ({}, [])
        process.report(report | changes, *descriptors)
        close_all(descriptors)
        if process is not container.main:
            container.discard(process.log)
            self._forget(process)

    def _orphans(self) -> list[int]:
        pids = children(os.getpid())
        left = {
            process.left() for _, process in self._processes.values()
        }  # read after them: what is left was written down before
        return [pid for pid in pids if pid not in self._processes and pid not in left]

    def _remove(self, container: SupervisedContainer, delay: float = _RETRY_SECONDS) -> None:
        if not container.processes and container.remove():
            del self._containers[container.name]
        else:
            self._later(delay, partial(self._remove, container, delay * 2))

    def _remove_all(self) -> None:
        deadline = time.monotonic() + _REMOVAL_SECONDS
        left = list(self._containers.values())
        while (left := [container for container in left if not container.remove()]) and time.monotonic() < deadline:
            time.sleep(_RETRY_SECONDS)

    # --- time

    def _later(self, delay: float, call: Callable[[], None]) -> None:
        self._due.append((time.monotonic() + min(delay, _LONGEST_RETRY_SECONDS), call))

    def _wait_seconds(self) -> float | None:
        times = [process.deadline for _, process in self._processes.values() if not process.killed]
        times += [moment for moment, _ in self._due]
        return min(max(0.0, min(times) - time.monotonic()), _LONGEST_WAIT_SECONDS) if times else None

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        due, self._due = [call for moment, call in self._due if moment <= now], [e for e in self._due if e[0] > now]
        for call in due:
            call()
        for container, process in list(self._processes.values()):
            if process.deadline <= now and not process.killed:
                process.timed_out = True
                self._end(container)


def _hand_over(container: SupervisedContainer, ports: list[int], process: RuntimeProcess) -> None:
    """Make the forwarded ports of a cell, and give them to its driver. Raises ``OSError``."""
    if not ports:
        return
    listeners = container.open_forwarded_ports(ports)
    try:
        process.report({FORWARDED_PORTS: len(listeners)}, *listeners)
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
