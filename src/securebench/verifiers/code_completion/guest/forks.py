"""The tests' side: forks a process for each task, and accepts another task only if the last task left nothing behind.

Tests are trusted, but the values that they receive are hostile. A bug in decoding these values could give a candidate
control of the process that runs the tests. So the forking process protects itself and later tasks from its child
processes:

* It reports on descriptor 2 that a task has ended and left nothing behind. A child process cannot forge this report,
  because the descriptor 2 of a child process is ``/dev/null`` while tests run.
* It reads only START, the fixed-length frame with which the host begins a task. Its answer contains the random number
  in START. An earlier task cannot forge the answer, because the host chooses the number after that task has ended.
* It is not dumpable, so it cannot be traced. It blocks all signals except SIGKILL and SIGSTOP, which cannot be blocked.
  SIGKILL ends the sandbox. After SIGSTOP, the host replaces the sandbox.
* After a task, it looks for processes, files, objects that outlive their process, changed settings and network traffic.
  If it finds any of them, it exits, which ends the sandbox. It does not clean up, because cleaning up could fail.

If some of these checks are impossible in a sandbox, this program does not fork, and runs the tests of one task itself.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # importing ``signal`` takes a tenth of the start-up time
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
"""The number of the system call ``ioprio_get``, by machine and ``sys.maxsize``: 32-bit programs use other numbers."""
_FILES = (
    *("/proc/self/limits", "/proc/self/oom_score_adj"),
    *("/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg", "/proc/net/dev"),
    *(f"/proc/self/fdinfo/{descriptor}" for descriptor in (0, 1, 2)),
)
"""Files that show what the code of a task could change: the limits of this process, objects that outlive their
processes, the counts of bytes sent over the network, and the flags and locks of the pipes."""
_POLICY_AND_NICENESS = (16, 37, 38)
"""The indices of niceness, real-time priority and policy in ``/proc/self/stat``, counted after the program's name."""


def await_task() -> None:
    """Wait for the first task. Then return, or fork a process for each task and return only in the new processes."""
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
    """The state of a sandbox before its first task, when it contains only the init and this process.

    The constructor raises ``ImportError``, ``AttributeError``, ``LookupError``, ``OSError`` or ``ValueError`` if the
    state cannot be checked. In that case, it changes nothing.
    """

    def __init__(self) -> None:
        if _has_other_processes() or _is_traceable(1):
            raise OSError("the sandbox has other processes, or its init can be traced")
        self._places = _places()
        self._prctl = _function("prctl")
        self._syscall = _function("syscall")
        self._ioprio_get = _IOPRIO_GET[os.uname().machine, sys.maxsize]
        self._mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
        if self._prctl(_SET_DUMPABLE, 0, 0, 0, 0):
            raise OSError("this process could be traced")
        try:
            self._first = self._state()  # raises on old kernels, where a non-dumpable process cannot read all files
        except BaseException:
            self._prctl(_SET_DUMPABLE, 1, 0, 0, 0)
            raise
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())

    def fork(self) -> int:
        """Fork a process for a task, and return its id: 0 in the new process.

        The new process has its own session, because the kernel may schedule a session as a unit, and each process
        of a session can change the niceness of the unit. The new process is dumpable, and has the original signal mask.
        """
        child = os.fork()
        if child == 0:
            os.setsid()
            _signal.pthread_sigmask(_signal.SIG_SETMASK, self._mask)
            self._prctl(_SET_DUMPABLE, 1, 0, 0, 0)
        return child

    def await_end(self, child: int, deadline: float) -> None:
        """Wait until ``child`` has exited, and check that it has left nothing behind.

        This process exits if the child is still running at ``deadline``, was killed by a signal, or has left something
        behind. After a signal, the exit code of this process is 128 plus the signal's number. The driver looks for an
        out-of-memory kill only after such an exit code.
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
        """Return the state of everything that a task could change and leave behind."""
        import fcntl

        found: list[Any] = [_read(path) for path in _FILES]
        found.append(_signal.sigpending())
        # The count of out-of-memory kills is that of the whole machine, because the sandbox cannot see its own. After
        # such a kill in this sandbox, the driver would attribute any later SIGKILL in it to memory, too.
        found.append(int(_read("/proc/vmstat").partition("\noom_kill ")[2].partition("\n")[0]))
        found.append([self._syscall(self._ioprio_get, 1, pid) for pid in (0, 1)])
        for process in ("self", "1"):  # processes of the same user can change the scheduling of both
            lines = _read(f"/proc/{process}/status").splitlines()
            numbers = _read(f"/proc/{process}/stat").rpartition(")")[2].split()
            found.append([line for line in lines if line.startswith(_OF_PROCESS)])
            found.append([numbers[index] for index in _POLICY_AND_NICENESS])
        for descriptor in (0, 1, 2):  # the task's process shares these pipes, with their settings
            settings = (fcntl.F_GETOWN, fcntl.F_GETSIG, 1032)  # 1032 is F_GETPIPE_SZ, which Python names since 3.10
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
    """Return a function of the C library, without importing the package ``ctypes``.

    Importing the package would create callbacks in memory that child processes may share.
    """
    import _ctypes

    class Integer(_ctypes._SimpleCData):  # type: ignore[type-arg]  # not generic at run time before Python 3.9
        _type_ = "i"

    class Function(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL
        _restype_ = Integer

    return Function(_ctypes.dlsym(_ctypes.dlopen(None, 0), name))  # type: ignore[arg-type]  # this program itself


def _places() -> list[str]:
    """Return the writable mount points except ``/proc``. Raises ``OSError`` if one of them cannot be checked."""
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
    changed = 0 if stat.S_ISDIR(found.st_mode) else found.st_ctime_ns  # a directory changes with each file in it
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
    """Return whether this user has processes in the sandbox besides this one and the init.

    ``kill(-1)`` skips these two.
    """
    try:
        os.kill(-1, 0)
    except ProcessLookupError:
        return False
    return True
