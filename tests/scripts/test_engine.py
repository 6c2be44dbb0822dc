"""``scripts/engine.py`` uses a running engine, or installs and starts one, and stops only what it started."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scripts.engine import EngineProblem, EngineSetup, SetupError, find_problem, main

from fake_programs import FakePrograms, only_these_programs
from scripts import engine

if TYPE_CHECKING:
    from collections.abc import Iterator

# The daemon must keep running after the Popen object that started it is deleted, so this warning is expected.
pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")

NOTHING_THERE = EngineProblem("no engine answers", replaceable=True)
DAEMON = 'echo $$ >"$2"; echo hello from dockerd; touch "{ready}"; while :; do sleep 0.05; done'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    """Simulate a machine without systemd and without an engine, for root. Return its fake programs."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(engine, "SYSTEMD", tmp_path / "no-systemd")
    programs = only_these_programs(tmp_path, monkeypatch)
    monkeypatch.setattr(engine, "_admin_path", lambda: str(programs.directory))
    programs.borrow("bash", "sh", "sleep", "touch", "env", "chmod", "cat")
    programs.add("id", "echo 0", recorded=False)
    return programs


@pytest.fixture
def setup(tmp_path: Path, programs: FakePrograms) -> Iterator[EngineSetup]:
    """Yield the set-up of the simulated machine. Its engine answers once a daemon has created the file ``ready``."""
    ready = tmp_path / "ready"
    setup = EngineSetup(
        state=tmp_path / "state",
        socket=tmp_path / "docker.sock",
        find_problem=lambda: None if ready.exists() else NOTHING_THERE,
    )
    yield setup
    setup.down()


def _install_daemon(programs: FakePrograms, script: str = DAEMON) -> None:
    programs.add("dockerd", script.format(ready=programs.directory.parent / "ready"))


def _pid(setup: EngineSetup) -> int:
    return int(setup.pid_file.read_text())


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_engine_that_answers_is_used(setup: EngineSetup, programs: FakePrograms, tmp_path: Path) -> None:
    """If an engine answers, nothing is installed, started or written."""
    (tmp_path / "ready").touch()
    setup.up()
    assert programs.called() == []
    assert not setup.state.exists()


def test_an_installed_engine_is_started_and_stopped(setup: EngineSetup, programs: FakePrograms) -> None:
    """``up`` starts an installed dockerd without installing anything, and ``down`` stops it."""
    _install_daemon(programs)
    setup.up()
    pid = _pid(setup)
    assert _runs(pid)
    assert programs.called() == [f"dockerd --pidfile {setup.pid_file}"]
    setup.down()
    assert not _runs(pid)
    assert not setup.pid_file.exists()


def test_a_second_up_does_nothing(setup: EngineSetup, programs: FakePrograms) -> None:
    """A second ``up`` uses the engine that the first one started."""
    _install_daemon(programs)
    setup.up()
    setup.up()
    assert len(programs.called()) == 1


def test_the_daemon_holds_nothing_of_who_started_it(setup: EngineSetup, programs: FakePrograms) -> None:
    """The daemon has its own session, no input, and its output in a file. An inherited pipe would make CI wait."""
    _install_daemon(programs)
    setup.up()
    pid = _pid(setup)
    files = {path.name: str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
    # Descriptor 10 is the script of the fake dockerd, which its shell reads.
    assert {name: target for name, target in files.items() if name != "10"} == {
        "0": "/dev/null",
        "1": str(setup.log),
        "2": str(setup.log),
    }
    assert os.getsid(pid) == pid
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    assert setup.log.read_text() == "hello from dockerd\n"


def test_a_missing_engine_is_installed(setup: EngineSetup, programs: FakePrograms) -> None:
    """Without systemd, apt updates its lists and installs docker.io without questions; then dockerd is started."""
    _install_daemon(programs)
    (programs.directory / "dockerd").rename(programs.directory / "later")
    programs.add(
        "apt-get",
        f'case "$*" in *docker.io*) cp="{programs.directory}"; cat "$cp/later" >"$cp/dockerd"; '
        'chmod +x "$cp/dockerd";; esac',
    )
    setup.up()
    assert programs.called() == [
        "apt-get -qq update",
        "apt-get -qq install --yes --no-install-recommends docker.io iptables ca-certificates",
        f"dockerd --pidfile {setup.pid_file}",
    ]


def test_elsewhere_it_says_what_to_do(setup: EngineSetup) -> None:
    """On a machine without apt, the error says how to install an engine."""
    with pytest.raises(SetupError, match=r"neither Debian nor Ubuntu\n.*install and start Docker Engine"):
        setup.up()


def test_a_failed_installation_says_what_to_do(setup: EngineSetup, programs: FakePrograms) -> None:
    """If apt fails, the set-up ends with an error and starts nothing."""
    programs.add("apt-get", "exit 100")
    with pytest.raises(SetupError, match="apt-get could not install docker"):
        setup.up()
    assert programs.called() == ["apt-get -qq update"]


def test_trouble_that_another_engine_would_not_mend_is_told(programs: FakePrograms, tmp_path: Path) -> None:
    """A problem that another engine would not solve is raised, and no engine is started.

    Examples: the user selected an engine that does not answer, or may not use the engine that runs.
    """
    _install_daemon(programs)
    problem = EngineProblem("you may not use it\n    hint: join its group", replaceable=False)
    setup = EngineSetup(state=tmp_path / "state", find_problem=lambda: problem)
    with pytest.raises(SetupError, match="join its group"):
        setup.up()
    assert programs.called() == []


def test_a_daemon_that_ends_at_once_is_reported_with_its_last_words(setup: EngineSetup, programs: FakePrograms) -> None:
    """If dockerd exits early, an error with the end of its output is raised without further waiting."""
    _install_daemon(programs, "echo no cgroup mount; exit 3")
    started = time.monotonic()
    with pytest.raises(SetupError, match="exited with 3:\n    no cgroup mount"):
        setup.up()
    assert time.monotonic() - started < 20


def test_a_daemon_that_never_answers_is_given_up(
    setup: EngineSetup, programs: FakePrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait for an engine is limited. After it has failed, ``down`` still stops the daemon."""
    monkeypatch.setattr(engine, "START_SECONDS", 0.5)
    _install_daemon(programs, 'echo $$ >"$2"; echo waiting; while :; do sleep 0.05; done')
    with pytest.raises(SetupError, match="no engine answers after"):
        setup.up()
    pid = _pid(setup)
    setup.down()
    assert not _runs(pid)


def test_a_daemon_that_does_not_end_is_killed_with_its_containerd(
    setup: EngineSetup, programs: FakePrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If dockerd and its containerd ignore SIGTERM, ``down`` kills both, so that CI never waits for them."""
    monkeypatch.setattr(engine, "STOP_SECONDS", 0.5)
    programs.add("containerd", "trap '' TERM; while :; do sleep 0.05; done")
    _install_daemon(programs, "trap '' TERM; containerd & " + DAEMON)
    setup.up()
    pid = _pid(setup)
    containerd = _child_named(pid, "containerd")
    setup.down()
    time.sleep(0.2)
    assert not _runs(pid)
    assert not _runs(containerd)


def _child_named(parent: int, name: str) -> int:
    """Return the pid of the child process ``name``. Wait for it, because the shell starts it a moment later."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            if Path(f"/proc/{child}/comm").read_text() == f"{name}\n":
                return int(child)
        time.sleep(0.02)
    raise AssertionError(f"{parent} has no child {name}")


def test_only_what_was_started_here_is_stopped(setup: EngineSetup) -> None:
    """If the pid of an ended daemon now belongs to another process, ``down`` does not stop that process."""
    with subprocess.Popen(["sleep", "60"]) as stranger:
        setup.state.mkdir()
        setup.pid_file.write_text(str(stranger.pid))
        setup.down()
        assert stranger.poll() is None
        stranger.kill()


def test_down_without_up_does_nothing(setup: EngineSetup, programs: FakePrograms) -> None:
    """``down`` runs no program if ``up`` was never called."""
    setup.down()
    assert programs.called() == []


def test_under_systemd_the_service_is_started_and_stopped(
    setup: EngineSetup, programs: FakePrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``up`` starts docker.service. ``down`` stops only the units that were not running before ``up``."""
    monkeypatch.setattr(engine, "SYSTEMD", tmp_path)
    programs.add("dockerd", "exit 1")
    programs.add(
        "systemctl",
        f'case "$*" in *is-active*containerd*) exit 0;; *is-active*) exit 3;; start*) touch "{tmp_path}/ready";; esac',
    )
    setup.up()
    assert programs.called()[-1] == "systemctl start docker.service"
    setup.down()
    assert programs.called()[-1] == "systemctl stop docker.socket docker.service"
    before = len(programs.called())
    setup.down()
    assert len(programs.called()) == before


def test_an_ordinary_user_starts_it_through_sudo(
    setup: EngineSetup, programs: FakePrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary user starts and stops dockerd with ``sudo -n``, which never asks for a password."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    programs.add("true")
    programs.add("sudo", 'shift; exec "$@"')
    _install_daemon(programs)
    setup.up()
    assert f"sudo -n dockerd --pidfile {setup.pid_file}" in programs.called()
    pid = _pid(setup)
    setup.down()
    assert f"sudo -n sh -c kill -15 {pid}" in programs.called()


def test_an_ordinary_user_without_sudo_is_told_what_an_administrator_must_do(
    setup: EngineSetup, programs: FakePrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without root or sudo, the error contains instructions, and no program is run."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    _install_daemon(programs)
    with pytest.raises(SetupError, match=r"no engine answers\n    hint: as an administrator, install and start"):
        setup.up()
    assert programs.called() == []


def test_an_engine_named_by_the_environment_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If DOCKER_HOST names an engine that does not answer, no other engine may be started."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    problem = find_problem()
    assert problem is not None
    assert not problem.replaceable
    assert f"{tmp_path}/none.sock" in problem.text


def test_where_nothing_was_asked_for_and_nothing_is_there_ours_may_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no engine is selected by a variable or a context, and no socket exists, an engine may be started."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr("securebench.engine.endpoint.DEFAULT_SOCKET", f"{tmp_path}/none.sock")
    problem = find_problem()
    assert problem is not None
    assert problem.replaceable


@pytest.mark.parametrize("arguments", [[], ["sideways"], ["up", "down"]])
def test_other_arguments_get_the_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Invalid arguments result in the usage message and exit code 2."""
    assert main(arguments) == 2
    assert "engine.py up" in capsys.readouterr().err


def test_an_error_is_one_message_and_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failure is printed as an error message instead of a traceback, and the exit code is 1."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("SECUREBENCH_ENGINE_STATE", str(tmp_path / "state"))
    assert main(["up"]) == 1
    assert capsys.readouterr().err.startswith("error: ")
