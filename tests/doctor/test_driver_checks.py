"""The drivers and what they stand on, in each state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fake_machine import DOCKER, RUNTIMES, FakeMachine
from securebench.doctor import State
from securebench.doctor.driver_checks import chosen_driver, crun, docker_engine, init, oci_driver, runc, runsc
from securebench.doctor.model import EngineFacts
from securebench.errors import EngineError, InfrastructureError
from securebench.sandboxes.oci.isolation import Isolation


@pytest.mark.parametrize("check", [crun, runc, runsc])
def test_a_runtime_is_there_or_can_be_installed(check: object) -> None:
    """I03: each runtime has its version, or the command that installs it."""
    assert callable(check)
    assert check(FakeMachine()).state is State.OK
    missing = check(FakeMachine(runtimes={}))
    assert missing.state is State.MISSING
    assert missing.fix == f"apt-get install {missing.name}"


def test_a_runtime_that_is_too_old_is_weaker() -> None:
    """I03: a version with known container escapes is reported."""
    old = replace(RUNTIMES["runc"], version="1.1.5")
    found = runc(FakeMachine(runtimes={"runc": old}))
    assert found.state is State.WEAKER
    assert "1.1.12" in found.meaning
    assert found.fix == "apt-get install --only-upgrade runc"
    user = FakeMachine(runtimes={"runc": old}, is_root=False)
    assert runc(user).fix == "sudo apt-get install --only-upgrade runc"


def test_a_system_without_apt_is_told_the_packages() -> None:
    """No command is shown that is not there."""
    assert init(FakeMachine(init_path=EngineError("no init"), programs=frozenset())).fix == (
        "install tini with this system's package manager"
    )


def test_the_init_is_there_or_can_be_installed() -> None:
    """The first process of each sandbox is a program of this machine."""
    assert init(FakeMachine()).found == "/usr/bin/tini-static"
    found = init(FakeMachine(init_path=EngineError("no init")))
    assert (found.state, found.found) == (State.MISSING, "no init")


def test_a_sandbox_that_is_held_to_everything_is_fine() -> None:
    """Nothing is weaker: so the driver is as strong as it gets."""
    assert oci_driver(FakeMachine()).state is State.OK


def test_what_a_sandbox_lacks_is_named() -> None:
    """Each thing that is weaker is there by name, and in words."""
    found = oci_driver(FakeMachine(proved=Isolation((), ("memory", "groups"))))
    assert found.state is State.WEAKER
    assert found.meaning == "not enforced: memory limit, dropping your supplementary groups"


def test_a_sandbox_that_cannot_be_made_says_why() -> None:
    """The driver's own error and hint are what is shown."""
    for kind in (EngineError, InfrastructureError):
        found = oci_driver(FakeMachine(proved=kind("no supervisor", hint="do this")))
        assert (found.state, found.found, found.fix) == (State.MISSING, "no supervisor", "do this")


def test_an_engine_is_described() -> None:
    """Version, place, cgroups and runtimes are told, and that Docker's defaults have no user namespace."""
    found = docker_engine(FakeMachine())
    assert found.state is State.OK
    assert found.found == "27.0.3 at unix:///run/docker.sock; cgroups v2; runtimes runc, runsc"
    assert "without a user namespace" in found.meaning


def test_an_engine_without_limits_is_weaker() -> None:
    """I09: an engine on a machine whose limits do not hold is not as good as any."""
    engine = EngineFacts("unix:///x", replace(DOCKER, weaker=("user-namespace", "memory")), ())
    found = docker_engine(FakeMachine(docker=engine))
    assert found.state is State.WEAKER
    assert "memory" in found.meaning
    assert "user-namespace" not in found.meaning


def test_no_engine_is_missing() -> None:
    """The connection's error says what was tried."""
    found = docker_engine(FakeMachine(docker=EngineError("Tried unix:///x", hint="install it")))
    assert (found.state, found.found, found.fix) == (State.MISSING, "Tried unix:///x", "install it")


def test_what_auto_takes_is_told_with_the_reason() -> None:
    """The choice is the one of a run, and so are its words."""
    assert chosen_driver(FakeMachine()).found == "oci (crun 1.14)"
    instead = chosen_driver(FakeMachine(auto=(DOCKER, "using Docker instead of the oci driver: no crun")))
    assert instead.found == "docker (runc 27.0.3)"
    assert "no crun" in instead.meaning


def test_no_driver_at_all_says_how_to_get_one() -> None:
    """The reasons have lines of their own: this one has the shortest way."""
    nothing = chosen_driver(FakeMachine(auto=EngineError("oci: ... docker: ...", code="driver-unavailable")))
    assert (nothing.state, nothing.meaning) == (State.MISSING, "no run is possible on this machine")
    assert nothing.fix == "apt-get install crun tini"
    assert "..." not in nothing.found
    broken = chosen_driver(FakeMachine(auto=InfrastructureError("broken", hint="mend it")))
    assert (broken.state, broken.found, broken.fix) == (State.MISSING, "broken", "mend it")
