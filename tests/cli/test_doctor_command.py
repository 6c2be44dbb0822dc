"""Tests of ``securebench doctor``: its output on pipes and terminals, and its exit codes."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from click.testing import CliRunner

from fake_machine import FakeMachine
from pseudo_terminals import shown_on
from securebench.cli import cli
from securebench.doctor import State
from securebench.errors import EngineError
from securebench.sandboxes.oci.isolation import Isolation

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from click.testing import Result

RUN = "import sys; from securebench.cli import process; sys.argv[1:] = ['doctor', *sys.argv[1:]]; process()"


def doctor(monkeypatch: pytest.MonkeyPatch, machine: FakeMachine, *options: str) -> Result:
    """Run ``securebench doctor`` on a fake machine."""
    monkeypatch.setattr("securebench.doctor.this_machine.ThisMachine", lambda: machine)
    return CliRunner().invoke(cli, ["doctor", *options])


def test_each_thing_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each check has a line with its state, name, finding and fix. The last line names the driver that runs use."""
    machine = FakeMachine(is_root=False, proved=Isolation((), ("memory",)), programs=frozenset({"apt-get"}))
    result = doctor(monkeypatch, machine)
    lines = result.stdout.splitlines()
    assert "missing\tbuild_tools\t" in result.stdout
    assert any(line.startswith("weaker\toci_driver\t") and "memory" in line for line in lines)
    assert next(line for line in lines if "\tbuild_tools\t" in line).endswith(
        "\tsudo apt-get install mmdebstrap debian-archive-keyring"
    )
    assert lines[-1] == "runs use the oci driver on this machine"
    assert result.exit_code == 0


def test_nothing_that_can_run_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no driver works, the exit code is 1, so that a script can check this before it starts a run."""
    without = EngineError("no driver", code="driver-unavailable")
    result = doctor(monkeypatch, FakeMachine(auto=without, proved=EngineError("no crun")))
    assert result.exit_code == 1
    assert "no run is possible" in result.stdout.splitlines()[-1]
    assert "apt-get install crun tini" in result.stdout


def test_a_program_gets_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``--json``, the report has the documented fields, whether or not a run is possible."""
    result = doctor(monkeypatch, FakeMachine(), "--json")
    report = json.loads(result.stdout)
    assert (report["can_run"], report["driver"]) == (True, "oci")
    assert all(list(check) == ["name", "state", "found", "meaning", "fix"] for check in report["checks"])
    assert {check["state"] for check in report["checks"]} <= set(State)
    machine = FakeMachine(auto=EngineError("no"), proved=EngineError("no"))
    nothing = json.loads(doctor(monkeypatch, machine, "--json").stdout)
    assert (nothing["can_run"], nothing["driver"]) == (False, None)


def test_a_driver_that_has_to_be_asked_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """If ``auto`` chooses no driver but the oci driver works, the last line recommends ``--driver oci``."""
    result = doctor(monkeypatch, FakeMachine(auto=EngineError("weaker"), proved=Isolation((), ("memory",))))
    assert result.exit_code == 0
    assert "choose it with --driver oci" in result.stdout.splitlines()[-1]


def test_what_an_engine_says_is_not_obeyed_by_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """H09: control characters and line breaks in the message of an engine are escaped."""
    result = doctor(monkeypatch, FakeMachine(docker=EngineError("\x1b[2J\nok\tdocker_engine\tfine")))
    assert "\x1b" not in result.stdout
    assert sum("docker_engine" in line for line in result.stdout.splitlines()) == 1


def test_a_terminal_gets_a_table_with_colours(tmp_path: Path) -> None:
    """On a terminal, the output is a table in which states have colours."""
    parent, child = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "160"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen([sys.executable, "-c", RUN], stdout=child, stderr=child, cwd=tmp_path, env=environment)
    os.close(child)
    text = shown_on(parent)
    os.close(parent)
    assert process.wait(timeout=60) in (0, 1)
    assert "\x1b[32mok" in text
    assert "docker engine" in text


def test_an_engine_that_hangs_costs_no_time(tmp_path: Path) -> None:
    """An engine that accepts a connection and never answers is reported as missing, and the process ends in time."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment = os.environ | {"DOCKER_HOST": f"tcp://127.0.0.1:{silent.getsockname()[1]}"}
        started = time.monotonic()
        command = [sys.executable, "-c", RUN, "--json"]
        done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment, timeout=60, check=False)
        assert time.monotonic() - started < 50
    report = json.loads(done.stdout)
    checks = {check["name"]: check for check in report["checks"]}
    assert checks["docker_engine"]["state"] == "missing"
    assert "no answer within" in checks["docker_engine"]["found"]
    assert done.returncode == (0 if report["can_run"] else 1)
