"""``scripts/sandboxes.py`` installs what the oci driver needs, and starts an engine only if one is needed."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from scripts.engine import EngineProblem, SetupError
from scripts.sandboxes import Oci, main, prepare_demo, prepare_tests

from fake_programs import FakePrograms, only_these_programs
from scripts import sandboxes
from securebench.errors import EngineError

if TYPE_CHECKING:
    from pathlib import Path

NOBODY_THERE = EngineProblem("no engine answers", replaceable=True)
NAMED = EngineProblem("no engine answers at tcp://elsewhere\n    hint: start it", replaceable=False)
WEAKER = Oci(weaker="no memory (a limit)")
BROKEN = Oci(problem="user namespaces are off")


@dataclass
class Machine:
    """A fake engine set-up, and the state of the machine's oci driver.

    ``problem`` is why no engine answers, ``refusal`` why none can be started. ``ups`` records the calls of ``up``.
    """

    oci: Oci = field(default_factory=Oci)
    problem: EngineProblem | None = NOBODY_THERE
    refusal: str = ""
    ups: list[str] = field(default_factory=list)

    def find_problem(self) -> EngineProblem | None:
        """Return why no engine answers, or ``None`` if one does."""
        return self.problem

    def up(self) -> None:
        """Record the call. Raise ``SetupError`` if there is a ``refusal``."""
        self.ups.append("up")
        if self.refusal:
            raise SetupError(self.refusal)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    """Simulate a Debian machine that has what the oci driver needs, for root. Return its fake programs."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    programs = only_these_programs(tmp_path, monkeypatch)
    programs.borrow("bash", "sh", "env")
    programs.add("id", "echo 0", recorded=False)
    programs.add("apt-get")
    monkeypatch.setattr(sandboxes, "missing_packages", lambda: iter(()))
    return programs


@pytest.fixture
def machine(programs: FakePrograms, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine on which the oci driver works and no engine runs, but one can be started."""
    machine = Machine()
    monkeypatch.setattr(sandboxes, "check_oci", lambda: machine.oci)
    return machine


def test_the_demo_needs_no_engine(machine: Machine, programs: FakePrograms) -> None:
    """If the oci driver works and is not weaker than Docker, nothing is installed or started."""
    assert prepare_demo(machine) == "auto"  # type: ignore[arg-type]  # a stand-in
    assert machine.ups == []
    assert programs.called() == []


def test_what_is_missing_is_installed(
    machine: Machine, programs: FakePrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Debian, apt installs a missing runtime and init without questions, but no engine."""
    monkeypatch.setattr(sandboxes, "missing_packages", lambda: iter(("crun", "tini")))
    prepare_demo(machine)  # type: ignore[arg-type]  # a stand-in
    assert programs.called() == [
        "apt-get -qq update",
        "apt-get -qq install --yes --no-install-recommends crun tini",
    ]


@pytest.mark.parametrize("lacking", ["apt", "root"])
def test_elsewhere_it_says_what_to_install(
    machine: Machine,
    programs: FakePrograms,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lacking: str,
) -> None:
    """Without apt or root access, nothing is installed, and a message names the packages to install."""
    monkeypatch.setattr(sandboxes, "missing_packages", lambda: iter(("crun", "tini", "uidmap")))
    if lacking == "apt":
        (programs.directory / "apt-get").unlink()
    else:
        monkeypatch.setattr(sandboxes, "root_prefix", lambda: None)
    prepare_demo(machine)  # type: ignore[arg-type]  # a stand-in
    assert "apt-get install crun tini uidmap" in capsys.readouterr().err
    assert programs.called() == []


@pytest.mark.parametrize("oci", [WEAKER, BROKEN], ids=["weaker", "broken"])
def test_where_the_oci_driver_would_not_do_the_demo_gets_an_engine(machine: Machine, oci: Oci) -> None:
    """If the oci driver does not work or is weaker than Docker, an engine is started, and ``auto`` selects it."""
    machine.oci = oci
    assert prepare_demo(machine) == "auto"  # type: ignore[arg-type]  # a stand-in
    assert machine.ups == ["up"]


def test_without_an_engine_the_demo_runs_on_what_is_weaker_and_says_so(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """If no engine can be started, the demo uses the weaker oci driver and prints what the driver does not enforce."""
    machine.oci, machine.refusal = WEAKER, "as an administrator, install it"
    assert prepare_demo(machine) == "oci"  # type: ignore[arg-type]  # a stand-in
    shown = capsys.readouterr().err
    assert "no memory (a limit)" in shown
    assert "every record lists what is not enforced" in shown


def test_where_no_sandbox_can_be_made_the_demo_says_why(machine: Machine) -> None:
    """If no driver works, one error contains the reasons for both drivers."""
    machine.oci, machine.refusal = BROKEN, "as an administrator, install it"
    with pytest.raises(SetupError, match=r"user namespaces are off\n  docker: as an administrator"):
        prepare_demo(machine)  # type: ignore[arg-type]  # a stand-in


@pytest.mark.parametrize("problem", [None, NOBODY_THERE], ids=["answers", "to be started"])
def test_the_tests_get_an_engine(machine: Machine, problem: EngineProblem | None) -> None:
    """If an engine answers or can be started, the tests get it, so that they use both drivers."""
    machine.problem = problem
    assert prepare_tests(machine) == ""  # type: ignore[arg-type]  # a stand-in
    assert machine.ups == ["up"]


def test_an_engine_that_was_named_and_does_not_answer_is_not_replaced(machine: Machine) -> None:
    """If the selected engine does not answer, none is started, and the reason is returned as one line."""
    machine.problem = NAMED
    assert prepare_tests(machine) == "no engine answers at tcp://elsewhere hint: start it"  # type: ignore[arg-type]
    assert machine.ups == []


def test_where_no_engine_may_be_installed_the_tests_are_told_why(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without root or sudo, no engine is started, and the reason is returned. The oci driver is then enough."""
    monkeypatch.setattr(sandboxes, "root_prefix", lambda: None)
    assert prepare_tests(machine) == "no engine answers"  # type: ignore[arg-type]  # a stand-in
    assert machine.ups == []


def test_an_engine_that_should_start_and_does_not_fails_the_tests(machine: Machine) -> None:
    """If an engine may be started but does not start, an error is raised, so that no test is skipped unnoticed."""
    machine.refusal = "dockerd ended"
    with pytest.raises(SetupError, match="dockerd ended"):
        prepare_tests(machine)  # type: ignore[arg-type]  # a stand-in


def test_tests_without_any_sandbox_are_refused(machine: Machine) -> None:
    """If neither driver works, an error is raised."""
    machine.problem, machine.oci = NAMED, BROKEN
    with pytest.raises(SetupError, match="user namespaces are off"):
        prepare_tests(machine)  # type: ignore[arg-type]  # a stand-in


def test_what_is_missing_is_found_by_the_products_own_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The packages of a missing runtime and init are returned. An ordinary user needs uidmap, too."""
    from securebench.sandboxes.oci import runtime

    def nothing(*_: object) -> None:
        raise EngineError("not installed", code="runtime-unavailable")

    monkeypatch.setattr(runtime, "find_runtime", nothing)
    monkeypatch.setattr(runtime, "find_init", nothing)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    only_these_programs(tmp_path, monkeypatch)
    assert list(sandboxes.missing_packages()) == ["crun", "tini", "uidmap"]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert list(sandboxes.missing_packages()) == ["crun", "tini"]


@pytest.mark.parametrize("arguments", [[], ["sideways"], ["demo", "test"]])
def test_other_arguments_get_the_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Invalid arguments result in the usage message and exit code 2."""
    assert main(arguments) == 2
    assert "sandboxes demo" in capsys.readouterr().err


def test_an_answer_is_printed_and_an_error_is_one_message(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output contains only the driver's name, so that a script can read it. Errors go to standard error."""
    monkeypatch.setattr(sandboxes, "default_setup", lambda: machine)
    assert main(["demo"]) == 0
    assert capsys.readouterr().out == "auto\n"
    machine.oci, machine.refusal = BROKEN, "no way"
    assert main(["demo"]) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err.splitlines()[-3]) == ("", "error: no driver works on this machine")
