"""A job: one runtime process that the keeper waits for. It runs a container, or a command in one."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from securebench.sandboxes.oci.wire import REPORT_BYTES, send_report

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

SIGKILLED = 137
"""128 + SIGKILL: ended from outside, by us or by the kernel for want of memory."""

TIMED_OUT = 124

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

SCRATCH_VARIABLE = "_LIBCONTAINER_STATEDIR"
"""Names the directory in which crun binds its own program, read-only, to a file that it makes and soon removes.

By default that is the host's /tmp, where the file stays if crun is killed meanwhile. Where it can make none, it runs a
copy in memory. runc, whose variable it was first, sets it itself; gVisor makes no such file.
"""


class Job:
    """A runtime process and the socket on which its driver hears of it. ``deadline`` is of the monotonic clock."""

    def __init__(self, channel: socket.socket, log: str, seconds: float) -> None:
        self.channel = channel
        self.log = log
        self.deadline = time.monotonic() + seconds
        self.pid = 0
        self.kills_before = 0
        self.timed_out = False
        self.killed = False

    def start(self, argv: list[str], directory: str, streams: list[int], prepare: Callable[[], None]) -> None:
        """Start the runtime with ``streams`` as its standard ones. ``prepare`` runs in the new process."""
        self.pid = os.fork()
        if self.pid == 0:
            become(argv, directory, self.log, streams, prepare)

    def report(self, report: dict[str, Any], descriptor: int = -1) -> None:
        """Tell the driver, if it still listens."""
        with suppress(OSError):
            send_report(self.channel, report, descriptor)

    def outcome(self, code: int, kills: int) -> dict[str, Any]:
        """Return the report of its end with ``code``, when its sandbox has seen ``kills`` for want of memory."""
        log = "" if code == 0 else self._read_log()
        if log and (self.killed or kills > self.kills_before):  # the runtime was hit itself, and complains
            code, log = SIGKILLED, ""
        # A time limit that fires while the process ends by itself has killed nothing.
        timed_out = self.timed_out and code == SIGKILLED
        starved = code == SIGKILLED and not self.killed and kills > self.kills_before
        return {"exit": TIMED_OUT if timed_out else code, "timed_out": timed_out, "out_of_memory": starved, "log": log}

    def _read_log(self) -> str:
        try:
            with open(self.log, "rb") as file:
                return file.read(REPORT_BYTES // 4).decode("utf-8", "replace").strip()
        except OSError:
            return ""


def children(parent: int) -> list[int]:
    """Return the processes whose parent is ``parent``."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent(name) == parent]


def exit_code(status: int) -> int:
    """Return the exit code that a shell would give a process with this wait status."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:  # it has just ended
        return 0


def become(
    argv: list[str], directory: str, log: str, streams: list[int], prepare: Callable[[], None] = lambda: None
) -> None:
    """Let this process, a child of the keeper, become a runtime. What goes wrong stands in ``log``.

    What the runtime makes for itself lies in ``directory``, and goes with it, at whatever moment it is killed.
    """
    try:
        prepare()
        os.chdir(directory)
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execve(argv[0], argv, {"PATH": _PATH, SCRATCH_VARIABLE: directory})  # noqa: S606 - what this is for
    except BaseException as error:  # noqa: BLE001 - this process must not go on as a second keeper
        with open(log, "w") as file:
            file.write(f"{argv[0]} could not be started: {error}")
    finally:
        os._exit(127)
