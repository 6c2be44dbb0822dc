"""A job: one runtime process that the supervisor waits for. It runs a container, or a command in one."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from securebench.ipc.frames import pack, send
from securebench.sandboxes.oci.supervisor.counting import Gate
from securebench.sandboxes.oci.supervisor.network import enter_network

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

SIGKILLED = 137
"""128 + SIGKILL: ended from outside, by us or by the kernel for want of memory."""

TIMED_OUT = 124

_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""What only somebody on the host sends a runtime, of which a sandbox sees nothing: it may crash it, at the most."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

MACHINE_MEMORY = "the machine, or a limit above the sandbox, ran out of memory"

SCRATCH_VARIABLE = "_LIBCONTAINER_STATEDIR"
"""Names the directory in which crun binds its own program, read-only, to a file that it makes and soon removes.

By default that is the host's /tmp, where the file stays if crun is killed meanwhile. Where it can make none, or is a
copy in memory already, it needs none. runc, whose variable it was first, sets it itself; gVisor makes no such file.
"""

_ALL_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

_THREADS = "/proc/{0}/task"

_PF_EXITING = 0x4
_FLAGS_AFTER_NAME = 6
"""Which of the fields behind a process's name in ``/proc/PID/stat`` holds its flags, and the one of its end."""

_LOG_BYTES = 4096
"""How much of a runtime's log is reported. It has to fit into a frame, where one byte can take six."""

_RECORD_SECONDS = 30.0
_RECORD_POLL_SECONDS = 0.002
"""How long a command waits for its container's record, on a machine that does much else, and how often it looks."""


class Starved(NamedTuple):
    """How many processes of a sandbox were killed for want of memory, and how many of those at its own limit."""

    kills: int = 0
    at_limit: int = 0


class RuntimeProcess:
    """A runtime process and the socket on which its driver hears of it. ``deadline`` is of the monotonic clock.

    ``log`` is where the runtime says what went wrong; ``started`` is the file that it makes when it has started what
    it was to run. With ``leaves`` the runtime then ends, and leaves it to us, whom it is a child of from then on.
    If it is the ``first`` of its cell, that is the first process of a container, else a command in one.
    """

    def __init__(  # what a request says of it
        self, channel: socket.socket, log: str, started: str, seconds: float, *, leaves: bool = False
    ) -> None:
        self.channel = channel
        channel.setblocking(False)  # one loop serves all processes, and must not wait for one of them
        self.log = log
        self.started = started
        self.leaves = leaves
        self.deadline = time.monotonic() + seconds
        self.pid = 0
        self.first = False
        self.is_left = False
        self.starved_before = Starved()
        self.timed_out = False
        self.killed = False

    def start(self, runtime: RuntimeCall, streams: list[int], prepare: Callable[[], None]) -> None:
        """Start the runtime with ``streams`` as its standard ones. ``prepare`` runs in the new process."""
        gate = None if runtime.processes is None else Gate(runtime.processes)
        self.pid = os.fork()
        if self.pid == 0:
            become(runtime, streams, prepare, gate)
        if gate is not None:
            gate.open(self.pid)

    def left(self) -> int:
        """Return the process that its runtime leaves to us, or has left: 0 if it leaves none, or has none yet."""
        if not self.leaves:
            return 0
        try:
            with open(self.started) as file:
                return int(file.read())
        except (OSError, ValueError):
            return 0

    def report(self, report: dict[str, Any], *descriptors: int) -> None:
        """Tell the driver, if it still listens."""
        with suppress(OSError):
            send(self.channel, pack(report), descriptors)

    def outcome(self, status: int, starved: Starved, lost: str = "") -> dict[str, Any]:
        """Return the report of its end with a wait ``status``, when its sandbox has ``starved`` so often.

        ``lost`` is why its end says nothing about what ran in it, or empty. Nothing in a sandbox can bring that about.
        The argument says so of the container in which it ran, if it is a command that was killed with that.
        """
        code = exit_code(status)
        log = "" if code == 0 else self._read_log()
        kills = starved.kills > self.starved_before.kills
        if log and (self.killed or kills):  # the runtime was hit itself, and complains
            code, log = SIGKILLED, ""
        # A time limit that fires while the process ends by itself has killed nothing.
        timed_out = self.timed_out and code == SIGKILLED
        return {
            "exit": TIMED_OUT if timed_out else code,
            "timed_out": timed_out,
            "out_of_memory": code == SIGKILLED and not self.killed and kills,
            "killed": self.killed,
            "started": self.has_started(),
            "lost": (code == SIGKILLED and lost) or self._lost(status, starved) if code else "",
            "log": log,
        }

    def await_start(self) -> None:
        """Wait, for some seconds at most, until its runtime has written down the process that it started.

        Only then can a command be run beside that. crun records a container after its first process has begun to run,
        and that one may have been heard of long before: crun looks into its record first, and fails without one.
        """
        give_up = time.monotonic() + _RECORD_SECONDS
        while not self.has_started() and time.monotonic() < give_up:
            time.sleep(_RECORD_POLL_SECONDS)

    def has_started(self) -> bool:
        """Whether its runtime has written down the process that it started, and not something else."""
        try:
            with open(self.started) as file:
                return int(file.read(32)) > 0
        except (OSError, ValueError):
            return False

    def _lost(self, status: int, starved: Starved) -> str:
        """Say what the machine did to it, or nothing.

        A kill for want of memory is the sandbox's own if it was at its own limit in that time; else the kernel chose
        one of its processes because a group above it, or the whole machine, had none left.
        """
        before = self.starved_before
        if starved.kills > before.kills:
            return "" if starved.at_limit > before.at_limit else MACHINE_MEMORY
        if not os.WIFSIGNALED(status) or self.killed:
            return ""
        if not self.is_left and os.WTERMSIG(status) in _FROM_OUTSIDE:
            return f"its runtime was killed from outside, by signal {os.WTERMSIG(status)}"
        # The kernel lets nobody in a pid namespace kill its first process, and the sandbox closes what would make the
        # kernel do it (:mod:`~securebench.sandboxes.seccomp_profile`); a kill for want of its own memory was counted.
        if self.is_left and self.first and os.WTERMSIG(status) == signal.SIGKILL:
            return "its first process was killed from outside"
        return ""

    def _read_log(self) -> str:
        try:
            with open(self.log, "rb") as file:
                return file.read(_LOG_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            return ""


class RuntimeCall(NamedTuple):
    """A call of a runtime: its arguments, where it runs, and where stands what goes wrong.

    ``network`` is the path of a network namespace to start it in, if not the supervisor's. ``processes`` is how many
    there
    may be, with it, where they have to be counted apart. ``program`` is a descriptor of what to run, if that is not the
    program that the first argument names.
    """

    argv: list[str]
    directory: str
    log: str
    network: str | None = None
    processes: int | None = None
    program: int | None = None


def sealed_copy(path: str) -> int:
    """Return a descriptor of a copy in memory that nobody can change. Raises ``OSError``.

    Through ``/proc`` a container can get at the program that enters it. A runtime that could be overwritten that way
    copies itself and starts again from there, each time; one that runs from such a copy has no need to.
    """
    descriptor = os.memfd_create("runtime", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(path, "rb") as original, os.fdopen(descriptor, "wb", closefd=False) as copy:
        copy.write(original.read())
    os.fchmod(descriptor, 0o555)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _ALL_SEALS)
    return descriptor


def children(parent: int) -> list[int]:
    """Return the processes whose parent is ``parent``: the kernel lists them by the thread that has made them."""
    threads = _THREADS.format(parent)
    try:
        return [pid for thread in os.listdir(threads) for pid in _made_by(f"{threads}/{thread}/children")]
    except (
        FileNotFoundError,
        ProcessLookupError,
    ):  # it, or a thread, has just ended; or this kernel does not list them
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent(name) == parent]


def _made_by(listed: str) -> list[int]:
    with open(listed, "rb") as file:
        return [int(pid) for pid in file.read().split()]


def exit_code(status: int) -> int:
    """Return the exit code that a shell would give a process with this wait status."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def is_exiting(pid: int) -> bool:
    """Whether the process ``pid`` has begun to end, or is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return True
    return bool(int(fields[_FLAGS_AFTER_NAME]) & _PF_EXITING)


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:  # it has just ended
        return 0


def become(
    runtime: RuntimeCall, streams: list[int], prepare: Callable[[], None] = lambda: None, gate: Gate | None = None
) -> None:
    """Let this process, a child of the supervisor, become a runtime. What goes wrong stands in its log.

    What the runtime makes for itself lies in its directory, and goes with it, at whatever moment it is killed.
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
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        program = argv[0] if runtime.program is None else runtime.program
        environment = {"PATH": _PATH, SCRATCH_VARIABLE: runtime.directory}
        os.execve(program, argv, environment)  # noqa: S606 - what this is for
    except BaseException as error:  # noqa: BLE001 - this process must not go on as a second supervisor
        with open(runtime.log, "w") as file:
            file.write(f"{argv[0]} could not be started: {error}")
    finally:
        os._exit(127)
