"""The checks of the drivers and of the programs that they need, in each state."""

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
    """I03: a runtime is reported as available, or as missing with the command that installs it."""
    assert callable(check)
    assert check(FakeMachine()).state is State.OK
    missing = check(FakeMachine(runtimes={}))
    assert missing.state is State.MISSING
    assert missing.fix == f"apt-get install {missing.name}"


def test_a_runtime_that_is_too_old_is_weaker() -> None:
    """I03: a version with known container escapes is reported as weaker, with the command that upgrades it."""
    old = replace(RUNTIMES["runc"], version="1.1.5")
    found = runc(FakeMachine(runtimes={"runc": old}))
    assert found.state is State.WEAKER
    assert "1.1.12" in found.meaning
    assert found.fix == "apt-get install --only-upgrade runc"
    user = FakeMachine(runtimes={"runc": old}, is_root=False)
    assert runc(user).fix == "sudo apt-get install --only-upgrade runc"


def test_a_system_without_apt_is_told_the_packages() -> None:
    """Without apt-get, the fix names the package and shows no apt-get command."""
    assert init(FakeMachine(init_path=EngineError("no init"), programs=frozenset())).fix == (
        "install tini with this system's package manager"
    )


def test_the_init_is_there_or_can_be_installed() -> None:
    """The init, which is the first process of each sandbox, is reported with its path, or as missing."""
    assert init(FakeMachine()).found == "/usr/bin/tini-static"
    found = init(FakeMachine(init_path=EngineError("no init")))
    assert (found.state, found.found) == (State.MISSING, "no init")


def test_a_sandbox_that_is_held_to_everything_is_fine() -> None:
    """The oci driver is reported as OK if every restriction is enforced in its sandbox."""
    assert oci_driver(FakeMachine()).state is State.OK


def test_what_a_sandbox_lacks_is_named() -> None:
    """The finding describes in words each restriction that the oci driver does not enforce."""
    found = oci_driver(FakeMachine(proved=Isolation((), ("memory", "groups"))))
    assert found.state is State.WEAKER
    assert found.meaning == "not enforced: memory limit, dropping your supplementary groups"


def test_a_sandbox_that_cannot_be_made_says_why() -> None:
    """If the oci driver cannot create a sandbox, the finding shows the driver's error and hint."""
    for kind in (EngineError, InfrastructureError):
        found = oci_driver(FakeMachine(proved=kind("no supervisor", hint="do this")))
        assert (found.state, found.found, found.fix) == (State.MISSING, "no supervisor", "do this")


def test_an_engine_is_described() -> None:
    """The finding has the engine's version, address, cgroups and runtimes, and says that no user namespace is used."""
    found = docker_engine(FakeMachine())
    assert found.state is State.OK
    assert found.found == "27.0.3 at unix:///run/docker.sock; cgroups v2; runtimes runc, runsc"
    assert "without a user namespace" in found.meaning


def test_an_engine_without_limits_is_weaker() -> None:
    """I09: an engine that cannot enforce the memory limit is reported as weaker, with the name of the limit."""
    engine = EngineFacts("unix:///x", replace(DOCKER, weaker=("user-namespace", "memory")), ())
    found = docker_engine(FakeMachine(docker=engine))
    assert found.state is State.WEAKER
    assert "memory" in found.meaning
    assert "user-namespace" not in found.meaning


def test_no_engine_is_missing() -> None:
    """If no engine answers, the finding shows the error and the hint of the connection."""
    found = docker_engine(FakeMachine(docker=EngineError("Tried unix:///x", hint="install it")))
    assert (found.state, found.found, found.fix) == (State.MISSING, "Tried unix:///x", "install it")


def test_what_auto_takes_is_told_with_the_reason() -> None:
    """The finding shows the driver that a run with ``auto`` would choose, and why it is not the oci driver."""
    assert chosen_driver(FakeMachine()).found == "oci (crun 1.14)"
    instead = chosen_driver(FakeMachine(auto=(DOCKER, "using Docker instead of the oci driver: no crun")))
    assert instead.found == "docker (runc 27.0.3)"
    assert "no crun" in instead.meaning


def test_no_driver_at_all_says_how_to_get_one() -> None:
    """If no driver works, the fix is a command that installs one. Any other error is shown with its hint.

    The finding does not repeat why each driver does not work: the findings of the two drivers say so.
    """
    nothing = chosen_driver(FakeMachine(auto=EngineError("oci: ... docker: ...", code="driver-unavailable")))
    assert (nothing.state, nothing.meaning) == (State.MISSING, "no run is possible on this machine")
    assert nothing.fix == "apt-get install crun tini"
    assert "..." not in nothing.found
    broken = chosen_driver(FakeMachine(auto=InfrastructureError("broken", hint="mend it")))
    assert (broken.state, broken.found, broken.fix) == (State.MISSING, "broken", "mend it")
