"""Selecting a driver: a driver that the user names is used. ``auto`` selects ``oci`` if it enforces everything.

Otherwise, ``auto`` selects Docker and gives the reason.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from securebench.errors import EngineError, InfrastructureError
from securebench.sandboxes import oci
from securebench.sandboxes.docker import driver as docker_driver_module
from securebench.sandboxes.docker.driver import DockerDriver
from securebench.sandboxes.oci import OciDriver
from securebench.sandboxes.select import open_driver

NO_CRUN = EngineError("crun is not installed", code="runtime-unavailable", hint="apt-get install crun")
NO_ENGINE = EngineError("no Docker Engine answers", hint="install one")


class Machine:
    """A simulated machine on which each driver works or fails. Records opened and closed drivers, and messages."""

    def __init__(self) -> None:
        self.weaker: tuple[str, ...] = ()
        self.no_oci: EngineError | None = None
        self.unproven: InfrastructureError | None = None
        self.no_docker: EngineError | None = None
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.messages: list[str] = []

    def oci(self) -> type[OciDriver]:
        """Return a class that stands in for the oci driver."""
        machine = self

        class Oci(OciDriver):
            name = "oci"

            def __init__(self, *, runtime: str | None = None, **_: object) -> None:
                if machine.no_oci:
                    raise machine.no_oci
                machine.opened.append(f"oci {runtime}")

            def prove(self) -> Any:
                return machine._prove()

            def close(self) -> None:
                machine.closed.append("oci")

        return Oci

    def docker(self) -> type[DockerDriver]:
        """Return a class that stands in for the Docker driver."""
        machine = self

        class Docker(DockerDriver):
            name = "docker"

            def __init__(self, *, run_id: str = "", runtime: str | None = None, **_: object) -> None:
                if machine.no_docker:
                    raise machine.no_docker
                machine.opened.append(f"docker {runtime} {run_id}")

        return Docker

    def open(self, driver: str, runtime: str | None = None) -> Any:
        """Open a driver."""
        return open_driver(driver, runtime, "run", self.messages.append)

    def _prove(self) -> Any:
        if self.unproven:
            raise self.unproven
        return SimpleNamespace(enforced=(), weaker=self.weaker)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a simulated machine on which both drivers work."""
    machine = Machine()
    monkeypatch.setattr(oci, "OciDriver", machine.oci())
    monkeypatch.setattr(docker_driver_module, "DockerDriver", machine.docker())
    return machine


@pytest.mark.parametrize("name", ["docker", "oci"])
def test_a_named_driver_is_used(machine: Machine, name: str) -> None:
    """Only the named driver is opened, with the named runtime. The Docker driver also gets the run id, for labels."""
    assert machine.open(name, "runsc").name == name
    assert machine.opened == [{"docker": "docker runsc run", "oci": "oci runsc"}[name]]
    assert machine.messages == []


def test_auto_selects_oci_if_nothing_is_weaker(machine: Machine) -> None:
    """``auto`` selects ``oci``, the faster driver, if it enforces everything, and does not open the Docker driver."""
    assert machine.open("auto").name == "oci"
    assert machine.opened == ["oci None"]
    assert machine.messages == []


def test_auto_selects_docker_if_oci_is_weaker(machine: Machine) -> None:
    """If the ``oci`` driver does not enforce every limit, ``auto`` selects Docker and gives the reason."""
    machine.weaker = ("memory", "pids")
    assert machine.open("auto").name == "docker"
    assert machine.closed == ["oci"]
    assert "using Docker" in machine.messages[0]
    assert "Not enforced: memory limit, process limit" in machine.messages[0]


def test_auto_selects_docker_if_the_probe_fails(machine: Machine) -> None:
    """If the ``oci`` driver cannot create its first sandbox, ``auto`` selects Docker and gives the reason."""
    machine.unproven = InfrastructureError("a sandbox could not be made: no overlay")
    assert machine.open("auto").name == "docker"
    assert "no overlay" in machine.messages[0]
    assert machine.closed == ["oci"]


@pytest.mark.parametrize("problem", ["no_oci", "unproven"])
def test_auto_selects_docker_if_oci_is_unavailable(machine: Machine, problem: str) -> None:
    """If ``oci`` has no runtime or its probe fails, ``auto`` selects Docker and gives the reason."""
    setattr(machine, problem, NO_CRUN)
    assert machine.open("auto").name == "docker"
    assert "crun is not installed" in machine.messages[0]
    assert machine.closed == (["oci"] if problem == "unproven" else [])


@pytest.mark.parametrize("why", ["missing", "weaker"])
def test_if_neither_works_both_reasons_are_given(machine: Machine, why: str) -> None:
    """A single error explains why neither driver works and how to fix each."""
    machine.no_docker = NO_ENGINE
    if why == "missing":
        machine.no_oci = NO_CRUN
    else:
        machine.weaker = ("cpu",)
    with pytest.raises(EngineError) as caught:
        machine.open("auto")
    text = str(caught.value)
    assert caught.value.code == "driver-unavailable"
    assert ("apt-get install crun" if why == "missing" else "sandbox.driver: oci") in text
    assert "no Docker Engine answers (install one)" in text
    assert ("securebench doctor" in text) == (why == "missing")
    assert ("securebench run --driver oci" in text) == (why == "weaker")


def test_oci_by_name_may_be_weaker_and_says_so(machine: Machine) -> None:
    """If the user names ``oci``, it is used even if it is weaker, and a message says what is not enforced."""
    machine.weaker = ("groups",)
    assert machine.open("oci").name == "oci"
    assert machine.closed == []
    assert "Not enforced: dropping your supplementary groups" in machine.messages[0]


@pytest.mark.parametrize("problem", ["no_oci", "unproven"])
def test_oci_by_name_is_never_replaced(machine: Machine, problem: str) -> None:
    """If the user names ``oci`` and it fails, its error is raised. No other driver is opened, and none stays open."""
    setattr(machine, problem, NO_CRUN)
    with pytest.raises(EngineError, match="crun is not installed"):
        machine.open("oci")
    assert machine.opened == machine.opened[:1]
    assert len(machine.closed) == len(machine.opened)


def test_an_interrupt_while_proving_leaves_nothing_open(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the driver is probed closes the driver."""

    def interrupted() -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(machine, "_prove", interrupted)
    with pytest.raises(KeyboardInterrupt):
        machine.open("auto")
    assert machine.closed == ["oci"]


def test_every_weakness_has_a_description(machine: Machine) -> None:
    """The message about a weaker driver describes every restriction that can be weaker."""
    from securebench.sandboxes.enforcement import ENFORCEABLE

    machine.weaker = tuple(ENFORCEABLE)
    machine.open("oci")
    assert all(words in machine.messages[0] for words in ENFORCEABLE.values())
