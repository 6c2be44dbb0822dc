"""The supervisor's event loop: it receives requests, sends reports, enforces time limits and waits for children.

At most one process per core is being started at any time; other requests wait in order. Starting a sandbox needs a core
for some milliseconds, so starting many at once would only make each of them slow. The time limit of a process begins
when its runtime has started it, so waiting for other sandboxes does not use up its time.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import time
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from securebench.faults import FaultPoint, reached
from securebench.ipc.frames import FrameError, close_all, pack, receive, send
from securebench.sandboxes.oci.supervisor import mounts
from securebench.sandboxes.oci.supervisor.cgroup_pool import CgroupPool
from securebench.sandboxes.oci.supervisor.changes import UNCHANGED
from securebench.sandboxes.oci.supervisor.containers import SupervisedContainer
from securebench.sandboxes.oci.supervisor.mounts import UnsafeSourceError
from securebench.sandboxes.oci.supervisor.processes import SIGKILLED, RuntimeProcess, children
from securebench.sandboxes.oci.wire import (
    BOUNDED,
    FORWARDED_PORTS,
    LIMIT,
    START_DESCRIPTORS,
    ProcessReport,
    read_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from securebench.sandboxes.oci.supervisor.context import SupervisorContext

_RETRY_SECONDS = 0.002
"""Seconds until a kill, a removal or a check is repeated.

The delay doubles each time, up to ``_LONGEST_RETRY_SECONDS``."""

_LONGEST_RETRY_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 3600.0
_REMOVAL_SECONDS = 2.0

_NOTICE_SECONDS = 2.0
"""Seconds that a runtime may take to notice that its process exited just before the time limit."""


class _Request(NamedTuple):
    """A request to start a process. ``document`` is the configuration that the runtime reads."""

    body: dict[str, Any]
    document: bytes
    process: RuntimeProcess


class Supervisor:
    """The supervisor's event loop, with the containers, processes, waiting requests and scheduled calls."""

    def __init__(self, control: socket.socket, context: SupervisorContext) -> None:
        self._control = control
        self._context = context
        self._containers: dict[str, SupervisedContainer] = {}
        self._processes: dict[int, tuple[SupervisedContainer, RuntimeProcess]] = {}
        self._orphan_statuses: dict[int, int] = {}
        self._scheduled: list[tuple[float, Callable[[], None]]] = []
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._watched_now: set[int] = set()
        self._over = False
        self._waiting: deque[_Request] = deque()
        self._starting: set[RuntimeProcess] = set()
        self._most_starting = len(os.sched_getaffinity(0))
        self._cgroup_pool = CgroupPool(context)

    def serve(self, owner: int) -> None:
        """Serve until the driver closes the channel or its process is gone. ``owner`` is a pidfd of that process."""
        children = _child_signals()
        self._watch(self._control.fileno(), self._serve_request)
        self._watch(owner, self._stop)
        self._watch(children, partial(self._reap, children))
        self._refill()
        while not self._over:
            self._serve_events(self._poll.poll(self._wait_seconds()))
            self._run_scheduled()
        _kill_everything()
        self._remove_all()
        self._cgroup_pool.remove()  # last, because removed containers return their groups to the pool

    def _serve_events(self, events: Iterable[tuple[int, int]]) -> None:
        """Call the handlers of ``events``, except for descriptors that are no longer watched or are new.

        A handler may close the descriptor of a later event and open a new one with the same number. Events of the new
        descriptor are reported again in the next round.
        """
        self._watched_now.clear()
        for descriptor, _ in events:
            if descriptor in self._handlers and descriptor not in self._watched_now:
                self._handlers[descriptor]()

    def _watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        self._watched_now.add(descriptor)
        self._handlers[descriptor] = handler
        self._poll.register(descriptor, select.EPOLLIN)

    def _stop(self) -> None:
        self._over = True

    # --- requests

    def _serve_request(self) -> None:
        try:
            frame = receive(self._control, START_DESCRIPTORS)
        except FrameError:
            # The frame's descriptors are lost because this process has too many open files. One of them was the channel
            # for the answer, so the driver sees that the channel is closed. Running sandboxes are unaffected.
            return
        if frame is None:
            self._stop()
            return
        channel, payload, *streams = frame.descriptors
        body, document = read_request(payload)
        os.close(payload)
        talk = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, channel)
        if BOUNDED in body:
            self._bound(talk, body)
            return
        process = RuntimeProcess(
            talk, body["log"], body["started"], body["seconds"], streams=streams, detached=body["detached"]
        )
        process.first = "tree" in body
        self._waiting.append(_Request(body, document, process))
        self._serve_waiting()

    def _bound(self, channel: socket.socket, request: dict[str, Any]) -> None:
        """Mount a file system over a directory until the driver closes its side of ``channel``."""
        try:
            top = mounts.mount_over(request[BOUNDED], request["size"])
        except (OSError, UnsafeSourceError) as error:
            with channel, suppress(OSError):
                send(channel, pack({BOUNDED: str(error)}))
            return
        with suppress(OSError):  # the driver may have exited
            send(channel, pack({BOUNDED: ""}), (top,))
        self._watch(channel.fileno(), partial(self._unbind, channel, top))

    def _unbind(self, channel: socket.socket, top: int) -> None:
        del self._handlers[channel.fileno()]
        self._poll.unregister(channel)
        with suppress(OSError):  # removing the directory on the host may have unmounted it
            mounts.detach(f"/proc/self/fd/{top}")
        os.close(top)
        channel.close()

    def _serve_waiting(self) -> None:
        """Serve waiting requests while fewer processes are starting than there are cores."""
        while self._waiting and len(self._starting) < self._most_starting:
            request = self._waiting.popleft()
            process = request.process
            try:
                reached(FaultPoint.SUPERVISOR_SERVE)
                if self._is_wanted(process):
                    self._start(*request)
            except UnsafeSourceError as error:
                process.report(ProcessReport(failed=str(error), unsafe=True))
            except (OSError, KeyError) as error:
                failed = str(error) if isinstance(error, OSError) else "the sandbox of this command has exited"
                process.report(ProcessReport(failed=failed))
            finally:
                if not process.pid:
                    process.close_streams()
                    process.channel.close()

    def _is_wanted(self, process: RuntimeProcess) -> bool:
        """Read what the driver sent while the request for ``process`` waited. Return whether to start the process."""
        try:
            while (frame := receive(process.channel)) is not None:
                if LIMIT not in frame.body:
                    process.report(ProcessReport(exit=SIGKILLED, killed=True, collected=UNCHANGED))
                    break
                process.seconds = frame.body[LIMIT]
        except BlockingIOError:
            return True
        except FrameError:
            pass
        return False

    def _start(self, request: dict[str, Any], document: bytes, process: RuntimeProcess) -> None:
        name = request["container"]
        if "tree" in request:
            container = SupervisedContainer(name, self._context)
            try:
                container.prepare(request, self._cgroup_pool)
                _send_forwarded_ports(container, request["forwarded_ports"], process)
                self._launch(container, request, document, process)
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
            self._launch(container, request, document, process)

    def _refill(self) -> None:
        with suppress(OSError):  # starting a container that needs a cgroup reports the error
            self._cgroup_pool.refill()

    def _launch(
        self, container: SupervisedContainer, request: dict[str, Any], document: bytes, process: RuntimeProcess
    ) -> None:
        container.write(request["document"], document)
        container.launch(process, request["argv"], request.get("processes"))
        process.deadline = time.monotonic() + request["start_seconds"]
        self._starting.add(process)
        self._processes[process.pid] = (container, process)
        self._watch(process.channel.fileno(), partial(self._on_message, container, process))
        if not process.detached:  # a runtime that detaches exits when it has started the process
            self._later(_RETRY_SECONDS, partial(self._check_start, process))

    def _check_start(self, process: RuntimeProcess, delay: float = _RETRY_SECONDS) -> None:
        """Check repeatedly whether a runtime that does not detach has started its process."""
        if process not in self._starting:
            return
        if process.has_started():
            self._has_started(process)
        else:
            self._later(delay, partial(self._check_start, process, delay * 2))

    def _has_started(self, process: RuntimeProcess) -> None:
        """Begin the time limit of ``process``, which has started, and serve the next waiting request."""
        if process in self._starting:
            self._starting.remove(process)
            process.deadline = time.monotonic() + process.seconds
            self._serve_waiting()

    # --- ends

    def _on_message(self, container: SupervisedContainer, process: RuntimeProcess) -> None:
        """Set a new time limit for a process, or kill its container if the driver requests it or closes the channel."""
        try:
            frame = receive(process.channel)
        except BlockingIOError:
            return
        except (OSError, FrameError):
            frame = None
        if frame is not None and LIMIT in frame.body:
            process.seconds = frame.body[LIMIT]
            if process not in self._starting:
                process.deadline = time.monotonic() + process.seconds
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
        """Kill a container. Repeat this until its runtime is gone: it may still be setting up the container."""
        if container.kill():
            self._later(delay, partial(self._kill, container, delay * 2))

    def _reap(self, children: int) -> None:
        with suppress(BlockingIOError):
            os.read(children, 4096)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._child_exited(*ended)
        if not any(process.detached for _, process in self._processes.values()):
            self._orphan_statuses.clear()

    def _child_exited(self, pid: int, status: int) -> None:
        """Report the exit of the child ``pid``. If it is a detached runtime, adopt the process that it started."""
        if pid not in self._processes:  # an orphan; a detached runtime that has not exited yet may have started it
            self._orphan_statuses[pid] = status
            return
        container, process = self._processes.pop(pid)
        process.close_streams()
        self._has_started(process)
        if not process.detached or status:
            self._settle(container, process, status)
            return
        process.pid, process.detached, process.is_adopted = process.detached_pid(), False, True
        if _exists(process.pid):
            self._processes[process.pid] = (container, process)
        elif process.pid in self._orphan_statuses:
            self._settle(container, process, self._orphan_statuses[process.pid])
        else:
            process.lost = "its exit status is unknown"
            self._settle(container, process, signal.SIGKILL)

    def _settle(
        self, container: SupervisedContainer, process: RuntimeProcess, status: int, delay: float = _RETRY_SECONDS
    ) -> None:
        """Report the exit of ``process``.

        Processes may be left in a container if a signal ended its ``main``, or if a detached runtime failed to start
        ``main``. They are killed before ``main`` is reported. A command in a container that is ending is reported after
        ``main``.
        """
        main = container.main
        may_leave_others = os.WIFSIGNALED(status) or process.detached
        if process is main and may_leave_others and not container.kill_rest(self._orphans):
            self._later(delay, partial(self._settle, container, process, status, delay * 2))
        elif process is not main and main in container.processes and (container.is_ending or container.is_exiting()):
            container.delayed.append((process, status))
        else:
            self._report_end(container, process, status)
            if process is main:
                for command, command_status in container.delayed:
                    self._report_end(container, command, command_status)
                self._remove(container)
                self._forget(process)

    def _report_end(self, container: SupervisedContainer, process: RuntimeProcess, status: int) -> None:
        container.processes.discard(process)
        reached(FaultPoint.CONTAINER_REPORT)
        report = process.outcome(status, container.oom_kills(), container.lost)
        if process is container.main:
            ended_itself = report.started or report.killed or report.out_of_memory
            container.lost = report.lost or ("" if ended_itself else "the runtime failed to start the sandbox")
        report, descriptors = container.with_changes(report) if process is container.main else (report, [])
        process.report(report, *descriptors)
        close_all(descriptors)
        if process is not container.main:
            container.discard(process.log)
            self._forget(process)

    def _orphans(self) -> list[int]:
        pids = children(os.getpid())
        # Read this after the children: a runtime writes the pid before the process becomes a child of the supervisor.
        detached = {process.detached_pid() for _, process in self._processes.values()}
        return [pid for pid in pids if pid not in self._processes and pid not in detached]

    def _remove(self, container: SupervisedContainer, delay: float = _RETRY_SECONDS) -> None:
        if not container.processes and container.remove():
            del self._containers[container.name]
        else:
            self._later(delay, partial(self._remove, container, delay * 2))

    def _remove_all(self) -> None:
        deadline = time.monotonic() + _REMOVAL_SECONDS
        rest = list(self._containers.values())
        while (rest := [container for container in rest if not container.remove()]) and time.monotonic() < deadline:
            time.sleep(_RETRY_SECONDS)

    # --- time

    def _later(self, delay: float, call: Callable[[], None]) -> None:
        self._scheduled.append((time.monotonic() + min(delay, _LONGEST_RETRY_SECONDS), call))

    def _wait_seconds(self) -> float | None:
        times = [process.deadline for _, process in self._processes.values() if not process.killed]
        times += [moment for moment, _ in self._scheduled]
        return min(max(0.0, min(times) - time.monotonic()), _LONGEST_WAIT_SECONDS) if times else None

    def _run_scheduled(self) -> None:
        """Run the scheduled calls that are due, and kill containers at their time limit.

        While a runtime is still starting a process, only the runtime's own time limit applies. If a process has exited
        in time and its runtime has not noticed that yet, the runtime gets a little more time.
        """
        now = time.monotonic()
        due = [call for moment, call in self._scheduled if moment <= now]
        self._scheduled = [entry for entry in self._scheduled if entry[0] > now]
        for call in due:
            call()
        for container, process in list(self._processes.values()):
            if process.deadline > now or process.killed:
                continue
            if process in self._starting and not process.detached and process.has_started():
                self._has_started(process)
                continue
            if process in self._starting:
                process.lost = "the runtime did not start the process in time"
            elif process.is_overdue:
                process.lost = "the runtime did not report that the process exited"
            elif process.has_ended():
                process.is_overdue, process.deadline = True, now + _NOTICE_SECONDS
                continue
            process.timed_out, process.deadline = True, math.inf
            self._end(container)


def _send_forwarded_ports(container: SupervisedContainer, ports: list[int], process: RuntimeProcess) -> None:
    """Open the forwarded ports of a container, and send their sockets to the driver. Raises ``OSError``."""
    if not ports:
        return
    listeners = container.open_forwarded_ports(ports)
    try:
        process.send({FORWARDED_PORTS: len(listeners)}, *listeners)
    finally:
        close_all(listeners)


def _exists(pid: int) -> bool:
    """Whether the process ``pid`` exists, running or as a zombie."""
    # waitpid cannot tell: the process may not be a child of the supervisor yet, but of crun's own grandchild, which
    # started it and is still running.
    if pid < 1:  # a number below 1 would mean a process group
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _child_signals() -> int:
    """Return a descriptor that becomes readable when a child exits."""
    readable, writable = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    return readable


def _kill_everything() -> None:
    """Kill every other process in this pid namespace, and wait until none is left."""
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.wait()
