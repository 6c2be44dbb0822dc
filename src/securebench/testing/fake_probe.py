"""The conformance suite's probe, as a program of the fake: the same actions, on a fake process's world."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

from securebench.sandboxes.base import MIB
from securebench.testing.conformance.bench import PROBE
from securebench.testing.fake_changes import CHANGES, LIBRARY, LIBRARY_FILES
from securebench.testing.fake_process import SIGKILLED
from securebench.testing.fake_sandbox import DEFAULT_IMAGE, IMAGE_FILES

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.testing.fake_process import FakeProcessContext
    from securebench.testing.fake_sandbox import FakeDriver

_TICK_SECONDS = 0.02
_CHUNK = 65536
_CAPABILITIES = {"SYS_CHROOT": (18, "chroot")}


def install_probe(driver: FakeDriver) -> None:
    """Make the probe a program of ``driver``, so that the conformance suite can run on it."""
    driver.program(lambda argv: argv[1:3] == ("-c", PROBE))(_probe)
    driver.program(lambda argv: argv[0] == "/bin/cat")(_show_files)
    driver.add_image(DEFAULT_IMAGE, files=IMAGE_FILES | LIBRARY_FILES)


def _probe(context: FakeProcessContext) -> int | None:
    action, *arguments = context.argv[3:]
    return _ACTIONS[action](context, *arguments)


def _show_files(context: FakeProcessContext) -> None:
    for path in context.argv[1:]:
        context.stdout.write(context.files.read(path))


def _emit(context: FakeProcessContext, out: str, err: str, code: str) -> int:
    for stream, text in ((context.stdout, out), (context.stderr, err)):
        if text:
            stream.write(text)
    return int(code)


def _cat(context: FakeProcessContext) -> None:
    for data in context.stdin.chunks():
        context.stdout.write(data)


def _digest(context: FakeProcessContext) -> None:
    data = context.stdin.read()
    _say(context, len(data), hashlib.sha256(data).hexdigest())


def _converse(context: FakeProcessContext) -> None:
    while line := context.stdin.readline():
        _say(context, "heard", line.decode().strip())


def _stutter(context: FakeProcessContext, count: str) -> None:
    for number in range(int(count)):
        _say(context, number)


def _flood(context: FakeProcessContext, size: str) -> None:
    for _ in range(int(size) // _CHUNK):
        context.stdout.write(b"o" * _CHUNK)
        context.stderr.write(b"e" * _CHUNK)


def _sleep(context: FakeProcessContext, seconds: str) -> None:
    _say(context, "asleep")
    context.sleep(float(seconds))


def _hush(context: FakeProcessContext, seconds: str) -> int:
    context.sleep(float(seconds))
    return 7


def _deafen(context: FakeProcessContext, seconds: str) -> None:
    _say(context, "deaf")
    context.sleep(float(seconds))


def _die(_context: FakeProcessContext, number: str) -> int:
    return 128 + int(number)


def _tick(context: FakeProcessContext, path: str, then: str) -> None:
    def daemon(child: FakeProcessContext) -> None:
        while True:
            child.files.write(path, b".", append=True)
            child.sleep(_TICK_SECONDS)

    context.spawn(daemon)
    while not context.files.exists(path):
        context.sleep(_TICK_SECONDS)
    _say(context, "ticking")
    if then == "wait":
        context.sleep(60)


def _facts(context: FakeProcessContext, *_arguments: str) -> None:
    spec, (uid, gid) = context.spec, context.user
    bits = sum(1 << _CAPABILITIES[name][0] for name in spec.cap_add)
    held = bits if uid == 0 else 0
    answer: dict[str, Any] = {
        "argv": ["-c", *context.argv[3:]],
        "workdir": context.workdir,
        "uid": [uid, uid],
        "gid": [gid, gid],
        "groups": [],
        "environment": context.environment,
        "first_environment": [f"{name}={value}" for name, value in spec.environment.items()],
        "limits": {"core": 0, "nofile": spec.limits.open_files, "fsize": spec.limits.file_size},
        "interfaces": ["lo"] if spec.network == "none" else ["eth0", "lo"],
        "hostname": "sandbox",
        "devices": [],
        "processes": context.container.processes,
        "capabilities": {"CapPrm": held, "CapEff": held, "CapBnd": bits, "CapInh": 0, "CapAmb": 0},
        "no_new_privileges": "no-new-privileges:true" in spec.security_opt,
        "seccomp_filter": True,
    }
    context.stdout.write(json.dumps(answer))


def _write(context: FakeProcessContext, path: str, text: str) -> None:
    _say(context, _outcome(lambda: context.files.write(path, text.encode())))


def _read(context: FakeProcessContext, path: str) -> None:
    def show() -> None:
        context.stdout.write(context.files.read(path) + b"\n")

    _say(context, _outcome(show))


def _describe(context: FakeProcessContext, _path: str) -> None:
    _say(context, "ok")


def _threads(context: FakeProcessContext, count: str) -> None:
    _say(context, count)


def _remove(context: FakeProcessContext, path: str) -> None:
    _say(context, _outcome(lambda: context.files.remove(path)))


def _fill(context: FakeProcessContext, path: str, size: str) -> None:
    written = 0

    def more() -> None:
        nonlocal written
        room = context.spec.limits.file_size
        while written < int(size):
            step = min(MIB, int(size) - written)
            if written + step > room:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            context.files.write(path, bytes(step), append=True)
            written += step
            context.allocate(0)

    outcome = _outcome(more)
    _say(context, written, outcome)


def _connect(context: FakeProcessContext, host: str, _port: str) -> None:
    own = host in {"127.0.0.1", "::1", "localhost"}
    _say(context, "ECONNREFUSED" if own else "ENETUNREACH")


def _call(context: FakeProcessContext, port: str, text: str) -> None:
    def speak() -> None:
        with context.connect(int(port)) as connection:
            connection.sendall(text.encode())
            connection.shutdown(socket.SHUT_WR)
            context.stdout.write(connection.makefile("rb").read())

    outcome = _outcome(speak)
    _say(context, "" if outcome == "ok" else outcome)


def _linger(context: FakeProcessContext, port: str) -> None:
    with context.connect(int(port)) as connection:
        connection.sendall(b"here\n")
        context.stdout.write(connection.makefile("rb").readline())
        context.sleep(60)


def _ask(context: FakeProcessContext, host: str, _port: str) -> None:
    _say(context, "ECONNREFUSED" if host.startswith("127.") else "ENETUNREACH")


def _listen(context: FakeProcessContext, _port: str) -> None:
    _say(context, "listening")
    context.sleep(60)


def _network(context: FakeProcessContext) -> None:
    outside = context.spec.network != "none"
    answer = {
        "interfaces": ["eth0", "lo"] if outside else ["lo"],
        "listening": [f"127.0.0.1:{port}" for port in context.container.forwarded_ports],
        "others": 0,
        "routes": 2 if outside else 0,
    }
    context.stdout.write(json.dumps(answer))


def _resolve(context: FakeProcessContext, name: str) -> None:
    _say(context, "127.0.0.1" if name == "localhost" else "unknown")


def _loopback(context: FakeProcessContext, _name: str) -> None:
    _say(context, "ok")


def _spawn(context: FakeProcessContext, count: str) -> None:
    started = 0

    def more() -> None:
        nonlocal started
        while started < int(count):
            try:
                context.spawn(lambda child: child.sleep(60))
            except BlockingIOError as error:
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
            started += 1

    outcome = _outcome(more)
    _say(context, started, outcome)


def _allocate(context: FakeProcessContext, size: str) -> int:
    context.allocate(int(size))
    _say(context, size)
    return SIGKILLED if context.container.ended.is_set() else 0


def _attempt(context: FakeProcessContext, *names: str) -> None:
    granted = {_CAPABILITIES[name][1] for name in context.spec.cap_add if context.user[0] == 0}
    context.stdout.write(json.dumps([name for name in names if name in granted]))


def _shut(context: FakeProcessContext, path: str) -> None:
    host = context.files.host_path(path)
    if host is not None:
        host.mkdir()
        (host / "note").write_text("from inside")
    _say(context, "ok")


def _plant(context: FakeProcessContext, path: str) -> None:
    context.files.write(path, b"")
    host = context.files.host_path(path)
    if host is not None:
        host.chmod(0o6755)
    _say(context, "0o6755")


def _harvest(context: FakeProcessContext, _path: str) -> None:
    _say(context, *context.user)


def _library(context: FakeProcessContext) -> None:
    _say(context, LIBRARY)


def _change(context: FakeProcessContext, directory: str, *names: str) -> None:
    for name in names:
        _say(context, name, _outcome(partial(CHANGES[name], context.files, directory)))


def _say(context: FakeProcessContext, *words: object) -> None:
    context.stdout.write(" ".join(map(str, words)) + "\n")


def _outcome(call: Callable[[], None]) -> str:
    try:
        call()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "ok"


_ACTIONS: dict[str, Callable[..., int | None]] = {
    action.__name__.removeprefix("_"): action
    for action in (
        *(_emit, _cat, _digest, _converse, _stutter, _flood, _sleep, _hush, _deafen, _die, _tick, _facts, _write),
        *(_read, _remove, _fill, _connect, _resolve, _loopback, _spawn, _allocate, _attempt, _shut, _plant, _harvest),
        *(_describe, _threads, _library, _change, _call, _linger, _ask, _listen, _network),
    )
}
