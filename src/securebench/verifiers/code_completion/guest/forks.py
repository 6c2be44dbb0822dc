"""The tests' side: forks a process for each task, and takes another task only if nothing is left of the last one.

Tests are trusted, but the values that they receive are hostile. A bug in decoding them could give a candidate control
of the process that runs the tests. So that process counts as hostile to the one that forks it, and to the next task:

* The forking process reads only START, which has a fixed length, and repeats the random number in it. It alone has
  descriptor 2, on which it reports that nothing is left. The host sends the next START only after that report. So what
  a task has written cannot be taken for the answer to it.
* It is not dumpable, so it cannot be traced. It blocks signals. SIGKILL and SIGSTOP of the same user still reach it,
  which ends the sandbox or makes the host replace it.
* It cleans nothing up, since that could fail. It looks for processes, files, objects that outlive their process,
  changed settings and network traffic. If it finds any, it exits, and with it the sandbox.

It forks only if it can look for all of this. Otherwise it runs the tests of one task itself.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the module ``signal`` takes as long as a tenth of a start
import os
import stat
import sys
from time import monotonic

from securebench.verifiers.code_completion.guest.wire import CLEAN, END, HEADER_BYTES, HELLO, NONCE_BYTES, START

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_SET_DUMPABLE = 4
_OF_PROCESS = ("Threads", "Cpus_allowed:", "Mems_allowed:")
_IOPRIO_GET = {("x86_64", 2**63 - 1): 252, ("aarch64", 2**63 - 1): 31}
"""The number of the system call by machine and ``sys.maxsize``: in a program of 32 bits, it is that of another call."""
_FILES = (
    *("/proc/self/limits", "/proc/self/oom_score_adj"),
    *("/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg", "/proc/net/dev"),
    *(f"/proc/self/fdinfo/{descriptor}" for descriptor in (0, 1, 2)),
)
"""Limits of this process, objects that outlive their processes, how many bytes went over the network, and the flags and
locks of the pipes."""
_POLICY_AND_NICENESS = (16, 37, 38)
"""The indices of niceness, real-time priority and policy in ``/proc/self/stat``, counted after the program's name."""


def await_task() -> None:
    """Return in a process that is to run the tests of one task, and of no other."""
    sandbox: CheckedSandbox | None = None
    while True:
        nonce, seconds = _next_start()
        if seconds and sandbox is None:
            sandbox = _checked_sandbox()
        if sandbox is None:
            _write(HELLO, nonce + b"0")
            return
        child = sandbox.fork()
        if not child:
            return
        _write(HELLO, nonce + b"1")
        sandbox.await_end(child, monotonic() + seconds)
        _write(END, b"")
        os.write(2, CLEAN)


def _next_start() -> tuple[bytes, int]:
    start = _take(HEADER_BYTES + NONCE_BYTES + 4)
    if start[:HEADER_BYTES] != START + (NONCE_BYTES + 4).to_bytes(4, "big"):
        os._exit(1)
    return start[HEADER_BYTES:-4], int.from_bytes(start[-4:], "big")


def _write(kind: bytes, payload: bytes) -> None:
    os.write(1, kind + len(payload).to_bytes(4, "big") + payload)


def _take(count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part:
            os._exit(0)
        data += part
    return data


class CheckedSandbox:
    """The sandbox as it was before the first task, with this process and the init alone in it.

    Raises ``ImportError``, ``AttributeError``, ``LookupError``, ``OSError`` or ``ValueError`` where it cannot be
    checked. Then nothing has changed.
    """

    def __init__(self) -> None:
        if _has_other_processes() or _is_traceable(1):
            raise OSError("a task could hide in another process")
        self._places = _places()
        self._prctl = _function("prctl")
        self._syscall = _function("syscall")
        self._ioprio_get = _IOPRIO_GET[os.uname().machine, sys.maxsize]
        self._mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
        if self._prctl(_SET_DUMPABLE, 0, 0, 0, 0):
            raise OSError("this process could be traced")
        try:
            self._first = self._state()  # some of it cannot be read by processes that are not dumpable, on old kernels
        except (OSError, ValueError):
            self._prctl(_SET_DUMPABLE, 1, 0, 0, 0)
            raise
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())

    def fork(self) -> int:
        """Fork a process for a task. It has its own session and no trace of what protects this process.

        The kernel may schedule a session as a unit, whose niceness each of its processes can change.
        """
        child = os.fork()
        if child == 0:
            os.setsid()
            _signal.pthread_sigmask(_signal.SIG_SETMASK, self._mask)
            self._prctl(_SET_DUMPABLE, 1, 0, 0, 0)
        return child

    def await_end(self, child: int, deadline: float) -> None:
        """Wait until ``child`` has exited, and check that it has left nothing. Exits otherwise.

        If a signal has killed it, exit as the init of the sandbox would have reported it. Only then does the driver
        look for an out-of-memory kill.
        """
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            if _signal.sigtimedwait({_signal.SIGCHLD}, max(deadline - monotonic(), 0.0)) is None:
                os._exit(1)
        if os.WIFSIGNALED(status):
            os._exit(128 + os.WTERMSIG(status))
        while _signal.SIGCHLD in _signal.sigpending():
            _signal.sigtimedwait({_signal.SIGCHLD}, 0)
        if _has_other_processes() or self._state() != self._first:
            os._exit(1)

    def _state(self) -> list[Any]:
        """Return everything in which a task could leave something."""
        import fcntl

        found: list[Any] = [_read(path) for path in _FILES]
        found.append(_signal.sigpending())
        # Kills of the whole machine are counted, since those of the sandbox cannot be seen. After one of its own, the
        # driver would take any later kill in it for another.
        found.append(int(_read("/proc/vmstat").partition("\noom_kill ")[2].partition("\n")[0]))
        found.append([self._syscall(self._ioprio_get, 1, pid) for pid in (0, 1)])
        for process in ("self", "1"):  # the same user may change how they are scheduled
            lines = _read(f"/proc/{process}/status").splitlines()
            numbers = _read(f"/proc/{process}/stat").rpartition(")")[2].split()
            found.append([line for line in lines if line.startswith(_OF_PROCESS)])
            found.append([numbers[index] for index in _POLICY_AND_NICENESS])
        for descriptor in (0, 1, 2):  # the task's process shares these pipes, with their settings
            settings = (fcntl.F_GETOWN, fcntl.F_GETSIG, 1032)  # F_GETPIPE_SZ has a name since 3.10
            found.append([os.fstat(descriptor)[:6], *(fcntl.fcntl(descriptor, setting) for setting in settings)])
        for place in self._places:
            found.append(_entry(place))
            for directory, directories, files in os.walk(place):
                found.append(os.listxattr(directory))
                found += sorted(_entry(os.path.join(directory, name)) for name in (*directories, *files))
        return found


def _checked_sandbox() -> CheckedSandbox | None:
    try:
        return CheckedSandbox()
    except (ImportError, AttributeError, LookupError, OSError, ValueError):
        return None


def _function(name: str) -> Callable[..., int]:
    """Return a function of the C library, without the package ``ctypes``.

    That makes callbacks, in memory that a child may share.
    """
    import _ctypes

    class Integer(_ctypes._SimpleCData):  # type: ignore[type-arg]  # not generic at run time before Python 3.9
        _type_ = "i"

    class Function(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL
        _restype_ = Integer

    return Function(_ctypes.dlsym(_ctypes.dlopen(None, 0), name))  # type: ignore[arg-type]  # this program itself


def _places() -> list[str]:
    """Return the mount points that can be written. Raises ``OSError`` if there may be others."""
    places = []
    for line in _read("/proc/self/mounts").splitlines():
        _, place, kind, options = line.split()[:4]
        if options.split(",")[0] == "ro" or kind == "proc":
            continue
        if "\\" in place or (kind not in ("tmpfs", "mqueue", "devpts") and os.path.isdir(place)):
            raise OSError("a mount that cannot be checked")
        places.append(place)
    return places


def _entry(path: str) -> tuple[Any, ...]:
    found = os.lstat(path)
    changed = 0 if stat.S_ISDIR(found.st_mode) else found.st_ctime_ns  # a directory's changes with each file in it
    return path, found.st_mode, found.st_ino, found.st_dev, found.st_uid, found.st_gid, changed


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _is_traceable(pid: int) -> bool:
    """Return whether a process of this user may trace the process ``pid``."""
    try:
        os.readlink(f"/proc/{pid}/exe")
    except PermissionError:
        return False
    return True


def _has_other_processes() -> bool:
    """Return whether this user has processes in the sandbox besides this one and the init, which -1 never means."""
    try:
        os.kill(-1, 0)
    except ProcessLookupError:
        return False
    return True
