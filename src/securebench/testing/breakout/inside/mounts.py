"""Attempts to break out through mounts, namespaces and cgroups."""

from __future__ import annotations

import ctypes
import functools
import os

from securebench.testing.breakout.inside.base import BreakoutAttempt, Host, Stopped, add, attempt, syscall

_BIND, _REMOUNT, _RECURSIVE = 0x1000, 0x20, 0x4000
_NEW_NAMESPACES = {
    "user": (0x10000000, "gets every capability in namespaces of its own"),
    "mount": (0x00020000, "gets its own mounts"),
    "pid": (0x20000000, "gets its own process ids"),
    "network": (0x40000000, "gets its own network interfaces"),
    "ipc": (0x08000000, "gets its own shared memory"),
    "uts": (0x04000000, "gets its own host name"),
    "cgroup": (0x02000000, "gets its own view of cgroups"),
    "time": (0x00000080, "gets its own clock"),
}
_SIGCHLD = 17


def _mount(source: bytes, target: bytes, kind: bytes, flags: int, options: bytes, _host: Host) -> None:
    syscall("mount", source, target, kind, flags, options)


_MOUNTED = {
    "mount a tmpfs": (b"tmpfs", b"/tmp", b"tmpfs", 0, b""),
    "bind `/` over `/tmp`": (b"/", b"/tmp", b"", _BIND | _RECURSIVE, b""),
    "mount another `/proc`": (b"proc", b"/tmp", b"proc", 0, b""),
    "mount another `/sys`": (b"sysfs", b"/tmp", b"sysfs", 0, b""),
    "mount an overlay": (b"overlay", b"/tmp", b"overlay", 0, b"lowerdir=/etc:/usr"),
    "mount a cgroup hierarchy": (b"cgroup", b"/tmp", b"cgroup", 0, b"memory"),
    "mount the devices": (b"devtmpfs", b"/tmp", b"devtmpfs", 0, b""),
    "remount `/` writable": (b"", b"/", b"", _REMOUNT | _BIND, b""),
    "remount `/proc/sys` writable": (b"", b"/proc/sys", b"", _REMOUNT | _BIND, b""),
    "make mounts propagate": (b"", b"/", b"", 1 << 20, b""),
}
for _name, _arguments in _MOUNTED.items():
    add(
        BreakoutAttempt(
            _name, "reaches files of the host or of the kernel", "I18", functools.partial(_mount, *_arguments)
        )
    )


@attempt("uncover a masked path", "reads hidden kernel files", "I18")
def _unmask(_host: Host) -> None:
    syscall("umount2", b"/proc/kcore", 2)


@attempt("`pivot_root`", "gets another root file system", "I18")
def _pivot(_host: Host) -> None:
    syscall("pivot_root", b"/tmp", b"/tmp")


@attempt("`chroot`", "leaves the root directory through a nested `chroot`", "A22")
def _chroot(_host: Host) -> None:
    os.chroot("/tmp")


@attempt("`fsopen`: a file system through the kernel's newer mount calls", "reaches files of the kernel", "I18")
def _fsopen(_host: Host) -> None:
    syscall("fsopen", b"tmpfs", 0)


@attempt("`open_tree`: a copy of a mount", "gets a copy of a mount", "I18")
def _open_tree(_host: Host) -> None:
    syscall("open_tree", -100, b"/", 1 | 0x8000)


@attempt("`move_mount`", "puts one mount over another", "I18")
def _move_mount(_host: Host) -> None:
    syscall("move_mount", -100, b"/tmp", -100, b"/dev", 0)


@attempt("`mount_setattr`: a writable root", "changes the image", "I18")
def _mount_setattr(_host: Host) -> None:
    clear_read_only = (1).to_bytes(8, "little").rjust(16, b"\0").ljust(32, b"\0")
    syscall("mount_setattr", -100, b"/", 0, ctypes.create_string_buffer(clear_read_only), 32)


def _unshare(flag: int, _host: Host) -> None:
    syscall("unshare", flag)


for _name, (_flag, _means) in _NEW_NAMESPACES.items():
    add(
        BreakoutAttempt(
            f"`unshare`: a new {_name} namespace", _means, "I18", functools.partial(_unshare, _flag), surface=True
        )
    )


@attempt(
    "`clone` with a new user and mount namespace",
    "gets its own mounts, and may change them",
    "I18",
    surface=True,
)
def _clone(_host: Host) -> None:
    if syscall("clone", 0x10000000 | 0x00020000 | _SIGCHLD, 0, 0, 0, 0) == 0:
        os._exit(0)


@attempt("`clone3` with a new user namespace", "passes flags that a seccomp filter cannot see", "I18", surface=True)
def _clone3(_host: Host) -> None:
    arguments = (0x10000000).to_bytes(8, "little").ljust(32, b"\0") + _SIGCHLD.to_bytes(8, "little")
    if syscall("clone3", ctypes.create_string_buffer(arguments.ljust(64, b"\0"), 64), 64) == 0:
        os._exit(0)


def _enter(pid: str) -> None:
    for name in sorted(os.listdir(f"/proc/{pid}/ns")):
        descriptor = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        syscall("setns", descriptor, 0)


@attempt("`setns` into the namespaces of process 1", "enters the namespaces of another process", "I18")
def _setns(_host: Host) -> None:
    _enter("1")


@attempt("map itself to root", "gets the rights of any user of the host", "I18")
def _map_root(_host: Host) -> None:
    with open("/proc/self/uid_map", "w") as file:
        file.write("0 0 4294967295")


@attempt("become another user", "reaches files of another user", "I18")
def _become(_host: Host) -> str:
    os.setresuid(1000, 1000, 1000)
    return "uid 1000"


@attempt("write a cgroup's `release_agent`", "runs a program as the host's root when a cgroup becomes empty", "I18")
def _release_agent(_host: Host) -> str:
    return _first_writable({"release_agent"})


@attempt("change a limit of its cgroup", "removes limits", "I09")
def _cgroup_limit(_host: Host) -> str:
    return _first_writable({"memory.limit_in_bytes", "memory.max", "pids.max", "cpu.max", "cgroup.procs"})


def _first_writable(names: set[str]) -> str:
    found = 0
    for directory, _below, files in os.walk("/sys/fs/cgroup"):
        for name in names.intersection(files):
            found += 1
            try:
                os.close(os.open(os.path.join(directory, name), os.O_WRONLY))
            except OSError:
                continue
            return os.path.join(directory, name)
    raise Stopped("refused" if found else "not found")
