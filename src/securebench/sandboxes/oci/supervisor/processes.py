"""Runtime processes, which the supervisor starts and waits for. Each runs a container, or a command in one."""

from __future__ import annotations

import fcntl
import math
import os
import signal
import time
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from securebench.ipc.frames import close_all, pack, send
from securebench.sandboxes.oci.supervisor.counting import Gate
from securebench.sandboxes.oci.supervisor.network import enter_network
from securebench.sandboxes.oci.wire import ProcessReport

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

SIGKILLED = 137
"""128 + SIGKILL: killed, for example by SecureBench, or by the kernel for lack of memory."""

TIMED_OUT = 124

_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Signals that a sandbox cannot make its runtime receive, even by crashing it.

The exception is SIGKILL if the sandbox runs out of memory. This is handled separately.
"""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ)
"""Signals whose handlers are reset to the default for runtimes. The supervisor ignores some of them."""

MACHINE_MEMORY = "the machine or a parent cgroup ran out of memory"

SCRATCH_VARIABLE = "_LIBCONTAINER_STATEDIR"
"""The environment variable that names crun's temporary directory.

crun creates a file in this directory and bind-mounts its own program on the file, read-only. The default is the host's
/tmp, where the file would stay if crun were killed. crun does not need the file if it runs from a copy in memory, and
ignores a failure to create it. runc has the same variable, but
sets it itself. gVisor creates no such file.
"""

_ALL_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

_SUPERVISOR_PID = 1
"""The supervisor is the first process of its pid namespace."""

_MOST_PIDS = 2**22
"""The kernel's upper limit for pids."""

_THREADS = "/proc/{0}/task"

_PF_EXITING = 0x4
"""The kernel's flag of a process that is exiting."""

_STATE_AFTER_NAME, _PARENT_AFTER_NAME, _FLAGS_AFTER_NAME, _THREADS_AFTER_NAME = 0, 1, 6, 17
"""Indices of fields in ``/proc/PID/stat``, counted from the field after the name."""

_LOG_BYTES = 4096
"""The maximum number of bytes of a runtime's log in a report.

The report must fit into a frame, and JSON may need six bytes for one byte of the log.
"""

_RECORD_SECONDS = 30.0
_RECORD_POLL_SECONDS = 0.002
"""Seconds between two checks of whether a container has started. The checks end after ``_RECORD_SECONDS``."""


class OomKills(NamedTuple):
    """Counters of the out-of-memory kills in a sandbox.

    ``at_limit`` increases if a kill is due to the sandbox's own memory limit.
    """

    total: int = 0
    at_limit: int = 0


class RuntimeProcess:
    """A runtime and the process that it starts, with the socket for reports to the driver.

    ``seconds`` is the time limit, which begins when the process has started. ``deadline`` is the time of the monotonic
    clock at which the process is killed. ``streams`` are the standard streams of the process. The supervisor closes its
    copies when the runtime has them.

    ``log`` is the file for the runtime's error messages. The runtime writes the pid of the process that it has started
    to the file ``started``. If ``detached``, the runtime then exits, the process becomes a child of the supervisor,
    and the supervisor sets ``is_adopted``. ``first`` is true if the process is the first one of a container, and false
    for a command in a container.
    """

    def __init__(
        self,
        channel: socket.socket,
        log: str,
        started: str,
        seconds: float,
        *,
        streams: Sequence[int] = (),
        detached: bool = False,
    ) -> None:
        self.channel = channel
        self.streams = streams
        channel.setblocking(False)  # one loop serves all processes, and must not wait for one of them
        self.log = log
        self.started = started
        self.detached = detached
        self.seconds = seconds
        self.deadline = math.inf
        self.pid = 0
        self.first = False
        self.is_adopted = False
        self.oom_before = OomKills()
        self.timed_out = False
        self.killed = False
        self.is_overdue = False
        """Whether, at the time limit, the started process had already exited but its runtime was still running."""
        self.lost = ""
        """Why the exit is due to the machine and not to the process, if known before the exit. Otherwise empty."""

    def start(self, runtime: RuntimeCall, prepare: Callable[[], None]) -> None:
        """Start the runtime in a new process, after calling ``prepare`` in that process."""
        gate = None if runtime.processes is None else Gate(runtime.processes)
        self.pid = os.fork()
        if self.pid == 0:
            become(runtime, self.streams, prepare, gate)
        self.close_streams()
        if gate is not None:
            gate.open(self.pid)

    def close_streams(self) -> None:
        """Close the supervisor's copies of the standard streams. Idempotent."""
        streams, self.streams = self.streams, ()
        close_all(streams)

    def detached_pid(self) -> int:
        """Return the pid of the process that a detached runtime has started, or 0 if there is none (yet)."""
        return self._started_pid() if self.detached else 0

    def report(self, report: ProcessReport, *descriptors: int) -> None:
        """Send ``report``, the last message about this process, to the driver."""
        self.send(asdict(report), *descriptors)

    def send(self, frame: dict[str, Any], *descriptors: int) -> None:
        """Send a frame to the driver. Do nothing if the driver has closed the channel."""
        with suppress(OSError):
            send(self.channel, pack(frame), descriptors)

    def outcome(self, status: int, oom_kills: OomKills, lost: str = "") -> ProcessReport:
        """Return the report of an exit with the wait ``status``. ``oom_kills`` are the sandbox's current counters.

        If the machine, and not the sandbox, ended the whole container, pass the reason as ``lost``.
        """
        code = exit_code(status)
        log = "" if code == 0 else self._read_log()
        kills = oom_kills.total > self.oom_before.total
        start_failed = self.detached and code != 0  # even if the runtime has written a pid: the code is the runtime's
        if (log or start_failed) and (self.killed or kills):  # a kill made the runtime fail
            code, log = SIGKILLED, ""
        # If the time limit fires while the process is exiting anyway, it is not the reason for the exit.
        timed_out = self.timed_out and code == SIGKILLED
        return ProcessReport(
            exit=TIMED_OUT if timed_out else code,
            timed_out=timed_out,
            out_of_memory=code == SIGKILLED and not self.killed and kills,
            killed=self.killed,
            started=self.has_started() and not start_failed,
            # A command that ended because its container ended has the container's reason.
            lost=lost or self.lost or self._lost(status, oom_kills),
            log=log,
        )

    def await_start(self) -> None:
        """Wait up to ``_RECORD_SECONDS`` until the runtime has written the pid of the process that it started.

        Only then can another command be started in the container. crun stores the state of a container after the first
        process has begun to run and perhaps produced output. Without the state, ``crun exec`` fails. The wait also ends
        if the runtime exits, because it will then never write a pid.
        """
        give_up = time.monotonic() + _RECORD_SECONDS
        while not (self.has_started() or _is_dead(self.pid)) and time.monotonic() < give_up:
            time.sleep(_RECORD_POLL_SECONDS)

    def has_started(self) -> bool:
        """Whether the runtime has written a valid pid of the process that it started."""
        return self._started_pid() > 0

    def has_ended(self) -> bool:
        """Whether the started process has exited with all its threads while its runtime still runs."""
        return self.has_started() and not self.is_adopted and _is_dead(self._started_pid())

    def _started_pid(self) -> int:
        try:
            with open(self.started) as file:
                pid = int(file.read(32))
        except (OSError, ValueError):
            return 0
        return pid if _SUPERVISOR_PID < pid <= _MOST_PIDS else 0

    def _lost(self, status: int, oom_kills: OomKills) -> str:
        """Return how the machine, and not the sandbox, made the process exit, or an empty string.

        An out-of-memory kill is due to the sandbox if the sandbox reached its own limit after the process was started.
        Otherwise a parent cgroup or the whole machine was out of memory, and the kernel killed a process of this
        sandbox. The exit is then due to the machine even if its code is 0, because the killed process may have been
        needed.
        """
        before = self.oom_before
        if oom_kills.total > before.total:
            return "" if oom_kills.at_limit > before.at_limit else MACHINE_MEMORY
        if not os.WIFSIGNALED(status) or self.killed:
            return ""
        if not self.is_adopted and os.WTERMSIG(status) in _FROM_OUTSIDE:
            return f"its runtime was killed from outside, by signal {os.WTERMSIG(status)}"
        # Processes in a pid namespace cannot kill its first process, and calls that would make the kernel kill it are
        # blocked (:mod:`~securebench.sandboxes.seccomp_profile`). Out-of-memory kills were handled above.
        if self.is_adopted and self.first and os.WTERMSIG(status) == signal.SIGKILL:
            return "its first process was killed from outside"
        return ""

    def _read_log(self) -> str:
        try:
            with open(self.log, "rb") as file:
                return file.read(_LOG_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            return ""


class RuntimeCall(NamedTuple):
    """A call of a runtime: its arguments, its working directory and its log.

    ``network`` is the path of the network namespace to start the runtime in, or ``None`` for the supervisor's own.
    ``processes`` is the process limit, including the runtime, or ``None`` if the processes need not be counted
    separately. ``program`` is a descriptor of the runtime's program, or ``None`` to use the first argument.
    """

    argv: list[str]
    directory: str
    log: str
    network: str | None = None
    processes: int | None = None
    program: int | None = None


def sealed_copy(path: str) -> int:
    """Return a descriptor of an immutable copy, in memory, of the program at ``path``. Raises ``OSError``.

    Through ``/proc``, a process in a container can open the program of a runtime that enters the container. To protect
    its program from being overwritten, a runtime copies itself at each start, unless it runs from a sealed copy.
    """
    descriptor = os.memfd_create("runtime", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(path, "rb") as original, os.fdopen(descriptor, "wb", closefd=False) as copy:
        copy.write(original.read())
    os.fchmod(descriptor, 0o555)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _ALL_SEALS)
    return descriptor


def children(parent: int) -> list[int]:
    """Return the pids of the children of the process ``parent``, from the kernel's lists for each of its threads."""
    threads = _THREADS.format(parent)
    try:
        return [pid for thread in os.listdir(threads) for pid in _read_pids(f"{threads}/{thread}/children")]
    except (FileNotFoundError, ProcessLookupError):
        # The process or one of its threads has just exited, or this kernel does not have these lists.
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent(name) == parent]


def _read_pids(path: str) -> list[int]:
    with open(path, "rb") as file:
        return [int(pid) for pid in file.read().split()]


def exit_code(status: int) -> int:
    """Return the exit code that a shell would give a process with this wait status."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def is_exiting(pid: int) -> bool:
    """Whether the process ``pid`` has begun to exit, or is gone."""
    fields = _stat(pid)
    return not fields or bool(int(fields[_FLAGS_AFTER_NAME]) & _PF_EXITING)


def _is_dead(pid: int) -> bool:
    """Whether the process ``pid`` has exited with all its threads. It may still be a zombie."""
    fields = _stat(pid)
    return not fields or (fields[_STATE_AFTER_NAME] == b"Z" and int(fields[_THREADS_AFTER_NAME]) <= 1)


def _parent(pid: str) -> int:
    fields = _stat(pid)
    return int(fields[_PARENT_AFTER_NAME]) if fields else 0


def _stat(pid: int | str) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` after the name, or ``[]`` if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def become(
    runtime: RuntimeCall, streams: Sequence[int], prepare: Callable[[], None] = lambda: None, gate: Gate | None = None
) -> None:
    """Turn this process, a child of the supervisor, into a runtime. Errors are written to the runtime's log.

    The runtime creates temporary files in its working directory. They are removed with this directory, even if the
    runtime is killed.
    """
    argv = runtime.argv
    try:
        prepare()
        if runtime.network is not None:
            enter_network(runtime.network)
        if gate is not None:
            gate.enter()
        os.chdir(runtime.directory)
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        os.setsid()
        for number in DEFAULT_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        program = argv[0] if runtime.program is None else runtime.program
        environment = {"PATH": PATH, SCRATCH_VARIABLE: runtime.directory}
        os.execve(program, argv, environment)  # noqa: S606 - to become the runtime
    except BaseException as error:  # noqa: BLE001 - this process must not continue as a second supervisor
        with open(runtime.log, "w") as file:
            file.write(f"{argv[0]} could not be started: {error}")
    finally:
        os._exit(127)
