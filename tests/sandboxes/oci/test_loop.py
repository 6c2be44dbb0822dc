"""The supervisor's event loop: stale events, waiting requests, exits of processes and time limits."""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import InfrastructureError
from securebench.ipc.frames import pack, receive, send
from securebench.sandboxes.oci.process import raise_failure
from securebench.sandboxes.oci.supervisor.changes import UNCHANGED
from securebench.sandboxes.oci.supervisor.containers import SupervisedContainer
from securebench.sandboxes.oci.supervisor.loop import Supervisor, _Request
from securebench.sandboxes.oci.supervisor.processes import OomKills, RuntimeProcess
from securebench.sandboxes.oci.wire import KILL, LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNTIME = 2**30
"""The pid of a fake runtime. No real process has this pid."""


def test_an_event_of_a_closed_descriptor_is_not_for_its_successor() -> None:
    """An event of a closed descriptor is ignored if a new descriptor already has the same number.

    The kernel reuses numbers at once. Here the handler of the first event closes the descriptor of the second event and
    opens another.
    """
    supervisor = Supervisor.__new__(Supervisor)
    supervisor._handlers, supervisor._watched_now, supervisor._poll = {}, set(), select.epoll()
    first, second = socket.socketpair(), socket.socketpair()
    number = second[0].fileno()
    served: list[str] = []

    def replace_second() -> None:
        del supervisor._handlers[number]
        second[0].close()
        successor.append(socket.socket())
        assert successor[0].fileno() == number
        supervisor._watch(number, lambda: served.append("successor"))

    successor: list[socket.socket] = []
    supervisor._watch(first[0].fileno(), replace_second)
    supervisor._watch(number, lambda: served.append("second"))
    for _, theirs in (first, second):
        theirs.send(b"x")
    supervisor._serve_events([(first[0].fileno(), select.EPOLLIN), (number, select.EPOLLIN)])
    assert served == []
    supervisor._serve_events([(number, select.EPOLLIN)])
    assert served == ["successor"]
    for opened in (*first, second[1], *successor):
        opened.close()


class Queue:
    """A supervisor that starts at most one process at a time, without a runtime. ``started`` lists the processes."""

    def __init__(self) -> None:
        self.started: list[RuntimeProcess] = []
        self.sockets: list[socket.socket] = []
        self.supervisor = Supervisor.__new__(Supervisor)
        self.supervisor._waiting = deque()
        self.supervisor._starting = set()
        self.supervisor._most_starting = 1
        self.supervisor._start = self._start  # type: ignore[method-assign, assignment]  # starts no runtime

    def ask(self, seconds: float = 60) -> tuple[RuntimeProcess, socket.socket]:
        """Request a process. Return it and the driver's end of its channel."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sockets += [ours, theirs]
        process = RuntimeProcess(ours, "log", "started", seconds)
        self.supervisor._waiting.append(_Request({}, b"", process))
        self.supervisor._serve_waiting()
        return process, theirs

    def _start(self, _body: object, _document: bytes, process: RuntimeProcess) -> None:
        process.pid = RUNTIME
        self.started.append(process)
        self.supervisor._starting.add(process)


@pytest.fixture
def queue() -> Iterator[Queue]:
    """Yield a queue, and close its channels afterwards."""
    given = Queue()
    yield given
    for channel in given.sockets:
        channel.close()


def test_processes_start_in_order_as_far_as_there_are_cores(queue: Queue) -> None:
    """A process waits until the one before it has started. Its own time limit begins when it has started itself."""
    (first, _), (second, driver) = queue.ask(), queue.ask()
    send(driver, pack({LIMIT: 5}))
    assert (queue.started, second.deadline) == ([first], math.inf)
    queue.supervisor._has_started(first)
    assert queue.started == [first, second]
    before = time.monotonic()
    queue.supervisor._has_started(second)
    assert before + 4 < second.deadline < before + 10


def test_a_process_that_is_no_longer_wanted_does_not_start(queue: Queue) -> None:
    """A waiting process is not started if its driver kills it or closes the channel."""
    (first, _), (_, killing), (_, leaving), (last, _kept) = (queue.ask() for _ in range(4))
    send(killing, pack({KILL: True}))
    leaving.close()
    queue.supervisor._has_started(first)
    assert queue.started == [first, last]
    report = receive(killing)
    assert report is not None
    assert (report.body["killed"], report.body["started"], report.body["failed"]) == (True, False, "")
    assert report.body["collected"] == UNCHANGED, "what never ran has changed nothing"


class Leaving:
    """A supervisor and a detached runtime that has started a child. ``settled`` lists the reported wait statuses."""

    def __init__(self, channel: socket.socket, started: Path) -> None:
        self.child = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], {})
        started.write_text(str(self.child))
        self.process = RuntimeProcess(channel, "log", str(started), 60, detached=True)
        self.settled: list[int] = []
        self.supervisor = Supervisor.__new__(Supervisor)
        # A stand-in is enough, because no container is needed.
        self.supervisor._processes = {RUNTIME: (SimpleNamespace(), self.process)}  # type: ignore[dict-item]
        self.supervisor._orphan_statuses = {}
        self.supervisor._starting = set()
        self.supervisor._settle = lambda _, __, status: self.settled.append(status)  # type: ignore[assignment, method-assign, misc]

    def end_child(self) -> None:
        """Wait until the child exits, and pass its status to the supervisor."""
        self.supervisor._child_exited(*os.waitpid(self.child, 0))


@pytest.fixture
def leaving(tmp_path: Path) -> Iterator[Leaving]:
    """Yield a supervisor whose detached runtime has started a child and is about to exit."""
    with socket.socket() as channel:
        yield Leaving(channel, tmp_path / "started")


def test_a_command_that_its_runtime_leaves_is_waited_for(leaving: Leaving) -> None:
    """After a detached runtime exits, the supervisor waits for its command and reports the command's exit code."""
    leaving.supervisor._child_exited(RUNTIME, 0)
    assert (leaving.settled, leaving.process.pid) == ([], leaving.child)
    leaving.end_child()
    assert leaving.settled == [3 << 8]


def test_a_command_may_end_before_the_runtime_that_leaves_it(leaving: Leaving) -> None:
    """A command's exit is reported even if the supervisor sees it before the exit of the detached runtime."""
    leaving.end_child()
    assert leaving.settled == []
    leaving.supervisor._child_exited(RUNTIME, 0)
    assert leaving.settled == [3 << 8]


def test_a_runtime_that_fails_leaves_nothing(leaving: Leaving) -> None:
    """If a detached runtime fails, its exit is reported at once, and that of its child is ignored."""
    leaving.supervisor._child_exited(RUNTIME, 1 << 8)
    assert leaving.settled == [1 << 8]
    leaving.end_child()
    assert leaving.settled == [1 << 8]


def test_a_command_of_which_nobody_knows_is_lost(leaving: Leaving, tmp_path: Path) -> None:
    """If a detached runtime has left neither a child nor a known exit status, its command is lost."""
    leaving.end_child()
    leaving.supervisor._orphan_statuses.clear()
    (tmp_path / "started").unlink()
    leaving.supervisor._child_exited(RUNTIME, 0)
    assert (leaving.settled, leaving.process.lost) == ([9], "its exit status is unknown")


def test_a_process_that_is_left_need_not_be_ours_yet(leaving: Leaving, tmp_path: Path) -> None:
    """The supervisor waits for a detached runtime's command even if it is not the supervisor's child yet.

    The command becomes the supervisor's child when its parent, a child of the runtime, exits. The parent may exit after
    the runtime.
    """
    (tmp_path / "started").write_text(str(os.getppid()))
    leaving.supervisor._child_exited(RUNTIME, 0)
    assert (leaving.settled, leaving.process.pid) == ([], os.getppid())
    leaving.supervisor._child_exited(os.getppid(), 3 << 8)
    assert leaving.settled == [3 << 8]
    leaving.end_child()


def test_what_is_being_left_is_no_orphan(leaving: Leaving) -> None:
    """The process that a detached runtime has started is not an orphan, so it is not killed with the orphans."""
    assert leaving.child not in leaving.supervisor._orphans()
    leaving.process.detached = False
    assert leaving.child in leaving.supervisor._orphans()
    leaving.end_child()


def test_a_command_of_a_lost_container_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of a lost container is reported as lost too, but only after the container's last process is gone."""
    context: Any = SimpleNamespace(run=tmp_path, hierarchies=[])
    container = SupervisedContainer("s1", context)
    supervisor = Supervisor.__new__(Supervisor)
    supervisor._containers, supervisor._scheduled = {"s1": container}, []
    supervisor._handlers, supervisor._watched_now, supervisor._poll = {}, set(), select.epoll()
    running = iter([[RUNTIME], []])
    monkeypatch.setattr(supervisor, "_orphans", lambda: next(running))
    processes, drivers = [], []
    for name in ("main", "command"):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.setblocking(False)
        (tmp_path / name).mkdir()
        processes.append(RuntimeProcess(ours, str(tmp_path / name / "log"), str(tmp_path / name / "pid"), 60))
        drivers.append(theirs)
        supervisor._watch(ours.fileno(), lambda: None)
    container.main, command = processes
    container.processes = set(processes)
    supervisor._settle(container, container.main, signal.SIGKILL)  # one of its processes is still running
    supervisor._settle(container, command, 137 << 8)
    with pytest.raises(BlockingIOError):
        receive(drivers[1])
    for _, call in supervisor._scheduled:
        call()
    reports = [receive(driver) for driver in drivers]
    assert [report.body["lost"] for report in reports if report] == [
        "its runtime was killed from outside, by signal 9"
    ] * 2
    for driver in drivers:
        driver.close()


class Timing:
    """A supervisor with one starting process whose deadline has passed, in a container without cgroups."""

    def __init__(self, directory: Path, *, detached: bool) -> None:
        context: Any = SimpleNamespace(run=directory, hierarchies=[])
        self.process = RuntimeProcess(socket.socket(), "log", str(directory / "started"), 60, detached=detached)
        self.process.deadline = time.monotonic() - 1
        self.container = SupervisedContainer("s1", context)
        self.ended: list[SupervisedContainer] = []
        self.supervisor = Supervisor.__new__(Supervisor)
        self.supervisor._scheduled, self.supervisor._starting = [], {self.process}
        self.supervisor._waiting = deque()
        self.supervisor._most_starting = 1
        self.supervisor._processes = {RUNTIME: (self.container, self.process)}
        self.supervisor._end = self.ended.append  # type: ignore[method-assign, assignment]  # only record its calls

    def close(self) -> None:
        """Close the channel."""
        self.process.channel.close()


@pytest.mark.parametrize("detached", [False, True])
def test_a_runtime_that_does_not_start_a_process_in_time_is_lost(tmp_path: Path, *, detached: bool) -> None:
    """A process whose runtime does not finish the start in time is lost, even if its pid is already written."""
    timing = Timing(tmp_path, detached=detached)
    if detached:
        (tmp_path / "started").write_text("7")
    timing.supervisor._run_scheduled()
    assert timing.ended == [timing.container]
    assert timing.process.lost == "the runtime did not start the process in time"
    assert timing.process.outcome(signal.SIGKILL, OomKills()).lost == timing.process.lost
    timing.supervisor._run_scheduled()
    assert len(timing.ended) == 1
    timing.close()


def test_the_time_of_a_process_begins_when_its_start_is_noticed(tmp_path: Path) -> None:
    """A process that was started in time gets its full time, even if this is noticed after the runtime's time limit."""
    timing = Timing(tmp_path, detached=False)
    (tmp_path / "started").write_text("7")
    timing.supervisor._run_scheduled()
    assert timing.ended == []
    assert timing.process.deadline > time.monotonic() + 50
    timing.close()


def test_a_time_limit_is_the_processs_own_end(tmp_path: Path) -> None:
    """A process that has started and is still running at its deadline has timed out."""
    timing = Timing(tmp_path, detached=True)
    timing.supervisor._starting.clear()
    timing.supervisor._run_scheduled()
    assert timing.ended == [timing.container]
    assert (timing.process.timed_out, timing.process.lost) == (True, "")
    timing.close()


@pytest.fixture
def ended_child(tmp_path: Path) -> Iterator[None]:
    """Create a process that has exited and is still a zombie. Its pid is in the file ``started``."""
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    (tmp_path / "started").write_text(str(pid))
    yield
    os.waitpid(pid, 0)


@pytest.mark.usefixtures("ended_child")
def test_a_runtime_that_does_not_report_an_exit_is_no_time_out(tmp_path: Path) -> None:
    """If a process exited before its time limit, its runtime gets a moment to report this.

    If the runtime does not report it, the process is lost, which is an infrastructure error and not a time-out.
    """
    timing = Timing(tmp_path, detached=False)
    timing.supervisor._starting.clear()
    timing.supervisor._run_scheduled()
    assert timing.ended == []
    assert 0 < timing.process.deadline - time.monotonic() < 10
    timing.process.deadline = time.monotonic()
    timing.supervisor._run_scheduled()
    assert timing.ended == [timing.container]
    assert timing.process.lost == "the runtime did not report that the process exited"
    with pytest.raises(InfrastructureError, match=timing.process.lost):
        raise_failure(timing.process.outcome(signal.SIGKILL, OomKills()))
    timing.close()


def test_a_process_whose_first_thread_has_exited_times_out(tmp_path: Path) -> None:
    """A process whose first thread has exited times out like any other, because its other threads are still running."""
    code = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start()"
    code += "; print(flush=True); ctypes.CDLL(None).pthread_exit(None)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        stat = Path(f"/proc/{program.pid}/stat")
        while b") Z " not in stat.read_bytes():
            time.sleep(0.01)
        (tmp_path / "started").write_text(str(program.pid))
        timing = Timing(tmp_path, detached=False)
        timing.supervisor._starting.clear()
        timing.supervisor._run_scheduled()
        assert (timing.ended, timing.process.timed_out) == ([timing.container], True)
        assert timing.process.lost == ""
        timing.close()
        program.kill()


def test_a_container_whose_first_process_was_reaped_kills_no_number(tmp_path: Path) -> None:
    """After a container's first process was reaped, its pid is not killed, because another process may have it."""
    timing = Timing(tmp_path, detached=False)
    timing.container.main = timing.process
    timing.container.processes = {timing.process}
    timing.process.is_adopted = True
    bystander = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    timing.process.pid = bystander
    timing.container.kill_rest(list)
    assert not timing.container.kill()
    assert os.waitpid(bystander, os.WNOHANG) == (0, 0)
    os.kill(bystander, signal.SIGKILL)
    os.waitpid(bystander, 0)
    timing.close()
