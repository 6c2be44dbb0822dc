"""Getting sandboxes: the oci driver's programs, and an engine only where it takes one."""

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
    """A machine: what its oci driver is, why no engine answers, and whether one can be had. Counts the attempts."""

    oci: Oci = field(default_factory=Oci)
    problem: EngineProblem | None = NOBODY_THERE
    refusal: str = ""
    ups: list[str] = field(default_factory=list)

    def find_problem(self) -> EngineProblem | None:
        """Return why no engine answers."""
        return self.problem

    def up(self) -> None:
        """Get an engine."""
        self.ups.append("up")
        if self.refusal:
            raise SetupError(self.refusal)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    """Give root on a Debian machine that has what the oci driver needs."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    programs = only_these_programs(tmp_path, monkeypatch)
    programs.borrow("bash", "sh", "env")
    programs.add("id", "echo 0", recorded=False)
    programs.add("apt-get")
    monkeypatch.setattr(sandboxes, "missing_packages", lambda: iter(()))
    return programs


@pytest.fixture
def machine(programs: FakePrograms, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Give a machine on which everything works, and no engine runs."""
    machine = Machine()
    monkeypatch.setattr(sandboxes, "check_oci", lambda: machine.oci)
    return machine


def test_the_demo_needs_no_engine(machine: Machine, programs: FakePrograms) -> None:
    """Where the oci driver is strong, nothing is installed, started or asked."""
    assert prepare_demo(machine) == "auto"  # type: ignore[arg-type]  # a stand-in
    assert machine.ups == []
    assert programs.called() == []


def test_what_is_missing_is_installed(
    machine: Machine, programs: FakePrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Debian a runtime and an init come from apt, without a question, and an engine does not."""
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
    """Without apt or a way to be root, nothing is tried; the packages are named."""
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
    """Docker, as before; ``auto`` takes it by itself."""
    machine.oci = oci
    assert prepare_demo(machine) == "auto"  # type: ignore[arg-type]  # a stand-in
    assert machine.ups == ["up"]


def test_without_an_engine_the_demo_runs_on_what_is_weaker_and_says_so(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """An ordinary user of a machine without Docker sees the demo, and what is weaker in it."""
    machine.oci, machine.refusal = WEAKER, "as an administrator, install it"
    assert prepare_demo(machine) == "oci"  # type: ignore[arg-type]  # a stand-in
    shown = capsys.readouterr().err
    assert "no memory (a limit)" in shown
    assert "every record lists what is not enforced" in shown


def test_where_no_sandbox_can_be_made_the_demo_says_why(machine: Machine) -> None:
    """Both reasons stand in the one error."""
    machine.oci, machine.refusal = BROKEN, "as an administrator, install it"
    with pytest.raises(SetupError, match=r"user namespaces are off\n  docker: as an administrator"):
        prepare_demo(machine)  # type: ignore[arg-type]  # a stand-in


@pytest.mark.parametrize("problem", [None, NOBODY_THERE], ids=["answers", "to be started"])
def test_the_tests_get_an_engine(machine: Machine, problem: EngineProblem | None) -> None:
    """Both drivers are tested where both can be had."""
    machine.problem = problem
    assert prepare_tests(machine) == ""  # type: ignore[arg-type]  # a stand-in
    assert machine.ups == ["up"]


def test_an_engine_that_was_named_and_does_not_answer_is_not_replaced(machine: Machine) -> None:
    """With DOCKER_HOST pointing nowhere none is started; the tests are told why, in one line."""
    machine.problem = NAMED
    assert prepare_tests(machine) == "no engine answers at tcp://elsewhere hint: start it"  # type: ignore[arg-type]
    assert machine.ups == []


def test_where_no_engine_may_be_installed_the_tests_are_told_why(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary user without sudo tests on the oci driver."""
    monkeypatch.setattr(sandboxes, "root_prefix", lambda: None)
    assert prepare_tests(machine) == "no engine answers"  # type: ignore[arg-type]  # a stand-in
    assert machine.ups == []


def test_an_engine_that_should_start_and_does_not_fails_the_tests(machine: Machine) -> None:
    """It never goes unnoticed that half of the tests did not run."""
    machine.refusal = "dockerd ended"
    with pytest.raises(SetupError, match="dockerd ended"):
        prepare_tests(machine)  # type: ignore[arg-type]  # a stand-in


def test_tests_without_any_sandbox_are_refused(machine: Machine) -> None:
    """A machine that can make none tests nothing that matters."""
    machine.problem, machine.oci = NAMED, BROKEN
    with pytest.raises(SetupError, match="user namespaces are off"):
        prepare_tests(machine)  # type: ignore[arg-type]  # a stand-in


def test_what_is_missing_is_found_by_the_products_own_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A runtime and an init that are not there are named as packages; an ordinary user needs uidmap, too."""
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
    """Exit code 2, and what the script does."""
    assert main(arguments) == 2
    assert "sandboxes demo" in capsys.readouterr().err


def test_an_answer_is_printed_and_an_error_is_one_message(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer alone is on standard output, for a script to take."""
    monkeypatch.setattr(sandboxes, "default_setup", lambda: machine)
    assert main(["demo"]) == 0
    assert capsys.readouterr().out == "auto\n"
    machine.oci, machine.refusal = BROKEN, "no way"
    assert main(["demo"]) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err.splitlines()[-3]) == ("", "error: no driver works on this machine")
