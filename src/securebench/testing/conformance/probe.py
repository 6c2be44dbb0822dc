"""The program that conformance checks run in a sandbox: ``python3 -c SOURCE ACTION [ARGUMENT...]``.

It is passed as one text and runs on the image's Python 3, so it is a single file and imports only the standard
library. Actions print their results to stdout. Many results are ``ok`` or the name of an error.
"""

from __future__ import annotations

import ctypes
import email
import errno
import hashlib
import json
import os
import platform
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

_TICK_SECONDS = 0.02
_LIFETIME_SECONDS = 60
_CALL_SECONDS = 10
_LISTENS = "0A"
_QUESTION = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01"
_SPARSE_BYTES = 64 * 1024 * 1024


def emit(out: str, err: str, code: str) -> int:
    """Write to stdout and stderr, and exit with ``code``."""
    sys.stdout.write(out)
    sys.stderr.write(err)
    return int(code)


def cat() -> None:
    """Copy stdin to stdout as it arrives."""
    while data := os.read(0, 65536):
        sys.stdout.buffer.write(data)
        sys.stdout.flush()


def digest() -> None:
    """Print the size of stdin in bytes, and its SHA-256 digest."""
    data = sys.stdin.buffer.read()
    print(len(data), hashlib.sha256(data).hexdigest())  # noqa: T201 - actions report on stdout


def converse() -> None:
    """Answer each line of stdin before reading the next one."""
    for line in sys.stdin:
        print("heard", line.strip(), flush=True)  # noqa: T201


def stutter(count: str) -> None:
    """Write ``count`` numbered lines, each in its own write."""
    for number in range(int(count)):
        os.write(1, f"{number}\n".encode())


def flood(size: str) -> None:
    """Write ``size`` bytes to stdout and as many to stderr.

    The streams are buffered, because on gVisor one ``os.write`` may write only a part of its data.
    """
    for _ in range(int(size) // 65536):
        sys.stdout.buffer.write(b"o" * 65536)
        sys.stderr.buffer.write(b"e" * 65536)


def sleep(seconds: str) -> None:
    """Print that this process sleeps, and sleep."""
    print("asleep", flush=True)  # noqa: T201
    time.sleep(float(seconds))


def hush(seconds: str) -> int:
    """Close stdout and stderr, keep running, and exit with code 7."""
    os.close(1)
    os.close(2)
    time.sleep(float(seconds))
    os._exit(7)


def deafen(seconds: str) -> None:
    """Close stdin, report that, and keep running."""
    os.close(0)
    print("deaf", flush=True)  # noqa: T201
    time.sleep(float(seconds))


def die(number: str) -> None:
    """End this process with the signal ``number``."""
    os.kill(os.getpid(), int(number))


def tick(path: str, then: str) -> None:
    """Start a daemon that keeps appending to ``path``. Then keep running if ``then`` is ``wait``, else exit."""
    if os.fork() == 0:
        os.setsid()
        os.close(1)
        os.close(2)
        _tick(path)
    while not Path(path).exists() or not Path(path).stat().st_size:
        time.sleep(_TICK_SECONDS)
    print("ticking", flush=True)  # noqa: T201
    if then == "wait":
        time.sleep(_LIFETIME_SECONDS)


def _tick(path: str) -> None:
    end = time.monotonic() + _LIFETIME_SECONDS
    while time.monotonic() < end:
        with Path(path).open("a") as file:
            file.write(".")
        time.sleep(_TICK_SECONDS)
    os._exit(0)


def facts(*_arguments: str) -> None:
    """Print the properties of this process."""
    answer = {
        "argv": sys.argv,
        "workdir": str(Path.cwd()),
        "uid": [os.getuid(), os.geteuid()],
        "gid": [os.getgid(), os.getegid()],
        "groups": sorted(set(os.getgroups()) - {os.getgid()}),
        "environment": dict(os.environ),
        "first_environment": _first_environment(),
        "limits": {name: resource.getrlimit(number)[1] for name, number in _RLIMITS.items()},
        "interfaces": [name for _, name in socket.if_nameindex()],
        "hostname": socket.gethostname(),
        "devices": sorted(name for name in os.listdir("/dev") if Path("/dev", name).is_block_device()),  # noqa: PTH208
        "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),  # noqa: PTH208 - names are enough
        **_status(),
    }
    json.dump(answer, sys.stdout)


def _first_environment() -> list[str]:
    """Return the variables of process 1, or none if its environment is not readable."""
    try:
        return Path("/proc/1/environ").read_bytes().decode().split("\0")[:-1]
    except PermissionError:
        return []


_PR_GET_NO_NEW_PRIVS = 39

_RLIMITS = {"core": resource.RLIMIT_CORE, "nofile": resource.RLIMIT_NOFILE, "fsize": resource.RLIMIT_FSIZE}


def _status() -> dict[str, object]:
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {
        "capabilities": {name: int(value, 16) for name, value in fields.items() if name.startswith("Cap")},
        "no_new_privileges": ctypes.CDLL(None).prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1,
        "seccomp_filter": fields["Seccomp"] == "2",
    }


def write(path: str, text: str) -> None:
    """Write a file, and print the result."""
    print(_outcome(lambda: Path(path).write_text(text)))  # noqa: T201


def read(path: str) -> None:
    """Print the content of a file and ``ok``, or the name of the error."""
    print(_outcome(lambda: sys.stdout.write(Path(path).read_text() + "\n")))  # noqa: T201


def describe(path: str) -> None:
    """Call ``statx`` like ``ls`` and ``stat``, without triggering automounts; print the result."""
    answer = ctypes.create_string_buffer(512)
    arguments = (_AT_FDCWD, path.encode(), _AT_NO_AUTOMOUNT, _STATX_BASIC_STATS, answer)
    print(_outcome(lambda: _system("statx", *arguments)))  # noqa: T201


def threads(count: str) -> None:
    """Start threads that wait for each other, and print how many there were."""
    barrier = threading.Barrier(int(count))
    met: list[int] = []
    everyone = [threading.Thread(target=lambda: met.append(barrier.wait())) for _ in range(int(count))]
    for one in everyone:
        one.start()
    for one in everyone:
        one.join()
    print(len(met))  # noqa: T201


def remove(path: str) -> None:
    """Remove a file, and print the result."""
    print(_outcome(lambda: Path(path).unlink()))  # noqa: T201


def fill(path: str, size: str) -> None:
    """Write up to ``size`` bytes; print how many fit, and the error that stopped the writing, or ``ok``."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    written = 0
    with Path(path).open("wb", buffering=0) as file:

        def more() -> None:
            nonlocal written
            while written < int(size):
                written += file.write(bytes(min(65536, int(size) - written)))

        outcome = _outcome(more)
    print(written, outcome)  # noqa: T201


def connect(host: str, port: str) -> None:
    """Open a connection, and print the result."""
    print(_outcome(lambda: socket.create_connection((host, int(port)), timeout=3).close()))  # noqa: T201


def call(port: str, text: str) -> None:
    """Send text to a port of this sandbox, and print the answer or the name of the error."""

    def speak() -> None:
        with socket.create_connection(("127.0.0.1", int(port)), timeout=_CALL_SECONDS) as connection:
            connection.sendall(text.encode())
            connection.shutdown(socket.SHUT_WR)
            sys.stdout.write(connection.makefile().read())

    outcome = _outcome(speak)
    print("" if outcome == "ok" else outcome)  # noqa: T201


def linger(port: str) -> None:
    """Send text to a port of this sandbox, print the answer, and stay connected."""
    with socket.create_connection(("127.0.0.1", int(port)), timeout=_CALL_SECONDS) as connection:
        connection.sendall(b"here\n")
        sys.stdout.write(connection.makefile().readline())
        sys.stdout.flush()
        time.sleep(_LIFETIME_SECONDS)


def ask(host: str, port: str) -> None:
    """Send a query to a DNS resolver, and print the result."""

    def send() -> None:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(_CALL_SECONDS)
            asking.connect((host, int(port)))
            asking.send(_QUESTION)
            asking.recv(512)

    print(_outcome(send))  # noqa: T201


def listen(port: str) -> None:
    """Listen on a port of every address of this sandbox, and keep running."""
    with socket.create_server(("", int(port))):
        print("listening", flush=True)  # noqa: T201
        time.sleep(_LIFETIME_SECONDS)


def network() -> None:
    """Print the interfaces and the listening IPv4 TCP sockets, and count the other sockets and the routes."""
    tcp = [line.split() for line in _shown("tcp")]
    answer = {
        "interfaces": sorted(line.split(":")[0].strip() for line in _shown("dev")[1:]),
        "listening": [_address(words[1]) for words in tcp if words[3] == _LISTENS],
        "others": sum(words[3] != _LISTENS for words in tcp)
        + sum(len(_shown(name)) for name in ("tcp6", "udp", "udp6", "raw", "raw6", "packet", "unix")),
        "routes": len(_shown("route")),
    }
    json.dump(answer, sys.stdout)


def _shown(name: str) -> list[str]:
    path = Path("/proc/net", name)
    return path.read_text().splitlines()[1:] if path.exists() else []


def _address(shown: str) -> str:
    address, _, port = shown.partition(":")
    return f"{socket.inet_ntoa(int(address, 16).to_bytes(4, sys.byteorder))}:{int(port, 16)}"


def resolve(name: str) -> None:
    """Print the address of a name, or ``unknown``."""
    try:
        print(socket.getaddrinfo(name, 80)[0][4][0])  # noqa: T201
    except OSError:
        print("unknown")  # noqa: T201


def loopback(name: str) -> None:
    """Listen on a port, connect to it by name, and print the result."""
    server = socket.create_server((name, 0))
    connect(name, str(server.getsockname()[1]))


def spawn(count: str) -> None:
    """Start up to ``count`` children that sleep. Print their number, and ``ok`` or the error that prevented more."""
    started = 0

    def more() -> None:
        nonlocal started
        while started < int(count):
            if os.fork() == 0:
                time.sleep(_LIFETIME_SECONDS)
                os._exit(0)
            started += 1

    outcome = _outcome(more)
    print(started, outcome, flush=True)  # noqa: T201


def allocate(size: str) -> None:
    """Allocate ``size`` bytes of memory, and print the size."""
    block = b"x" * int(size)
    print(len(block))  # noqa: T201


def attempt(*names: str) -> None:
    """Make the named attempts; print those that worked."""
    json.dump([name for name in names if _outcome(_ATTEMPTS[name]) == "ok"], sys.stdout)


def shut(path: str) -> None:
    """Create a directory that only its owner may enter, with a file that only its owner may read."""
    Path(path).mkdir(mode=0o700)
    Path(path, "note").write_text("from inside")
    Path(path, "note").chmod(0o600)
    print("ok")  # noqa: T201


def plant(path: str) -> None:
    """Create a set-id copy of the interpreter."""
    shutil.copyfile(os.path.realpath("/proc/self/exe"), path)
    Path(path).chmod(0o6755)
    print(oct(Path(path).stat().st_mode & 0o7777))  # noqa: T201


def harvest(path: str) -> None:
    """Run the set-id copy that :func:`plant` created, and print the user and group that it runs as."""
    code = "import os; print(os.geteuid(), os.getegid())"
    subprocess.run([path, "-I", "-S", "-c", code], check=True)  # noqa: S603 - the attack itself


def library() -> None:
    """Print the path of a directory of the image that contains files and a subdirectory with files."""
    print(Path(email.__file__).resolve().parent)  # noqa: T201


def change(directory: str, *names: str) -> None:
    """Make the named changes in ``directory``; print the result of each."""
    os.chdir(directory)
    for name in names:
        print(name, _outcome(_CHANGES[name]), flush=True)  # noqa: T201


def _write_bytes(path: bytes, data: bytes, mode: int = 0o644) -> None:
    with open(path, "wb") as file:  # noqa: PTH123 - names are bytes
        file.write(data)
    os.chmod(path, mode)  # noqa: PTH101


def _replace_file_by_link() -> None:
    Path("charset.py").unlink()
    Path("charset.py").symlink_to("../../outside")


def _add_sparse() -> None:
    _write_bytes(b"sparse", b"s")
    os.truncate("sparse", _SPARSE_BYTES)


def _make_all(here: Path) -> None:
    here.mkdir()
    (here / "only").write_text("only")


def _add_deep() -> None:
    Path("deep/er").mkdir(parents=True)
    _write_bytes(b"deep/er/file", b"deep")


def _replace_mime(make: object) -> None:
    shutil.rmtree("mime")
    make()  # type: ignore[operator]  # as in _outcome


def _make_mime() -> None:
    Path("mime").mkdir()
    _write_bytes(b"mime/only", b"only")


def _replace_all(make: object) -> None:
    here = Path.cwd()
    os.chdir("/")
    shutil.rmtree(here)
    make(here)  # type: ignore[operator]  # as in _outcome


def _replace_parent() -> None:
    here = Path.cwd()
    os.chdir("/")
    shutil.copytree(here, "/elsewhere/" + here.name)
    shutil.rmtree(here.parent)
    here.parent.symlink_to("/elsewhere")


def _outcome(call: object) -> str:
    try:
        call()  # type: ignore[operator]  # this file does not import typing
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "ok"


def _system(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)


def _read_kernel_memory() -> None:
    with Path("/proc/kcore").open("rb") as memory:
        if not memory.read(1):
            raise PermissionError(errno.EPERM, "masked")


_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNS = 0x00020000
_AT_FDCWD = -100
_AT_NO_AUTOMOUNT = 0x800
_STATX_BASIC_STATS = 0x7FF
_KEYCTL_GET_KEYRING_ID = 0
_SYS_KEYCTL = 250 if platform.machine() == "x86_64" else 219

_ATTEMPTS = {
    "chroot": lambda: os.chroot("/tmp"),  # noqa: S108 - a path of the sandbox
    "mount": lambda: _system("mount", b"none", b"/tmp", b"tmpfs", 0, None),
    "unmount": lambda: _system("umount2", b"/proc", 2),
    "new user namespace": lambda: _system("unshare", _CLONE_NEWUSER),
    "new mount namespace": lambda: _system("unshare", _CLONE_NEWNS),
    "set host name": lambda: socket.sethostname("x"),
    "make device": lambda: os.mknod("/tmp/device", 0o060600, os.makedev(8, 0)),  # noqa: S108
    "write kernel setting": lambda: Path("/proc/sys/kernel/core_pattern").write_text("|/tmp/x"),
    "write sysrq": lambda: Path("/proc/sysrq-trigger").write_text("h"),
    "write cgroup": lambda: Path("/sys/fs/cgroup/cgroup.procs").write_text("1"),
    "read kernel memory": _read_kernel_memory,
    "raw socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    "packet socket": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "kernel keyring": lambda: _system("syscall", _SYS_KEYCTL, _KEYCTL_GET_KEYRING_ID, -3, 0),
    "become root": lambda: os.setuid(0),
    "engine socket": lambda: socket.socket(socket.AF_UNIX).connect("/var/run/docker.sock"),
    "change clock": lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()),
    "set priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
}

_CHANGES = {
    "add": lambda: _write_bytes(b"added", b"new"),
    "add odd": lambda: _write_bytes(b"odd \xff\n-name", b"odd"),
    "add deep": _add_deep,
    "edit": lambda: _write_bytes(b"message.py", b"edited"),
    "remove": lambda: Path("parser.py").unlink(),
    "mode": lambda: Path("policy.py").chmod(0o755),
    "link": lambda: Path("link").symlink_to("/etc/passwd"),
    "file to link": _replace_file_by_link,
    "directory": lambda: _replace_mime(_make_mime),
    "directory to link": lambda: _replace_mime(lambda: Path("mime").symlink_to("/etc")),
    "directory to file": lambda: _replace_mime(lambda: _write_bytes(b"mime", b"file")),
    "set id": lambda: _write_bytes(b"setid", b"x", 0o6755),
    "pipe": lambda: os.mkfifo("pipe", 0o644),
    "socket": lambda: socket.socket(socket.AF_UNIX).bind("socket"),
    "device": lambda: os.mknod("device", 0o020600, os.makedev(1, 3)),
    "removal": lambda: os.mknod("decoder.py", 0o020600, os.makedev(0, 0)),
    "opaque": lambda: os.setxattr(".", "user.overlay.opaque", b"y"),
    "sparse": _add_sparse,
    "all removed": lambda: _replace_all(lambda _here: None),
    "all to link": lambda: _replace_all(lambda here: here.symlink_to("/etc")),
    "all to file": lambda: _replace_all(lambda here: here.write_text("file")),
    "all anew": lambda: _replace_all(_make_all),
    "parent to link": _replace_parent,
}

_ACTIONS = (
    *(emit, cat, digest, converse, stutter, flood, sleep, hush, deafen, die, tick, facts, write, read, remove, fill),
    *(describe, threads),
    *(call, linger, ask, listen, network),
    *(connect, resolve, loopback, spawn, allocate, attempt, shut, plant, harvest, library, change),
)


def main(argv: list[str]) -> int:
    """Run one action."""
    actions = {action.__name__: action for action in _ACTIONS}
    return actions[argv[0]](*argv[1:]) or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
