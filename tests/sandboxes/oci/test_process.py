"""Streams and exits of a process whose supervisor is played by the test: cases that are rare in real sandboxes."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import EngineError, InfrastructureError, MaterializationError
from securebench.ipc.frames import pack, receive, send
from securebench.sandboxes.base import Command, ExitState, Stream
from securebench.sandboxes.oci.connection import ProcessHandle
from securebench.sandboxes.oci.process import OciProcess, OciStreams, Pipes
from securebench.sandboxes.oci.sandbox import _greet
from securebench.sandboxes.oci.wire import KILL

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDED = {"exit": 0, "timed_out": False, "out_of_memory": False, "killed": False, "started": True, "lost": "", "log": ""}


class Played:
    """A process, with the ends of its channel and pipes that its supervisor and its program would have."""

    def __init__(
        self, stdin: bytes = b"", output_limit: int = 1000, seconds: float = 60, within: ProcessHandle | None = None
    ) -> None:
        ours, self.supervisor = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        pipes = Pipes()
        self.stdin, self.stdout, self.stderr = map(os.dup, pipes.remote)
        pipes.close_remote()
        handle = ProcessHandle(ours, within)
        command = Command(argv=("x",), timeout_seconds=seconds)
        self.ended: list[OciProcess] = []
        self.process = OciProcess(OciStreams(pipes, handle, stdin), handle, command, output_limit, self.ended.append)

    def end(self, **report: Any) -> None:
        """Report the exit of the process, and close the supervisor's end of the channel."""
        send(self.supervisor, pack({**ENDED, **report}))
        self.supervisor.close()

    def close_program(self) -> None:
        """Close the program's ends of the pipes."""
        for descriptor in (self.stdin, self.stdout, self.stderr):
            os.close(descriptor)


@pytest.fixture
def played() -> Iterator[Played]:
    """Yield a process whose supervisor and program are played by the test."""
    player = Played()
    yield player
    player.supervisor.close()
    player.process.abandon()
    player.close_program()


def test_output_comes_from_both_streams(played: Played) -> None:
    """Output on both stdout and stderr is received. After the exit, ``receive`` returns ``None``."""
    os.write(played.stdout, b"out")
    os.write(played.stderr, b"err")
    assert {played.process.receive(), played.process.receive()} == {(Stream.STDOUT, b"out"), (Stream.STDERR, b"err")}
    played.end(exit=3)
    assert played.process.receive() is None
    assert played.process.wait().exit_code == 3
    assert played.ended == [played.process]


def test_what_an_ended_command_left_is_not_waited_for(played: Played) -> None:
    """Output from before the exit is received. A daemon that keeps the streams open causes no delay."""
    os.write(played.stdout, b"last words")
    played.end()
    assert played.process.receive() == (Stream.STDOUT, b"last words")
    assert played.process.receive() is None


def test_nothing_in_time_is_told(played: Played) -> None:
    """Receiving raises ``TimeoutError`` if there is no output in time, and works afterwards."""
    with pytest.raises(TimeoutError):
        played.process.receive(0.05)
    os.write(played.stdout, b"late")
    assert played.process.receive(5) == (Stream.STDOUT, b"late")


def test_stdin_is_fed_while_output_is_awaited() -> None:
    """A large stdin is sent while the reading thread waits for output, and is then closed."""
    played = Played(stdin=b"x" * 300_000)
    played.process.close_stdin()
    got = bytearray()

    def consume() -> None:
        while data := os.read(played.stdin, 65536):
            got.extend(data)
        played.end()

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert played.process.wait().exit_code == 0
    consumer.join()
    assert len(got) == 300_000
    played.close_program()


def test_who_waits_for_room_is_woken_by_the_end(played: Played) -> None:
    """A sender that waits for room in a full pipe gets a broken pipe when the process exits."""
    threading.Timer(0.2, played.end).start()
    with pytest.raises(BrokenPipeError):
        played.process.send(b"x" * 10_000_000)


def test_nobody_reads_after_the_end_of_output() -> None:
    """When both outputs are closed, sending to stdin raises ``BrokenPipeError``, even if stdin is still open."""
    played = Played()
    os.close(played.stdout)
    os.close(played.stderr)
    assert played.process.receive(5) is None
    with pytest.raises(BrokenPipeError):
        played.process.send(b"x")
    played.process.abandon()
    played.supervisor.close()
    os.close(played.stdin)


def test_abandoning_wakes_who_reads_and_who_writes(played: Played) -> None:
    """Abandoning a process wakes the threads that read from it or write to it. ``wait`` then raises an error."""
    outcomes: list[object] = []

    def send() -> None:
        try:
            played.process.send(b"x" * 10_000_000)
        except BrokenPipeError as error:
            outcomes.append(error)

    threads = [
        threading.Thread(target=send),
        threading.Thread(target=lambda: outcomes.append(played.process.receive())),
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    played.process.abandon()
    for thread in threads:
        thread.join(5)
    assert len(outcomes) == 2
    with pytest.raises(InfrastructureError) as raised:
        played.process.wait()
    assert raised.value.code == "sandbox-closed"


def test_too_much_output_asks_for_a_kill(played: Played) -> None:
    """Output beyond the limit is dropped, and the supervisor is asked once to kill the sandbox."""
    os.write(played.stdout, b"o" * 1500)
    os.write(played.stderr, b"e" * 1500)
    chunk = played.process.receive()
    assert chunk is not None
    assert len(chunk[1]) == 1000
    assert receive(played.supervisor) == ({KILL: True}, [])
    with played.supervisor.dup() as requests:
        played.end(exit=137)
        state = played.process.wait()
        assert receive(requests) is None
    assert (state.exit_code, state.output_limit_exceeded) == (137, True)


def test_a_supervisor_that_is_gone_is_an_engine_error(played: Played) -> None:
    """If the supervisor closes the channel without a report, waiting raises an error."""
    played.supervisor.close()
    with pytest.raises(EngineError) as raised:
        played.process.wait()
    assert raised.value.code == "sandbox-supervisor-gone"


def test_a_supervisor_that_hangs_is_an_engine_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a sandbox is not stopped soon after its time limit, waiting for it raises an error."""
    monkeypatch.setattr("securebench.sandboxes.lifecycle.KILL_GRACE", 0.1)
    monkeypatch.setattr(OciProcess, "start_seconds", 0.0)
    played = Played(seconds=0.1)
    with pytest.raises(EngineError, match="not stopped within"):
        played.process.wait()
    played.process.abandon()
    played.supervisor.close()
    played.close_program()


LOST = '{"level":"error","msg":"urpc method \\"containerManager.WaitPID\\" failed: EOF"}'
"""gVisor's log for a command that was running when gVisor's kernel exited."""


class Beneath:
    """A container with a command in it. The test plays the supervisor of both."""

    def __init__(self) -> None:
        ours, self.supervisor = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self.played = Played(within=ProcessHandle(ours))

    def command_is_lost(self, *, started: bool) -> ExitState:
        """Report a failed command with the log :data:`LOST`, and return the resulting exit state."""
        self.played.end(exit=128, log=LOST, started=started)
        return self.played.process.wait()


@pytest.fixture
def beneath(monkeypatch: pytest.MonkeyPatch) -> Iterator[Beneath]:
    """Yield a container with a command in it. Shorten the wait for the container's exit to half a second."""
    monkeypatch.setattr("securebench.sandboxes.oci.process._EXIT_NOTICE_SECONDS", 0.5)
    container = Beneath()
    yield container
    container.supervisor.close()
    container.played.close_program()


@pytest.mark.parametrize(
    ("log", "code"),
    [
        ('{"level":"error","msg":"executable file `/x` not found in $PATH: No such file or directory"}', 127),
        ('{"level":"error","msg":"unable to start container process: exec: \\"/x\\": permission denied"}', 126),
        ('{"level":"error","msg":"failed to load /x: no such file or directory"}', 127),
        ('{"level":"error","msg":"error finding executable \\"x\\" in PATH [/bin]: no such file or directory"}', 127),
        ('{"level":"error","msg":"open executable: Permission denied"}', 126),
        ('{"level":"error","msg":"open executable: Too many levels of symbolic links"}', 126),
        ('{"level":"error","msg":"chdir `/x`: Not a directory"}', 126),
        (
            '{"level":"error","msg":"exec failed: chdir to cwd (\\"/x\\") failed: not a directory"}',
            126,
        ),
        ('{"level":"error","msg":"failed to find initial working directory \\"/x\\": no such file or directory"}', 127),
        ('{"level":"warning","msg":"something else"}', 1),
        ("", 1),
    ],
)
def test_what_cannot_be_run_is_the_commands_fault(beneath: Beneath, log: str, code: int) -> None:
    """If a program or working directory is missing or unusable, the exit code is 127 or 126. Warnings are ignored."""
    beneath.played.end(exit=1, log=log)
    assert beneath.played.process.wait().exit_code == code


def test_what_a_container_cannot_run_is_the_machines_fault(played: Played) -> None:
    """A failure to start a container's first process, the init, is an infrastructure error and gives no exit code."""
    played.end(exit=1, log='{"level":"error","msg":"chdir `/x`: Not a directory"}')
    with pytest.raises(InfrastructureError, match="chdir"):
        played.process.wait()


@pytest.mark.parametrize(
    "log",
    [
        '{"level":"error","msg":"mount `proc`: denied"}',
        "mount `proc`: denied",
        '["denied"]',
        '{"level":"error","msg":["denied"]}',
        "[" * 4000 + "denied",
    ],
)
def test_a_runtime_that_fails_is_the_machines_fault(played: Played, log: str) -> None:
    """An error of a runtime raises an infrastructure error with the text of its log, whether or not that is JSON."""
    played.end(exit=1, log=log)
    with pytest.raises(InfrastructureError, match="denied") as raised:
        played.process.wait()
    assert raised.value.code == "sandbox-failed"


@pytest.mark.parametrize(
    "log",
    [
        '{"level":"error","msg":"the container `a-s1` is not running"}',
        '{"level":"error","msg":"exec failed: cannot exec in a stopped container"}',
        '{"level":"error","msg":"error opening file `/run/a/state/a-s1/status`: No such file or directory"}',
    ],
)
@pytest.mark.parametrize("lost", ["", "its first process was killed from outside"])
def test_a_command_that_comes_too_late_is_what_its_sandbox_is(beneath: Beneath, log: str, lost: str) -> None:
    """A command that starts after its sandbox exited counts as killed, or as an error if the sandbox was lost."""
    send(beneath.supervisor, pack({**ENDED, "exit": 137, "lost": lost}))
    beneath.played.end(exit=1, log=log, started=False)
    if lost:
        with pytest.raises(InfrastructureError):
            beneath.played.process.wait()
    else:
        assert beneath.played.process.wait().exit_code == 137


@pytest.mark.parametrize("printed", [b"\n", b"crun: cannot do it\n", b"x" * 100])
def test_output_of_a_runtime_is_no_answer_of_the_idle_process(printed: bytes) -> None:
    """Output of a runtime is not mistaken for the echo of the random greeting, which shows that a sandbox started."""
    ours, supervisor = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    pipes = Pipes()
    os.write(pipes.remote[1], printed)
    threading.Timer(0.2, send, (supervisor, pack({**ENDED, "exit": 1, "started": False}))).start()
    with pytest.raises(InfrastructureError, match="exited with code 1 before it started anything"):
        _greet(ProcessHandle(ours), pipes)
    pipes.close_remote()
    pipes.close_local()
    supervisor.close()


@pytest.mark.parametrize("code", [0, 1])
def test_a_command_in_a_container_that_never_started_is_the_machines_fault(beneath: Beneath, code: int) -> None:
    """A command in a container that never started is an error, even if the log suggests that the container exited."""
    send(beneath.supervisor, pack({**ENDED, "exit": code, "started": False}))
    log = '{"level":"error","msg":"error opening file `/run/a/state/a-s1/status`: No such file or directory"}'
    beneath.played.end(exit=1, log=log, started=False)
    with pytest.raises(InfrastructureError, match="No such file"):
        beneath.played.process.wait()


@pytest.mark.parametrize("delay", [0.0, 0.2])
def test_a_command_whose_sandbox_ended_beneath_it_was_killed(beneath: Beneath, delay: float) -> None:
    """A18: a command whose sandbox exits while it runs counts as killed, not as an infrastructure error."""
    reporting = threading.Timer(delay, send, (beneath.supervisor, pack({**ENDED, "exit": 2})))
    reporting.start()
    state = beneath.command_is_lost(started=True)
    reporting.join()
    assert state == ExitState(exit_code=137, timed_out=False, out_of_memory=False, output_limit_exceeded=False)


def test_a_command_that_never_started_is_the_machines_fault(beneath: Beneath) -> None:
    """If the runtime never started the command, the loss is an infrastructure error, even if the sandbox has exited."""
    send(beneath.supervisor, pack({**ENDED, "exit": 2}))
    with pytest.raises(InfrastructureError, match="WaitPID"):
        beneath.command_is_lost(started=False)


def test_a_command_that_is_lost_in_a_living_sandbox_is_the_machines_fault(beneath: Beneath) -> None:
    """If a runtime loses a command while the sandbox is still running, this is an infrastructure error."""
    with pytest.raises(InfrastructureError, match="WaitPID"):
        beneath.command_is_lost(started=True)


def test_a_command_that_is_lost_with_its_supervisor_is_the_machines_fault(beneath: Beneath) -> None:
    """If no supervisor reports the exit of the sandbox, a lost command is an infrastructure error."""
    beneath.supervisor.close()
    with pytest.raises(InfrastructureError, match="WaitPID"):
        beneath.command_is_lost(started=True)


@pytest.mark.parametrize("unsafe", [True, False])
def test_what_the_supervisor_refuses_is_told(played: Played, unsafe: bool) -> None:
    """A refused request raises ``MaterializationError`` for an unsafe mount, and else ``InfrastructureError``."""
    send(played.supervisor, pack({"failed": "the mount of /x is a link", "unsafe": unsafe}))
    played.supervisor.close()
    with pytest.raises((MaterializationError, InfrastructureError), match="link") as raised:
        played.process.wait()
    assert (type(raised.value), raised.value.code) == (
        (MaterializationError, "mount-unsafe") if unsafe else (InfrastructureError, "sandbox-failed")
    )


def test_running_out_of_descriptors_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """L07: if there are too many open files for new pipes, the error says what to do, and no pipe stays open."""
    pipe2, made = os.pipe2, list[int]()

    def scarce(flags: int) -> tuple[int, int]:
        if len(made) >= 4:
            raise OSError(24, "Too many open files")
        made.extend(pair := pipe2(flags))
        return pair

    monkeypatch.setattr(os, "pipe2", scarce)
    with pytest.raises(InfrastructureError, match="Too many open files") as raised:
        Pipes()
    assert "ulimit" in raised.value.hint
    for descriptor in made:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_a_job_that_is_dropped_closes_its_socket() -> None:
    """The socket of an unused handle is closed, even if the handle is part of a reference cycle."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    handle: Any = ProcessHandle(ours)
    handle.itself = handle
    del handle, ours
    gc.collect()
    assert theirs.recv(10) == b""
    theirs.close()
