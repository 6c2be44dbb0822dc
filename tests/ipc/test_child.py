"""A supervised child process: how it starts, what it is given, and how its end is reported."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from securebench.ipc.child import ChildError, SupervisedChild
from securebench.ipc.frames import pack, receive, send

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Starting = Callable[..., SupervisedChild]

SECONDS = 30.0
READY = "channel, settings = inherited_channel(descriptor, 1); send(channel, pack(settings.body))"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starting]:
    """Return a function that starts a child whose ``main`` has the given body."""
    started: list[SupervisedChild] = []

    def starting(body: str, *args: object, **options: object) -> SupervisedChild:
        lines = ["import json, os, signal, sys, time", "from securebench.ipc.frames import *", "def main(descriptor):"]
        module = f"played_child_{len(started)}"
        (tmp_path / f"{module}.py").write_text("\n".join((*lines, textwrap.indent(body, "    "))))
        child = SupervisedChild(module, {"n": 1}, *args, paths=(str(tmp_path),), **options)  # type: ignore[arg-type]
        started.append(child)
        return child

    yield starting
    for child in started:
        child.close(0.0)


def test_a_child_has_what_it_was_given_and_nothing_else(start: Starting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child gets its settings, descriptors, environment and channel, and inherits nothing else from its parent."""
    monkeypatch.setenv("SECRET", "x")
    leaked = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    readable, writable = os.pipe()
    child = start(
        "channel, (settings, (given,)) = inherited_channel(descriptor, 1)\n"
        "os.write(given, b'x')\n"
        "found = {'settings': settings, 'environment': dict(os.environ),\n"
        "  'inheritable': os.get_inheritable(descriptor),\n"
        "  'streams': [os.readlink(f'/proc/self/fd/{n}') for n in (0, 1)], 'directory': os.getcwd(),\n"
        "  'open': sorted(int(n) for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}')),\n"
        "  'expected': sorted({0, 1, 2, channel.fileno(), given}), 'leader': os.getsid(0) == os.getpid()}\n"
        "send(channel, pack(found))",
        (writable,),
        environment={"A": "b"},
    )
    found = child.await_ready(SECONDS)
    assert os.read(readable, 1) == b"x"
    assert found["open"] == found["expected"]
    assert found["environment"].pop("LC_CTYPE", "C.UTF-8") == "C.UTF-8"  # Python sets it itself in the C locale
    kept = {name: found[name] for name in ("settings", "environment", "inheritable", "streams", "directory", "leader")}
    streams = ["/dev/null"] * 2
    expected = {"settings": {"n": 1}, "environment": {"A": "b"}, "streams": streams, "directory": "/"}
    assert kept == {**expected, "inheritable": False, "leader": True}
    for descriptor in (leaked, readable, writable):
        os.close(descriptor)


def test_a_child_serves_until_its_channel_ends(start: Starting) -> None:
    """A child and its parent exchange frames, and the child exits when the channel ends."""
    child = start(f"{READY}\nwhile frame := receive(channel): send(channel, pack(frame.body))")
    assert child.await_ready(SECONDS) == {"n": 1}
    send(child.channel, pack({"again": 2}))
    assert receive(child.channel) == ({"again": 2}, [])
    assert child.is_running()
    child.stop(SECONDS)
    assert not child.is_running()
    assert child.exit_reason() == "exit status 0"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise SystemExit('no room for me')", "no room for me"),
        ("sys.exit(3)", "exit status 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by signal 9"),
        ("channel, _ = inherited_channel(descriptor); send(channel, pack({'failed': 'no mounts'}))", "no mounts"),
        ("os.write(2, b'first\\nlast\\n' + b' ' * 100)", "last"),
        ("channel, _ = inherited_channel(descriptor); channel.send(b'?')", "not a JSON object"),
    ],
)
def test_a_child_that_cannot_serve_says_why(start: Starting, body: str, reason: str) -> None:
    """The error for a failed start is the child's report, the last line of its stderr, or its exit status or signal."""
    child = start(body)
    with pytest.raises(ChildError, match=reason):
        child.await_ready(SECONDS)


def test_a_child_that_hangs_is_killed(start: Starting) -> None:
    """Waiting for a child that hangs times out, and stopping it kills it."""
    child = start("signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)")
    with pytest.raises(ChildError, match="not ready within"):
        child.await_ready(0.1)
    child.stop(0.1)
    assert child.exit_reason() == f"killed by signal {int(signal.SIGKILL)}"


def test_a_child_cannot_print_without_limit(start: Starting) -> None:
    """The output of a child is limited and never blocks it. The error is the last line within the limit."""
    child = start("try:\n while True: os.write(2, b'x' * 1000 + b'\\n')\nexcept OSError: pass\nos.ftruncate(2, 10**9)")
    with pytest.raises(ChildError) as raised:
        child.await_ready(SECONDS)
    assert set(str(raised.value)) == {"x"}
    assert os.fstat(child._stderr).st_size < 10**6


def test_a_program_that_is_missing_is_an_error(start: Starting, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a child cannot be started, the error leaves no descriptor open."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ChildError, match="No such file"):
        start("")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_closing_twice_is_harmless(start: Starting) -> None:
    """Closing a child twice has the same effect as closing it once."""
    child = start(READY)
    child.close(SECONDS)
    child.close(SECONDS)
    assert not child.is_running()
