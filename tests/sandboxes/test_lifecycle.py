"""The life cycle of a sandbox: what is refused after it is closed or stopped, and races while something starts."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import pytest

from securebench.errors import EngineError, InfrastructureError
from securebench.images.model import ResolvedImage
from securebench.sandboxes.base import Command, SandboxProcess, SandboxSpec
from securebench.sandboxes.lifecycle import DriverSandbox, OpenSandboxes, claim

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND = Command(argv=("true",), timeout_seconds=1)
SPEC = SandboxSpec(image=ResolvedImage("i", "sha256:0", {}, "amd64"))


class PlayedProcess:
    """A fake process that records only whether it was ended."""

    ended = False


class PlayedSandbox(DriverSandbox[SandboxProcess]):
    """A sandbox without a container. It calls ``meanwhile`` while it is prepared and while a command starts."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self, siblings: OpenSandboxes[Any], spec: SandboxSpec = SPEC) -> None:
        self.started: list[PlayedProcess] = []
        self.containers_ended = 0
        super().__init__(siblings, spec)

    def collected(self) -> Any:
        """Collect nothing."""

    def _prepare(self) -> None:
        self.meanwhile()

    def _start_command(self, command: Command) -> SandboxProcess:
        self.meanwhile()
        self.started.append(PlayedProcess())
        return cast("SandboxProcess", self.started[-1])

    def _end_commands(self) -> None:
        for process in cast("set[PlayedProcess]", self._running):
            process.ended = True

    def _end_container(self) -> None:
        self.containers_ended += 1


def test_what_is_closed_starts_nothing() -> None:
    """Closing a sandbox ends its commands and container. Closing it again does nothing.

    A closed sandbox starts no command.
    """
    siblings: OpenSandboxes[PlayedSandbox] = OpenSandboxes()
    sandbox = PlayedSandbox(siblings)
    sandbox.open(COMMAND)
    sandbox.close()
    sandbox.close()
    assert sandbox.started[0].ended
    assert sandbox.containers_ended == 1
    with pytest.raises(InfrastructureError) as raised:
        sandbox.open(COMMAND)
    assert raised.value.code == "sandbox-closed"
    assert siblings.stop() == set()


def test_a_stopped_run_starts_nothing() -> None:
    """A stopped run creates no sandbox and starts no command. ``stop`` returns the open sandboxes."""
    siblings: OpenSandboxes[PlayedSandbox] = OpenSandboxes()
    sandbox = PlayedSandbox(siblings)
    assert siblings.stop() == {sandbox}
    for start in (lambda: sandbox.open(COMMAND), lambda: PlayedSandbox(siblings)):
        with pytest.raises(EngineError) as raised:
            start()
        assert raised.value.code == "run-stopped"
    assert sandbox.started == []


def test_a_stop_while_a_sandbox_is_prepared_ends_it() -> None:
    """If a run stops while a sandbox is prepared, its creator ends it, because ``stop`` does not return it yet."""
    siblings: OpenSandboxes[PlayedSandbox] = OpenSandboxes()
    made: list[PlayedSandbox] = []

    class Stopped(PlayedSandbox):
        def meanwhile(self) -> None:
            made.append(self)
            assert siblings.stop() == set()

    with pytest.raises(EngineError, match="stopped"):
        Stopped(siblings)
    assert made[0].containers_ended == 1


@pytest.mark.parametrize("how", ["closed", "stopped"])
def test_a_command_that_is_started_while_its_sandbox_closes_is_ended(how: str) -> None:
    """A command that starts while its sandbox is closed or stopped is ended by the call that started it."""
    siblings: OpenSandboxes[PlayedSandbox] = OpenSandboxes()
    sandbox = PlayedSandbox(siblings)
    sandbox.meanwhile = sandbox.close if how == "closed" else siblings.stop
    with pytest.raises(InfrastructureError, match=how):
        sandbox.open(COMMAND)
    assert sandbox.started[0].ended
    assert sandbox.containers_ended == 1


def test_a_sandbox_that_collects_runs_one_command() -> None:
    """A sandbox that collects changes refuses a second command, whose changes would mix with those of the first."""
    sandbox = PlayedSandbox(OpenSandboxes(), SandboxSpec(image=SPEC.image, collect="/app"))
    sandbox.open(COMMAND)
    with pytest.raises(InfrastructureError, match="one command"):
        sandbox.open(COMMAND)


def test_one_thread_claims() -> None:
    """If several threads claim the same item at the same time, exactly one succeeds."""
    held, won, ready = {1}, list[int](), threading.Barrier(8)

    def compete(number: int) -> None:
        ready.wait()
        if claim(held, 1):
            won.append(number)

    threads = [threading.Thread(target=compete, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
