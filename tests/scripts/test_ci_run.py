"""``.ci/run`` runs ``make test`` and then stops the engine and removes its files, however the run ends."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from fake_programs import FakePrograms, only_these_programs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    """Create a clone whose ``.venv/bin/python`` only records its calls, and return its fake programs."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    programs = only_these_programs(tmp_path, monkeypatch)
    programs.borrow("bash", "env", "dirname", "mktemp", "rm", "sh", "sleep", "tail", "grep", "mkdir", "cat", "touch")
    environment = tmp_path / ".venv" / "bin"
    environment.mkdir(parents=True)
    programs.add("down", 'echo "$SECUREBENCH_ENGINE_STATE" >"$0.state"')
    (programs.directory / "down").rename(environment / "python")
    return programs


def _run(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tmp_path / ".ci" / "run"], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd="/"
    )


@pytest.mark.parametrize("status", [0, 2])
def test_it_runs_the_developers_command_and_stops_the_engine(
    programs: FakePrograms, tmp_path: Path, status: int
) -> None:
    """The exit code is that of 'make test'. Its engine is stopped whether 'make test' passes or fails."""
    programs.add("make", f'echo "$SECUREBENCH_ENGINE_STATE" >"{tmp_path}/state"; exit {status}')
    assert _run(tmp_path).returncode == status
    assert programs.called() == ["make test", "down scripts/engine.py down"]
    state = (tmp_path / "state").read_text().strip()
    assert state.startswith(str(tmp_path)), "an engine of its own, so that no other is stopped"
    assert (tmp_path / ".venv" / "bin" / "python.state").read_text().strip() == state
    assert not Path(state).exists()


def test_a_failure_shows_the_engines_last_errors(programs: FakePrograms, tmp_path: Path) -> None:
    """If the run fails, only the error lines of the engine's log are printed, before the log is deleted."""
    log = "level=info msg=starting\\nlevel=error msg=no-space-left\\n"
    programs.add("make", f'printf "{log}" >"$SECUREBENCH_ENGINE_STATE/dockerd.log"; exit 2')
    shown = _run(tmp_path).stdout
    assert "no-space-left" in shown
    assert "starting" not in shown


def test_an_engine_that_cannot_be_stopped_fails_the_run(programs: FakePrograms, tmp_path: Path) -> None:
    """If the engine cannot be stopped, the run fails although 'make test' passed."""
    programs.add("make")
    (tmp_path / ".venv" / "bin" / "python").write_text("#!/bin/sh\nexit 1\n")
    assert _run(tmp_path).returncode == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_run_stops_the_engine_too(
    programs: FakePrograms, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """A signal ends the run with exit code 128 plus the signal's number, after the engine was stopped."""
    programs.add("make", f'touch "{tmp_path}/started"; sleep 1')
    # If the tests run in the background, they ignore SIGINT, and a child process would inherit that.
    command = ["env", "--default-signal=INT", str(tmp_path / ".ci" / "run")]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as running:
        while not (tmp_path / "started").exists():
            time.sleep(0.02)
        running.send_signal(number)
        assert running.wait() == status
    assert programs.called()[-1] == "down scripts/engine.py down"
