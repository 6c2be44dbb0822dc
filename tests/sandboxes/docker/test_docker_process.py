"""How a process ends, with a stand-in for the engine's side of it."""

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
    """An engine's side that ends with ``code``, or with 137 when it is killed."""

    theirs: socket.socket
    code: int = 0
    oom: bool = False
    foreign: bool = False
    kill_error: Exception | None = None
    killed: threading.Event = field(default_factory=threading.Event)
    oom_asked: bool = False

    def exit_code(self, timeout: float) -> int:
        """Return the code."""
        return self.code

    def out_of_memory(self) -> bool:
        """Remember that it was asked."""
        self.oom_asked = True
        return self.oom

    def require_own_end(self) -> None:
        """Raise if another client ended it."""
        if self.foreign:
            raise InfrastructureError("another client of the engine killed a sandbox")

    def kill(self) -> None:
        """End, or fail to."""
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
    """Give the engine's side."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    stub = StubTarget(theirs)
    stub.ours = ours  # type: ignore[attr-defined]  # held for start()
    yield stub
    ours.close()
    theirs.close()


def start(target: StubTarget, *, timeout: float = 30, output: int = 1000) -> tuple[DockerProcess, list[DockerProcess]]:
    """Return a process on ``target``, and the list of those that were told to have ended."""
    ended: list[DockerProcess] = []
    command = Command(argv=("x",), timeout_seconds=timeout)
    stream = EngineStream(target.ours)  # type: ignore[attr-defined]  # set by the fixture
    return DockerProcess(stream, target, command, output_limit=output, on_end=ended.append), ended


def test_a_process_that_ends_is_told_once(target: StubTarget) -> None:
    """The end of a process is reported once, with its code; memory is not asked about."""
    process, ended = start(target)
    target.code = 3
    target.end()
    assert process.wait() == ExitState(exit_code=3)
    assert process.wait() == ExitState(exit_code=3)
    assert ended == [process]
    assert not target.oom_asked


@pytest.mark.parametrize(("code", "raises"), [(0, False), (143, True)])
def test_a_signal_of_another_client_is_no_end_of_its_own(target: StubTarget, *, code: int, raises: bool) -> None:
    """What has succeeded was not disturbed by it."""
    process, _ = start(target)
    target.code, target.foreign = code, True
    target.end()
    with pytest.raises(InfrastructureError) if raises else nullcontext():
        process.wait()


@pytest.mark.parametrize("oom", [True, False])
def test_137_is_explained(target: StubTarget, oom: bool) -> None:
    """Only for exit code 137, and only if nobody killed it, the engine is asked about memory (I09)."""
    process, _ = start(target)
    target.code, target.oom = 137, oom
    target.end()
    assert process.wait() == ExitState(exit_code=137, out_of_memory=oom)


def test_a_time_limit_kills(target: StubTarget) -> None:
    """A time limit kills, keeps what was said, and is not taken for a want of memory."""
    process, _ = start(target, timeout=0.1)
    target.oom = True
    target.say(b"before")
    assert process.receive() == (Stream.STDOUT, b"before")
    assert process.receive() is None
    assert process.wait() == ExitState(exit_code=124, timed_out=True)


def test_a_time_limit_that_comes_too_late_changes_nothing(target: StubTarget) -> None:
    """A process that ends by itself as its time limit fires has its own exit code, and no time-out."""
    process, _ = start(target, timeout=0.05)
    target.kill_error = InfrastructureError("it is not running")
    assert target.killed.wait(20)
    target.code = 0
    target.end()
    assert process.wait() == ExitState(exit_code=0)


def test_too_much_output_kills(target: StubTarget) -> None:
    """Output beyond the limit is dropped, also from the chunk that crosses it, and the process killed (I12)."""
    process, _ = start(target, output=10)
    target.say(b"123456")
    target.say(b"789012", stream=2)
    chunks = [process.receive(5), process.receive(5)]
    assert chunks == [(Stream.STDOUT, b"123456"), (Stream.STDERR, b"7890")]
    assert process.receive(5) is None
    assert process.wait() == ExitState(exit_code=137, output_limit_exceeded=True)


def test_output_nobody_reads_counts_too(target: StubTarget) -> None:
    """Waiting without reading drops the output, and the limit holds all the same."""
    process, _ = start(target, output=10)
    target.say(b"x" * 11)
    assert process.wait().output_limit_exceeded


def test_a_kill_is_no_time_out(target: StubTarget) -> None:
    """A process that its caller kills has 137 and no other reason."""
    process, _ = start(target)
    process.kill()
    assert process.wait() == ExitState(exit_code=137)


def test_the_first_cause_counts(target: StubTarget) -> None:
    """A time limit after a kill changes nothing."""
    process, _ = start(target, timeout=0.3)
    process.kill()
    assert target.killed.wait(20)
    time.sleep(0.4)
    assert process.wait() == ExitState(exit_code=137)


def test_a_hanging_engine_is_told(target: StubTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """L08: an engine that does not end a killed sandbox within the grace is an engine error, not a hang."""
    monkeypatch.setattr("securebench.sandboxes.lifecycle.KILL_GRACE", 0.2)
    process, _ = start(target, timeout=0.1)
    target.kill_error = EngineError("it hangs")
    started = time.monotonic()
    with pytest.raises(EngineError, match="time limit"):
        process.receive()
    assert time.monotonic() - started < 20
    process.abandon()


def test_an_engine_that_is_gone_is_told(target: StubTarget) -> None:
    """L08: where the end of a process cannot be asked for, waiting raises, and the process is let go of."""
    process, ended = start(target)

    def gone(timeout: float) -> int:
        raise EngineError("gone")

    target.exit_code = gone  # type: ignore[method-assign]  # the fault of this test
    target.end()
    with pytest.raises(EngineError):
        process.wait()
    assert ended == [process]


def test_abandoning_ends_a_wait_for_output(target: StubTarget) -> None:
    """Closing a sandbox wakes whoever reads its process."""
    process, ended = start(target)
    timer = threading.Timer(0.1, process.abandon)
    timer.start()
    assert process.receive() is None
    timer.join()
    assert ended == [process]
