"""A breakout attempt, and a function that makes it in a process of its own."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import select
import signal
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 15.0
"""The time limit in seconds of an attempt in a shared sandbox. An attempt that hangs has an unknown outcome."""


TOGETHER = "together"
"""The ``staging`` of a breakout attempt that has its own process in a sandbox shared with other attempts."""
ALONE = "alone"
"""The ``staging`` of a breakout attempt in its own sandbox with small limits.

The attempt could end the sandbox or exhaust the limits.
"""
ENDLESS = "endless"
"""The ``staging`` of a breakout attempt that never ends.

``endless`` differs from ``alone`` only in a shorter time limit.
"""
ENTERED = "entered"
"""The ``staging`` of a breakout attempt in its own persistent sandbox.

At the same time, the driver runs other commands in this sandbox.
"""
LEAKED = "leaked"
"""The ``staging`` of a breakout attempt that starts in a directory that the runtime may have left open."""


class Stopped(Exception):  # noqa: N818 - the desired result, not an error
    """An attempt failed for a reason other than a system call's error number."""


class Host(NamedTuple):
    """The host's targets.

    ``canary`` is the absolute path of a file that contains ``secret``. ``victim`` is the id of a process on the host.
    A server listens on ``port`` at each of ``addresses``, and another on the abstract socket ``abstract``.
    """

    canary: str
    secret: str
    victim: int
    port: int
    addresses: tuple[str, ...]
    abstract: str


class BreakoutAttempt(NamedTuple):
    """One way to break out.

    ``function`` returns if the attempt worked. If not, it raises ``OSError``, :class:`Stopped` or another error that
    :func:`outcome_of` catches.

    ``means`` is the consequence of success, ``entry`` is the entry in the catalogue of attacks, and ``staging`` is the
    kind of sandbox. An attempt with ``surface`` does not break out. It only checks whether the sandbox can call a part
    of the kernel that has often been used for escapes. Such a call is harmless if the sandbox has its own kernel.
    """

    name: str
    means: str
    entry: str
    function: Callable[[Host], str | None]
    staging: str = TOGETHER
    surface: bool = False


ATTEMPTS: dict[str, BreakoutAttempt] = {}
"""All attempts by name, in the order in which they were added."""


def add(attempt: BreakoutAttempt) -> None:
    """Add ``attempt`` to :data:`ATTEMPTS`."""
    ATTEMPTS[attempt.name] = attempt


def attempt(
    name: str, means: str, entry: str, *, staging: str = TOGETHER, surface: bool = False
) -> Callable[[Callable[[Host], str | None]], Callable[[Host], str | None]]:
    """Add the decorated function to :data:`ATTEMPTS`. The parameters are fields of :class:`BreakoutAttempt`."""

    def register(function: Callable[[Host], str | None]) -> Callable[[Host], str | None]:
        add(BreakoutAttempt(name, means, entry, function, staging, surface))
        return function

    return register


_NUMBERS = {
    "add_key": (248, 217),
    "acct": (163, 89),
    "bpf": (321, 280),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_setup": (425, 425),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setns": (308, 268),
    "socket": (41, 198),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
"""System calls by name: their numbers on x86-64 and on 64-bit ARM."""

_MACHINES = {"x86_64": 0, "aarch64": 1}
_LIBC = ctypes.CDLL(None, use_errno=True)


def number_of(name: str) -> int:
    """Return the number of a system call on this machine. Raises :class:`Stopped` if its architecture is unknown."""
    if platform.machine() not in _MACHINES:
        raise Stopped("not tried on this machine")
    return _NUMBERS[name][_MACHINES[platform.machine()]]


def syscall(name: str, *arguments: object) -> int:
    """Make the system call ``name``. Raises ``OSError``, or :class:`Stopped` on an unknown architecture."""
    return syscall_number(number_of(name), *arguments)


def syscall_number(number: int, *arguments: object) -> int:
    """Make a system call by its number. Raises ``OSError``."""
    passed = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = int(_LIBC.syscall(ctypes.c_long(number), *passed))
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def only_on(machine: str) -> None:
    """Raise :class:`Stopped` unless this machine's architecture is ``machine``, such as ``x86_64``."""
    if platform.machine() != machine:
        raise Stopped("not tried on this machine")


def outcome_of(attempt: BreakoutAttempt, host: Host) -> tuple[str, str]:
    """Make ``attempt`` in this process. Return ``contained``, ``reached`` or ``escaped``, and an explanation."""
    try:
        how = attempt.function(host)
    except Stopped as stopped:
        return "contained", str(stopped)
    except OSError as error:
        return "contained", errno.errorcode.get(error.errno or 0, str(error))
    except (MemoryError, RuntimeError, ValueError) as error:
        return "contained", f"{type(error).__name__}: {error}"[:60]
    return ("reached", how or "") if attempt.surface else ("escaped", how or "it worked")


def outcome_apart(attempt: BreakoutAttempt, host: Host) -> tuple[str, str]:
    """Make ``attempt`` in a child process, and return what :func:`outcome_of` returns there.

    Without an answer, the attempt is ``contained`` if a signal ended the child before the time limit, else ``unknown``.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.write(writer, json.dumps(outcome_of(attempt, host)).encode())
        os._exit(0)
    os.close(writer)
    waiting = select.poll()
    waiting.register(reader, select.POLLIN)
    answer = os.read(reader, 65536) if waiting.poll(SECONDS * 1000) else None
    os.close(reader)
    if answer is None:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if answer:
        outcome, how = json.loads(answer)
        return outcome, how
    return ("unknown", "no answer") if answer is None or not os.WIFSIGNALED(status) else _killed(os.WTERMSIG(status))


def _killed(number: int) -> tuple[str, str]:
    return "contained", signal.Signals(number).name
