"""All checks together. Each check has one finding within a time limit. A check may fail or hang."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from fake_machine import DOCKER, PROVED, FakeMachine
from securebench.doctor import State, examine
from securebench.doctor.examination import CHECKS
from securebench.doctor.this_machine import ThisMachine
from securebench.errors import EngineError
from securebench.sandboxes.oci.isolation import Isolation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.doctor.model import EngineFacts, Report
    from securebench.sandboxes.base import DriverInfo


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Yield an event that hanging machines wait for. It is set after the test, so that their threads end."""
    event = threading.Event()
    yield event
    event.set()


def states(report: Report) -> dict[str, State]:
    """Return the state of each finding, by the name of the finding."""
    return {finding.name: finding.state for finding in report.findings}


def test_a_machine_where_all_is_well_is_reported_so() -> None:
    """Each check has one finding, in order and in state OK, and the report names the chosen driver."""
    report = examine(FakeMachine())
    assert [finding.name for finding in report.findings] == list(CHECKS)
    assert set(states(report).values()) == {State.OK}
    assert (report.driver, report.can_run) == ("oci", True)


def test_a_machine_where_nothing_can_run_is_reported_so() -> None:
    """A machine can run tasks if a driver can be chosen, even if Docker Engine is missing."""
    assert examine(FakeMachine(docker=EngineError("none"))).can_run
    report = examine(FakeMachine(auto=EngineError("no driver"), proved=EngineError("no crun")))
    assert not report.can_run
    assert report.driver == ""


def test_a_weaker_driver_that_can_be_asked_for_is_said() -> None:
    """If ``auto`` chooses no driver, but a weaker oci driver works, the report says how to choose it by name."""
    report = examine(FakeMachine(auto=EngineError("weaker"), proved=Isolation((), ("memory",))))
    assert (report.driver, report.can_run) == ("", True)
    (found,) = [finding for finding in report.findings if finding.name == "driver"]
    assert found.state is State.WEAKER
    assert "memory" in found.meaning
    assert "--driver oci" in found.fix


def test_docker_instead_is_reported() -> None:
    """If ``auto`` chooses Docker because the oci driver does not work, the report names Docker as the driver."""
    assert examine(FakeMachine(auto=(DOCKER, "no crun"), proved=EngineError("no crun"))).driver == "docker"


@pytest.mark.parametrize("error", [EngineError("broken", hint="mend it"), OSError("broken"), KeyError("broken")])
def test_whatever_a_check_raises_is_its_finding(error: Exception) -> None:
    """An exception in one check becomes the finding of that check and does not affect the others."""
    report = examine(FakeMachine(library=error))
    (found,) = [finding for finding in report.findings if finding.state is not State.OK]
    assert found.name == "seccomp"
    assert "broken" in found.found


class Hanging(FakeMachine):
    """A machine whose engine does not answer before the test ends."""

    event: threading.Event

    def engine(self) -> EngineFacts:
        """Wait until the test ends, at most 20 seconds."""
        self.event.wait(20)
        return super().engine()


def test_an_engine_that_hangs_is_said_and_not_waited_for(release: threading.Event) -> None:
    """An engine that does not answer in time is reported in its own finding, without further waiting."""
    machine = Hanging()
    machine.event = release
    started = time.monotonic()
    report = examine(machine, seconds=0.3)
    took = time.monotonic() - started
    assert took < 15
    (found,) = [finding for finding in report.findings if finding.state is not State.OK]
    assert found.name == "docker_engine"
    assert found.found.startswith("no answer within ")
    assert 0.3 <= float(found.found.split()[3]) <= took + 0.1
    assert "DOCKER_HOST" in found.meaning
    assert report.can_run


def test_a_choice_that_hangs_with_the_engine_is_none(release: threading.Event) -> None:
    """If choosing a driver hangs, the report names the oci driver if it enforces everything, and otherwise none."""

    class OnlyEngine(Hanging):
        def chosen(self) -> tuple[DriverInfo, str]:
            self.event.wait(20)
            return super().chosen()

    for proved, driver in ((EngineError("no crun"), ""), (PROVED, "oci")):
        machine = OnlyEngine(proved=proved)
        machine.event = release
        started = time.monotonic()
        report = examine(machine, seconds=0.3)
        assert time.monotonic() - started < 15
        assert (report.driver, report.can_run) == (driver, bool(driver))


def test_a_sandbox_that_takes_long_is_waited_for() -> None:
    """Creating a sandbox may take longer than the time limit, because it is slow on a busy machine."""

    class Busy(FakeMachine):
        def isolation(self) -> Isolation:
            time.sleep(0.5)
            return super().isolation()

        def chosen(self) -> tuple[DriverInfo, str]:
            time.sleep(0.55)
            return super().chosen()

    assert examine(Busy(), seconds=0.2).driver == "oci"


def test_this_machine_is_examined_in_time() -> None:
    """The checks of the real machine end within a minute, none fails unexpectedly, and Python and the clock are OK."""
    started = time.monotonic()
    report = examine(ThisMachine(), seconds=10)
    assert time.monotonic() - started < 60
    assert not [found for found in report.findings if found.found.startswith("the check failed: ")]
    known = states(report)
    assert known["python"] is known["clock"] is State.OK
