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
"""128 + SIGKILL: killed by SecureBench, or by the kernel because it was out of memory."""

TIMED_OUT = 124

_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Signals that only the host sends to a runtime. A sandbox cannot see its runtime, and could at most crash it."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ)
"""Signals that runtimes handle by default, although the supervisor ignores some."""

MACHINE_MEMORY = "the machine, or a limit above the sandbox, ran out of memory"

SCRATCH_VARIABLE = "_LIBCONTAINER_STATEDIR"
"""The variable for the directory in which crun creates a temporary file, to which it binds its own program read-only.

The default is the host's /tmp, where the file stays if crun is killed meanwhile. If crun cannot create it, or runs from
a copy in memory, it does without. The variable is runc's, which sets it itself; gVisor creates no such file.
"""

_ALL_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

_THREADS = "/proc/{0}/task"

_PF_EXITING = 0x4
"""The flag of an exiting process."""

_STATE_AFTER_NAME, _PARENT_AFTER_NAME, _FLAGS_AFTER_NAME, _THREADS_AFTER_NAME = 0, 1, 6, 17
"""Indices of fields in ``/proc/PID/stat``, counted from the field after the name."""

_LOG_BYTES = 4096
"""How much of a runtime's log is reported. It has to fit into a frame, in which one byte can take six."""

_RECORD_SECONDS = 30.0
_RECORD_POLL_SECONDS = 0.002
"""How long a command waits for its container's record, long enough for a busy machine, and how often it checks."""


class OomKills(NamedTuple):
    """The number of out-of-memory kills in a sandbox, and how many of them were due to its own limit."""

    total: int = 0
    at_limit: int = 0


class RuntimeProcess:
    """A runtime process, and the socket for reports to its driver.

    ``seconds`` is its time limit, which begins when it has started, and ``deadline`` the time, of the monotonic clock,
    at which it is killed.

    ``streams`` are its standard streams, which are open here only until it has them.
    ``log`` is the file of the runtime's error messages, and ``started`` the file to which it writes the pid of the
    process that it has started. If ``detached``, it then exits, and that process becomes a child of the supervisor,
    which sets ``is_adopted``. If ``first``, that is the first process of a container, else a command in one.
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
        """Whether what its runtime has started had exited before its time limit, but its runtime had not."""
        self.lost = ""
        """Why its exit says nothing about what ran in it, if that is known before."""

    def start(self, runtime: RuntimeCall, prepare: Callable[[], None]) -> None:
        """Start the runtime. ``prepare`` runs in the new process."""
        gate = None if runtime.processes is None else Gate(runtime.processes)
        self.pid = os.fork()
        if self.pid == 0:
            become(runtime, self.streams, prepare, gate)
        self.close_streams()
        if gate is not None:
            gate.open(self.pid)

    def close_streams(self) -> None:
        """Close its standard streams here. Idempotent."""
        streams, self.streams = self.streams, ()
        close_all(streams)

    def detached_pid(self) -> int:
        """Return the pid of the process that a detached runtime has started, or 0 if there is none (yet)."""
        return self._started_pid() if self.detached else 0

    def report(self, report: ProcessReport, *descriptors: int) -> None:
        """Report its end to the driver."""
        self.send(asdict(report), *descriptors)

    def send(self, frame: dict[str, Any], *descriptors: int) -> None:
        """Send a frame to the driver, if it still listens."""
        with suppress(OSError):
            send(self.channel, pack(frame), descriptors)

    def outcome(self, status: int, oom_kills: OomKills, lost: str = "") -> ProcessReport:
        """Return the report of its exit with a wait ``status``, given the ``oom_kills`` in its sandbox so far.

        The report's ``lost`` is the reason why its exit says nothing about what ran in it, or empty. Nothing in a
        sandbox can cause that. The argument ``lost`` is the same of its container, for a command that ended with it.
        """
        code = exit_code(status)
        log = "" if code == 0 else self._read_log()
        kills = oom_kills.total > self.oom_before.total
        if log and (self.killed or kills):  # the runtime itself was affected, and its log is about that
            code, log = SIGKILLED, ""
        # If the time limit fires while the process is exiting anyway, it has killed nothing.
        timed_out = self.timed_out and code == SIGKILLED
        return ProcessReport(
            exit=TIMED_OUT if timed_out else code,
            timed_out=timed_out,
            out_of_memory=code == SIGKILLED and not self.killed and kills,
            killed=self.killed,
            started=self.has_started(),
            lost=lost or self.lost or self._lost(status, oom_kills),
            log=log,
        )

    def await_start(self) -> None:
        """Wait, with a time limit, until its runtime has written the pid of the process that it started.

        Only then can another command be started in the container. crun writes its record of a container after the first
        process has begun to run, which may have produced output long before. ``crun exec`` fails without the record.
        """
        give_up = time.monotonic() + _RECORD_SECONDS
        while not self.has_started() and time.monotonic() < give_up:
            time.sleep(_RECORD_POLL_SECONDS)

    def has_started(self) -> bool:
        """Whether its runtime has written a valid pid of the process that it started."""
        return self._started_pid() > 0

    def has_ended(self) -> bool:
        """Whether the process that its runtime has started, and waits for, has exited with all its threads."""
        return self.has_started() and not self.is_adopted and _is_dead(self._started_pid())

    def _started_pid(self) -> int:
        try:
            with open(self.started) as file:
                return int(file.read(32))
        except (OSError, ValueError):
            return 0

    def _lost(self, status: int, oom_kills: OomKills) -> str:
        """Return what the machine did to it, or an empty text.

        An out-of-memory kill is the sandbox's own fault if it reached its own limit in that time. Otherwise the kernel
        selected one of its processes because a parent group, or the whole machine, was out of memory. Even if the first
        process then exits with 0, another one has not done its part.
        """
        before = self.oom_before
        if oom_kills.total > before.total:
            return "" if oom_kills.at_limit > before.at_limit else MACHINE_MEMORY
        if not os.WIFSIGNALED(status) or self.killed:
            return ""
        if not self.is_adopted and os.WTERMSIG(status) in _FROM_OUTSIDE:
            return f"its runtime was killed from outside, by signal {os.WTERMSIG(status)}"
        # Processes in a pid namespace cannot kill its first process, and the calls that would make the kernel do it are
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

    ``network`` is the path of a network namespace to start it in, if not the supervisor's. ``processes`` is the process
    limit, including the runtime, if its processes have to be counted separately. ``program`` is a descriptor of the
    program, if that is not the one that the first argument names.
    """

    argv: list[str]
    directory: str
    log: str
    network: str | None = None
    processes: int | None = None
    program: int | None = None


def sealed_copy(path: str) -> int:
    """Return a descriptor of an immutable copy in memory. Raises ``OSError``.

    A container can open the program of a runtime that enters it, through ``/proc``. To avoid being overwritten that
    way, a runtime copies itself and executes the copy, each time. If it already runs from a sealed copy, it does not.
    """
    descriptor = os.memfd_create("runtime", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(path, "rb") as original, os.fdopen(descriptor, "wb", closefd=False) as copy:
        copy.write(original.read())
    os.fchmod(descriptor, 0o555)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _ALL_SEALS)
    return descriptor


def children(parent: int) -> list[int]:
    """Return the children of the process ``parent``. The kernel lists them by the thread that created them."""
    threads = _THREADS.format(parent)
    try:
        return [pid for thread in os.listdir(threads) for pid in _read_pids(f"{threads}/{thread}/children")]
    except (FileNotFoundError, ProcessLookupError):
        # It, or one of its threads, has just exited; or this kernel does not have these lists.
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
    """Whether the process ``pid`` has exited, reaped or not. Its first thread alone may exit before the others."""
    fields = _stat(pid)
    return not fields or (fields[_STATE_AFTER_NAME] == b"Z" and int(fields[_THREADS_AFTER_NAME]) <= 1)


def _parent(pid: str) -> int:
    fields = _stat(pid)
    return int(fields[_PARENT_AFTER_NAME]) if fields else 0


def _stat(pid: int | str) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` after the name. Empty if there is no such process (any more)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def become(
    runtime: RuntimeCall, streams: Sequence[int], prepare: Callable[[], None] = lambda: None, gate: Gate | None = None
) -> None:
    """Turn this process, a child of the supervisor, into a runtime. Errors are written to its log.

    The runtime creates its temporary files in its directory. So they are removed with it, whenever it is killed.
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
        os.execve(program, argv, environment)  # noqa: S606 - what this is for
    except BaseException as error:  # noqa: BLE001 - this process must not continue as a second supervisor
        with open(runtime.log, "w") as file:
            file.write(f"{argv[0]} could not be started: {error}")
    finally:
        os._exit(127)
