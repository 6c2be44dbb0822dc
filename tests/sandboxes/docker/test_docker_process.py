"""How a :class:`DockerProcess` ends, tested with a stub in place of the engine's container."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from securebench.errors import EngineError, InfrastructureError
from securebench.sandboxes.base import Command, ExitState, Stream
from securebench.sandboxes.docker.container import DockerTarget
from securebench.sandboxes.docker.process import DockerProcess
from securebench.sandboxes.docker.stream import EngineStream

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class StubTarget(DockerTarget):
    """A stub of a container that exits with ``code``, or with 137 after it was killed."""

    theirs: socket.socket
    code: int = 0
    oom: bool = False
    foreign: bool = False
    kill_error: Exception | None = None
    killed: threading.Event = field(default_factory=threading.Event)
    oom_asked: bool = False

    def exit_code(self, timeout: float) -> int:
        """Return ``code``."""
        return self.code

    def out_of_memory(self) -> bool:
        """Record the call, and return ``oom``."""
        self.oom_asked = True
        return self.oom

    def require_own_end(self) -> None:
        """Raise if ``foreign`` is set: another client sent a signal."""
        if self.foreign:
            raise InfrastructureError("another client of the engine sent a signal to a sandbox")

    def kill(self) -> None:
        """Record the call. Raise ``kill_error`` if it is set, else exit with code 137."""
        self.killed.set()
        if self.kill_error is not None:
            raise self.kill_error
        self.code = 137
        self.end()

    def say(self, data: bytes, stream: int = 1) -> None:
        """Send a frame of output."""
        self.theirs.sendall(bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data)

    def end(self) -> None:
        """End the output."""
        self.theirs.close()


@pytest.fixture
def target() -> Iterator[StubTarget]:
    """Yield a stub that is connected to the socket ``ours``."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    stub = StubTarget(theirs)
    stub.ours = ours  # type: ignore[attr-defined]  # held for start()
    yield stub
    ours.close()
    theirs.close()


def start(target: StubTarget, *, timeout: float = 30, output: int = 1000) -> tuple[DockerProcess, list[DockerProcess]]:
    """Return a process on ``target``, and the list of the processes that were passed to ``on_end``."""
    ended: list[DockerProcess] = []
    command = Command(argv=("x",), timeout_seconds=timeout)
    stream = EngineStream(target.ours)  # type: ignore[attr-defined]  # set by the fixture
    return DockerProcess(stream, target, command, output_limit=output, on_end=ended.append), ended


def test_a_process_that_ends_is_told_once(target: StubTarget) -> None:
    """The end of a process is reported once, with its exit code. The engine is not asked about lack of memory."""
    process, ended = start(target)
    target.code = 3
    target.end()
    assert process.wait() == ExitState(exit_code=3)
    assert process.wait() == ExitState(exit_code=3)
    assert ended == [process]
    assert not target.oom_asked


@pytest.mark.parametrize(("code", "raises"), [(0, False), (143, True)])
def test_a_signal_of_another_client_is_no_end_of_its_own(target: StubTarget, *, code: int, raises: bool) -> None:
    """If another client sent a signal, waiting raises an error, unless the process exited with code 0."""
    process, _ = start(target)
    target.code, target.foreign = code, True
    target.end()
    with pytest.raises(InfrastructureError) if raises else nullcontext():
        process.wait()


@pytest.mark.parametrize("oom", [True, False])
def test_137_is_explained(target: StubTarget, oom: bool) -> None:
    """If SecureBench did not kill a process with exit code 137, the engine is asked about lack of memory (I09)."""
    process, _ = start(target)
    target.code, target.oom = 137, oom
    target.end()
    assert process.wait() == ExitState(exit_code=137, out_of_memory=oom)


def test_a_time_limit_kills(target: StubTarget) -> None:
    """At its time limit, a process is killed. Earlier output is kept, and no lack of memory is reported."""
    process, _ = start(target, timeout=0.1)
    target.oom = True
    target.say(b"before")
    assert process.receive() == (Stream.STDOUT, b"before")
    assert process.receive() is None
    assert process.wait() == ExitState(exit_code=124, timed_out=True)


def test_a_time_limit_that_comes_too_late_changes_nothing(target: StubTarget) -> None:
    """A process that exits by itself while its time limit fires keeps its exit code and has not timed out."""
    process, _ = start(target, timeout=0.05)
    target.kill_error = InfrastructureError("it is not running")
    assert target.killed.wait(20)
    target.code = 0
    target.end()
    assert process.wait() == ExitState(exit_code=0)


def test_too_much_output_kills(target: StubTarget) -> None:
    """Output beyond the limit is dropped, even within the chunk that crosses it, and the process is killed (I12)."""
    process, _ = start(target, output=10)
    target.say(b"123456")
    target.say(b"789012", stream=2)
    chunks = [process.receive(5), process.receive(5)]
    assert chunks == [(Stream.STDOUT, b"123456"), (Stream.STDERR, b"7890")]
    assert process.receive(5) is None
    assert process.wait() == ExitState(exit_code=137, output_limit_exceeded=True)


def test_output_nobody_reads_counts_too(target: StubTarget) -> None:
    """Output that ``wait`` discards counts towards the limit, too."""
    process, _ = start(target, output=10)
    target.say(b"x" * 11)
    assert process.wait().output_limit_exceeded


def test_a_kill_is_no_time_out(target: StubTarget) -> None:
    """A process that its caller kills has exit code 137 and has not timed out."""
    process, _ = start(target)
    process.kill()
    assert process.wait() == ExitState(exit_code=137)


def test_the_first_cause_counts(target: StubTarget) -> None:
    """A time limit that fires after a kill does not change the reported exit state."""
    process, _ = start(target, timeout=0.3)
    process.kill()
    assert target.killed.wait(20)
    time.sleep(0.4)
    assert process.wait() == ExitState(exit_code=137)


def test_a_hanging_engine_is_told(target: StubTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """L08: if the engine does not end a killed sandbox within the grace period, an engine error is raised."""
    monkeypatch.setattr("securebench.sandboxes.lifecycle.KILL_GRACE", 0.2)
    process, _ = start(target, timeout=0.1)
    target.kill_error = EngineError("it hangs")
    started = time.monotonic()
    with pytest.raises(EngineError, match="time limit"):
        process.receive()
    assert time.monotonic() - started < 20
    process.abandon()


def test_an_engine_that_is_gone_is_told(target: StubTarget) -> None:
    """L08: if the engine does not return the exit code, waiting raises an error and ``on_end`` is called."""
    process, ended = start(target)

    def gone(timeout: float) -> int:
        raise EngineError("gone")

    target.exit_code = gone  # type: ignore[method-assign]  # simulates the fault
    target.end()
    with pytest.raises(EngineError):
        process.wait()
    assert ended == [process]


def test_abandoning_ends_a_wait_for_output(target: StubTarget) -> None:
    """Abandoning a process, as closing its sandbox does, wakes a thread that waits for its output."""
    process, ended = start(target)
    timer = threading.Timer(0.1, process.abandon)
    timer.start()
    assert process.receive() is None
    timer.join()
    assert ended == [process]
