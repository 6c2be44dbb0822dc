"""The checks of Python, disk space, workers, images, agent programs, network and clock, in each state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fake_machine import NOW, FakeMachine
from securebench.doctor import State
from securebench.doctor.place_checks import (
    agents,
    base_images,
    build_tools,
    clock,
    package_mirror,
    python,
    registry,
    room_for_images,
    room_here,
    workers,
)
from securebench.errors import EngineError, ImageError, InfrastructureError

if TYPE_CHECKING:
    from securebench.doctor.model import ClockFacts


def test_the_interpreter_is_named() -> None:
    """The interpreter is reported with version and path, because a machine may have several."""
    assert python(FakeMachine()).found == "3.11.7, /usr/bin/python3"


@pytest.mark.parametrize(
    ("free", "state"), [(10**11, State.OK), (10**9, State.WEAKER), (10**8, State.MISSING), (0, State.MISSING)]
)
def test_room_is_measured(free: int, state: State) -> None:
    """I11: too little disk space is reported with the directory and a fix, before it makes a run fail."""
    for check, place in ((room_for_images, "/var/lib/images"), (room_here, "/home/user")):
        found = check(FakeMachine(free=free))
        assert found.state is state
        assert place in found.found
        assert bool(found.fix) == (state is not State.OK)


def test_the_workers_of_auto_are_shown_with_the_bound_that_decides() -> None:
    """A machine with four cores runs four tasks at once, and the finding names cores as the limit."""
    assert workers(FakeMachine()).found.startswith("auto: 4 workers, limited by cores (other limits: memory 7, ")


def test_a_place_that_cannot_be_written_is_missing() -> None:
    """An image store that this user cannot write to is reported as missing, even if it has space."""
    found = room_for_images(FakeMachine(writable=False))
    assert found.state is State.MISSING
    assert "SECUREBENCH_IMAGES" in found.fix


def test_images_are_in_the_store_or_in_the_engine() -> None:
    """An image that only the engine has counts as available: its first use copies it into the store."""
    name = frozenset({"securebench/python:3.11"})
    assert base_images(FakeMachine()).state is State.OK
    assert base_images(FakeMachine(stored=frozenset(), in_engine=name)).state is State.OK
    for engine in (frozenset[str](), EngineError("no engine")):
        found = base_images(FakeMachine(stored=frozenset(), in_engine=engine))
        assert found.state is State.MISSING
        assert found.fix.startswith("securebench images build")


def test_an_engine_is_not_asked_for_what_the_store_has() -> None:
    """If the store has an image, the engine is not asked: an engine that hangs does not matter."""
    assert base_images(FakeMachine(in_engine=RuntimeError("asked"))).state is State.OK


def test_what_builds_images_is_looked_for() -> None:
    """If mmdebstrap, which builds images without a registry, is missing, the fix installs it."""
    assert build_tools(FakeMachine()).state is State.OK
    found = build_tools(FakeMachine(is_root=False, programs=frozenset({"apt-get"})))
    assert found.state is State.MISSING
    assert found.fix == "sudo apt-get install mmdebstrap debian-archive-keyring"


def test_the_network_is_told() -> None:
    """J19: a registry or a package mirror that cannot be reached is reported as missing."""
    assert registry(FakeMachine()).state is State.OK
    assert package_mirror(FakeMachine()).state is State.OK
    found = registry(FakeMachine(registry_answer=ImageError("cannot be reached", hint="HTTPS_PROXY")))
    assert (found.state, found.fix) == (State.MISSING, "HTTPS_PROXY")
    assert package_mirror(FakeMachine(mirror=OSError("unreachable"))).state is State.MISSING
    assert package_mirror(FakeMachine(mirror=LookupError("no apt"))).state is State.MISSING


def test_a_clock_that_agrees_is_fine() -> None:
    """A clock that differs by a second from new files, or jumps by 10 ms, is reported as OK."""
    assert clock(FakeMachine(time=replace(NOW, written=2e9 - 1, jumped=0.01))).state is State.OK


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (replace(NOW, installed=2e9 + 10 * 86400), "10 days before"),
        (replace(NOW, written=2e9 - 90), "90 s from the time of new files"),
        (replace(NOW, jumped=-3600.0), "jumped by -3600.0 s"),
    ],
)
def test_a_clock_that_is_wrong_is_told(facts: ClockFacts, expected: str) -> None:
    """A clock before the installation date, one that jumps, and one that differs from new files are each reported."""
    found = clock(FakeMachine(time=facts))
    assert found.state is State.WEAKER
    assert expected in found.found


def test_agents_that_are_installed_need_no_registry() -> None:
    """If all agent programs are installed, the npm registry is not asked."""
    found = agents(FakeMachine(npm=AssertionError("asked")))
    assert (found.state, found.found) == (State.OK, "codex, claude_code")


def test_agents_that_are_not_installed_are_well_where_a_registry_answers() -> None:
    """A missing agent program is OK if the npm registry answers, because a run installs the program."""
    found = agents(FakeMachine(installed_agents=frozenset({"codex"})))
    assert (found.state, found.found) == (State.OK, "claude_code not installed; npm answers")


def test_agents_that_cannot_be_had_are_missing() -> None:
    """If a program is missing and the npm registry does not answer, the fix installs the program from a file."""
    silent = InfrastructureError("the npm registry does not serve", code="agent-unavailable")
    found = agents(FakeMachine(installed_agents=frozenset(), npm=silent))
    assert found.state is State.MISSING
    assert "codex, claude_code not installed, and the npm registry does not serve" in found.found
    assert found.fix == "securebench agents install --from FILE"
