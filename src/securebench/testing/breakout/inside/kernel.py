"""Attempts to break out through the kernel: settings, modules, memory, and system calls often used to escape."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import struct
import time

from securebench.testing.breakout.inside.base import (
    BreakoutAttempt,
    Host,
    Stopped,
    add,
    attempt,
    number_of,
    only_on,
    syscall,
    syscall_number,
)

_WRITTEN = {
    "/proc/sys/kernel/core_pattern": ("runs a program as the host's root at the next crash", "I18"),
    "/proc/sys/kernel/modprobe": ("runs a program as the host's root when the kernel requests a module", "I18"),
    "/proc/sys/fs/binfmt_misc/register": ("runs a program when the host runs a file of a certain format", "I18"),
    "/proc/sys/vm/panic_on_oom": ("causes a kernel panic when the host next runs out of memory", "I18"),
    "/proc/sys/net/ipv4/ip_forward": ("changes the sandbox's network", "I18"),
    "/proc/sysrq-trigger": ("restarts the host", "I18"),
    "/proc/irq/default_smp_affinity": ("moves the host's interrupts", "I18"),
    "/sys/kernel/uevent_helper": ("runs a program as the host's root at the next device event", "I18"),
    "/sys/power/state": ("puts the host to sleep", "I18"),
}
_READ = {
    "/proc/kcore": "reads the host's memory",
    "/proc/kmsg": "removes messages from the kernel's log",
    "/proc/keys": "reads the names of other users' keys",
    "/proc/timer_list": "reads the timers of the host's processes",
    "/proc/sched_debug": "lists the host's processes",
    "/sys/kernel/debug/sched": "reads the kernel's debugging files",
    "/sys/firmware/dmi/tables/DMI": "reads a description of the host's hardware",
}
_MOST_FILES = 50_000


def _open_to_write(path: str, _host: Host) -> None:
    os.close(os.open(path, os.O_WRONLY))


def _read_byte(path: str, _host: Host) -> None:
    with open(path, "rb") as file:
        if not file.read(1):
            raise Stopped("empty")


for _path, (_means, _entry) in _WRITTEN.items():
    add(BreakoutAttempt(f"write `{_path}`", _means, _entry, functools.partial(_open_to_write, _path)))
for _path, _means in _READ.items():
    add(BreakoutAttempt(f"read `{_path}`", _means, "I18", functools.partial(_read_byte, _path)))


def _find_writable(root: str) -> str:
    seen = 0
    for directory, _names, files in os.walk(root):
        for name in files:
            path = os.path.join(directory, name)
            if os.access(path, os.W_OK):
                return path
        seen += len(files)
        if seen > _MOST_FILES:
            break
    raise Stopped("none")


@attempt("find any writable file in `/proc/sys`", "changes a setting of the kernel", "I18", surface=True)
def _any_setting(_host: Host) -> str:
    return _find_writable("/proc/sys")


@attempt("find any writable file in `/sys`", "changes a device, module or cgroup", "I18")
def _any_sysfs(_host: Host) -> str:
    return _find_writable("/sys")


def _call(name: str, arguments: tuple[object, ...], _host: Host) -> None:
    syscall(name, *arguments)


_LOADED = {
    "init_module": ("runs code in the kernel", (0, 0, b"")),
    "finit_module": ("runs code in the kernel", (0, b"", 0)),
    "kexec_load": ("starts another kernel", (0, 0, 0, 0)),
    "kexec_file_load": ("starts another kernel", (0, 0, 0, 0, 0)),
    "reboot": ("restarts the host", (0xFEE1DEAD, 672274793, 0, 0)),
    "swapon": ("makes the host swap memory to a file of the sandbox", (b"/tmp/none", 0)),
    "acct": ("records the host's processes", (b"/tmp/none",)),
    "quotactl": ("changes the host's quotas", (0x80000001 - (1 << 32), b"/dev/root", 0, 0)),
    "syslog": ("reads the kernel's log", (3, ctypes.create_string_buffer(64), 64)),
    "fanotify_init": ("watches the host's files", (0, 0)),
}
for _name, (_means, _arguments) in _LOADED.items():
    add(BreakoutAttempt(f"`{_name}`", _means, "I18", functools.partial(_call, _name, _arguments)))


@attempt("`bpf`: load a program", "runs code in the kernel", "I18")
def _bpf(_host: Host) -> None:
    code = struct.pack("<BBhi", 0xB7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0)
    held, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    socket_filter = struct.pack("<IIQQIIQII", 1, 2, ctypes.addressof(held), ctypes.addressof(licence), 0, 0, 0, 0, 0)
    syscall("bpf", 5, ctypes.create_string_buffer(socket_filter.ljust(128, b"\0")), 128)


@attempt("`perf_event_open` on the whole machine", "observes the host's processes", "I18")
def _perf(_host: Host) -> None:
    attributes = struct.pack("<IIQQ", 1, 112, 0, 0).ljust(112, b"\0")
    syscall("perf_event_open", ctypes.create_string_buffer(attributes), -1, 0, -1, 0)


@attempt("`userfaultfd`", "pauses the kernel at a chosen moment", "I18", surface=True)
def _userfaultfd(_host: Host) -> None:
    syscall("userfaultfd", 0)


@attempt("`io_uring_setup`", "makes system calls that the seccomp filter does not see", "I18", surface=True)
def _io_uring(_host: Host) -> None:
    syscall("io_uring_setup", 1, ctypes.create_string_buffer(120))


@attempt("`add_key`", "stores keys where other processes may find them", "I18", surface=True)
def _add_key(_host: Host) -> None:
    syscall("add_key", b"user", b"securebench", b"x", 1, -3)


@attempt("`keyctl`: the session's keys", "reads the host's keys", "I18", surface=True)
def _keyctl(_host: Host) -> None:
    syscall("keyctl", 0, -3, 0)


@attempt("set the clock", "changes the host's time", "I20")
def _clock(_host: Host) -> None:
    time.clock_settime(time.CLOCK_REALTIME, time.time())


@attempt("rename the host", "changes the host's name", "I20")
def _rename(_host: Host) -> None:
    name = os.uname().nodename
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.sethostname(name.encode(), len(name)) == -1:
        raise OSError(ctypes.get_errno(), "sethostname")


@attempt(
    "`unshare` by its x32 system call number",
    "bypasses a seccomp filter that checks only one system call table",
    "I18",
)
def _x32(_host: Host) -> None:
    only_on("x86_64")
    syscall_number(0x40000000 | number_of("unshare"), 0x10000000)


@attempt(
    "`unshare` as a 32-bit call (`int 0x80`)",
    "bypasses a seccomp filter that checks only one system call table",
    "I18",
)
def _int80(_host: Host) -> None:
    only_on("x86_64")
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    # push rbx; mov eax, edi; mov ebx, esi; xchg edx, ecx; int 0x80; pop rbx; ret
    page.write(b"\x53\x89\xf8\x89\xf3\x87\xca\xcd\x80\x5b\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_long] * 4)(address)
    result = function(310, 0x10000000, 0, 0)
    if result < 0:
        raise OSError(-result, os.strerror(-result))


@attempt("escape the out-of-memory killer", "makes the kernel kill the host's processes", "I09", surface=True)
def _oom_score(_host: Host) -> None:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1000")


@attempt("raise a hard limit", "removes the limits of core dumps, open files and file sizes", "I17")
def _raise_limit(_host: Host) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@attempt("take a real-time priority", "slows down the host's processes", "I10")
def _priority(_host: Host) -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
