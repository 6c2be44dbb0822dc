"""The host uses a sandbox of the tests again only if the guest itself reports that nothing is left of a task."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from securebench.errors import EngineError, InfrastructureError
from securebench.sandboxes.base import Limits, SandboxSpec
from securebench.sandboxes.kept import KeptSandboxes
from securebench.testing.scripted_sandbox import DEFAULT_IMAGE, ScriptedDriver
from securebench.verifiers.code_completion import sides
from securebench.verifiers.code_completion.channel import ChannelEndedError, ChannelFrame, End
from securebench.verifiers.code_completion.guest.wire import CLEAN, END, HELLO, SOURCE, START, VERDICT
from securebench.verifiers.code_completion.relay import Deadlines
from securebench.verifiers.code_completion.request import SPLIT, CodeRequest
from securebench.verifiers.code_completion.sides import JudgingGuest, JudgingSide

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.testing.scripted_sandbox import ProgramContext

REQUEST = CodeRequest("pass", "pass", (), SPLIT, DEFAULT_IMAGE, Deadlines(5, 5))
GIVEN = ChannelFrame(VERDICT, b"{}").encode()
ENDED = ChannelFrame(END, b"").encode()


class Guest:
    """A guest that writes ``stdout`` and ``stderr`` after each verdict, and sends ``forks`` in its HELLO."""

    def __init__(self) -> None:
        self.stdout, self.stderr, self.forks = ENDED, CLEAN, b"1"

    def __call__(self, program: ProgramContext) -> int:
        """Behave like ``guest/forks.py``."""

        def take(count: int) -> bytes:
            data = b""
            while len(data) < count and (part := program.stdin.read(count - len(data))):
                data += part
            return data

        take(int.from_bytes(take(4), "big"))
        while header := take(5):
            body = take(int.from_bytes(header[1:], "big"))
            if header[:1] == START:
                program.stdout.write(ChannelFrame(HELLO, body[:-4] + self.forks).encode())
            elif header[:1] == SOURCE:
                program.stdout.write(GIVEN + self.stdout)
                program.stderr.write(self.stderr)
        return 0


@pytest.fixture
def guest() -> Guest:
    """Return a guest that reports after each task that nothing is left of it."""
    return Guest()


@pytest.fixture
def scripted(guest: Guest) -> Iterator[ScriptedDriver]:
    """Provide a driver whose ``python3`` is the guest, and check that no sandbox stays open."""
    made = ScriptedDriver()
    made.program("python3")(guest)
    yield made
    assert not made.open_sandboxes
    made.close()


@pytest.fixture
def kept(scripted: ScriptedDriver) -> Iterator[KeptSandboxes[JudgingGuest]]:
    """Provide a run's pool of kept sandboxes."""
    made: KeptSandboxes[JudgingGuest] = KeptSandboxes(scripted)
    yield made
    made.close()


def run_tests(scripted: ScriptedDriver, kept: KeptSandboxes[JudgingGuest] | None, *, is_intact: bool = True) -> int:
    """Run the tests of one task, and return how many sandboxes were created so far."""
    spec = SandboxSpec(image=scripted.resolve_image(DEFAULT_IMAGE), limits=Limits(output=1000))
    side = JudgingSide(scripted, spec, REQUEST, kept)
    try:
        channel = side.start()
        assert channel.receive(time.monotonic() + 5, frozenset({VERDICT})).kind == VERDICT
        side.is_intact = is_intact
    finally:
        side.close()
    return len(scripted.commands)


def test_a_clean_sandbox_is_used_again(scripted: ScriptedDriver, kept: KeptSandboxes[JudgingGuest]) -> None:
    """Several tasks use one sandbox. Its process limit has room for the process that forks."""
    assert [run_tests(scripted, kept) for _ in range(3)] == [1, 1, 1]
    assert scripted.commands[0][0].limits.pids == Limits().pids + 1


def test_without_the_pool_no_sandbox_is_used_again(scripted: ScriptedDriver) -> None:
    """Without a pool, each task gets a new sandbox with the usual process limit."""
    assert [run_tests(scripted, None) for _ in range(2)] == [1, 2]
    assert scripted.commands[0][0].limits.pids == Limits().pids


@pytest.mark.parametrize(
    ("stdout", "stderr"),
    [
        (ENDED, b""),
        (b"", CLEAN),
        (ENDED, CLEAN * 2),
        (ENDED * 2, CLEAN),
        (ENDED + b"H", CLEAN),
        (ENDED + ChannelFrame(HELLO, b"x" * 17).encode(), CLEAN),
        (GIVEN + ENDED, CLEAN),
        (ENDED + bytes(2000), CLEAN),
    ],
)
def test_what_a_task_can_write_is_no_proof(
    scripted: ScriptedDriver,
    kept: KeptSandboxes[JudgingGuest],
    guest: Guest,
    monkeypatch: pytest.MonkeyPatch,
    stdout: bytes,
    stderr: bytes,
) -> None:
    """The next task gets a new sandbox, unless exactly one END on stdout and one CLEAN on stderr follow the verdict."""
    monkeypatch.setattr(sides, "_CHECK_SECONDS", 0.05)
    guest.stdout, guest.stderr = stdout, stderr
    assert [run_tests(scripted, kept) for _ in range(2)] == [1, 2]


def test_nothing_of_a_task_runs_on_after_it(
    scripted: ScriptedDriver, kept: KeptSandboxes[JudgingGuest], guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the guest does not report in time that nothing is left of a task, the sandbox is closed with that task."""
    monkeypatch.setattr(sides, "_CHECK_SECONDS", 0.05)
    guest.stdout = guest.stderr = b""
    run_tests(scripted, kept)
    assert not scripted.open_sandboxes


def test_an_odd_task_ends_the_sandbox(
    scripted: ScriptedDriver, kept: KeptSandboxes[JudgingGuest], guest: Guest
) -> None:
    """A sandbox is closed after a task that ended without a proper verdict, or if its guest cannot fork."""
    assert [run_tests(scripted, kept, is_intact=False) for _ in range(2)] == [1, 2]
    assert not scripted.open_sandboxes
    guest.forks = b"0"
    assert [run_tests(scripted, kept) for _ in range(2)] == [3, 4]
    assert not scripted.open_sandboxes


def test_a_sandbox_is_replaced_in_time(
    scripted: ScriptedDriver, kept: KeptSandboxes[JudgingGuest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sandbox is replaced after its last permitted task, and if its lifetime could end during the next task."""
    monkeypatch.setattr(sides, "_MOST_TASKS", 2)
    assert [run_tests(scripted, kept) for _ in range(4)] == [1, 1, 2, 2]
    monkeypatch.setattr(sides, "_KEPT_SECONDS", 0.0)
    assert [run_tests(scripted, kept) for _ in range(2)] == [3, 4]


def test_the_output_of_each_task_is_limited(
    scripted: ScriptedDriver, kept: KeptSandboxes[JudgingGuest], guest: Guest
) -> None:
    """If a task exceeds its output limit, frames up to the limit are still received, and then its channel ends."""
    guest.stdout = ChannelFrame(SOURCE, bytes(2000)).encode()
    spec = SandboxSpec(image=scripted.resolve_image(DEFAULT_IMAGE), limits=Limits(output=1000))
    side = JudgingSide(scripted, spec, REQUEST, kept)
    channel = side.start()
    channel.receive(time.monotonic() + 5, frozenset({VERDICT}))
    with pytest.raises(ChannelEndedError) as caught:
        channel.receive(time.monotonic() + 5, frozenset({SOURCE}))
    assert caught.value.end is End.OUTPUT_LIMIT
    side.close()


def test_trouble_with_a_kept_sandbox_is_no_tasks_trouble(
    scripted: ScriptedDriver, kept: KeptSandboxes[JudgingGuest]
) -> None:
    """If a kept sandbox has ended, a new one is created. If that fails, the error is raised and no sandbox is left."""
    run_tests(scripted, kept)
    next(iter(scripted.open_sandboxes)).close()
    assert run_tests(scripted, kept) == 2
    next(iter(scripted.open_sandboxes)).close()
    scripted.fail_next(EngineError("gone"))
    with pytest.raises(InfrastructureError):
        run_tests(scripted, kept)
