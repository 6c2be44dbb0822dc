"""Signals to a run: the first ends it cleanly, the second at once (L12)."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from audit.run.made_runs import failed, verify
from pseudo_terminals import shown_on
from run_fakes import FakeProducer
from securebench.errors import EngineError
from securebench.execution import RunControl
from securebench.tester_run.watch import SIGNALS, Watch
from securebench.testing.scripted_sandbox import ScriptedDriver
from tester_run.running import make_parts, pin_framework, records, run, write_run

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _one_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    pin_framework(monkeypatch.setattr)


@contextmanager
def started(root: Path, mode: str, stderr: int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    """Start a run, and yield its process while the third task is running."""
    write_run(root)
    command = [sys.executable, "-m", "tester_run.interrupted_run", str(root), mode]
    environment = {"PYTHONPATH": str(TESTS), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_the_first_signal_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """After the first signal, sandboxes end, no task starts, and only finished tasks have records (L12).

    The run can be resumed, and then runs only the other tasks.
    """
    with started(tmp_path, "ends") as process:
        start = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=40)
        assert time.monotonic() - start < 30  # its task would take a minute
    assert out == "interrupted 2 4 True\n"
    assert process.returncode == 0
    assert "press Ctrl-C again" in err
    assert [record["verification_status"] for record in records(tmp_path)] == ["passed", "passed"]
    producer = FakeProducer()
    assert run(tmp_path, resume=True, parts=make_parts(producer)).passed == 6
    assert len(producer.views) == 4


def test_the_second_signal_ends_at_once(tmp_path: Path) -> None:
    """A run that hangs after the first signal exits at the second, keeps finished tasks, and can be resumed (L12)."""
    with started(tmp_path, "hangs") as process:
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 130
        assert time.monotonic() - start < 30
    assert len(records(tmp_path)) == 2
    assert run(tmp_path, resume=True).passed == 6


def test_the_second_signal_gives_the_terminal_back(tmp_path: Path) -> None:
    """On a terminal, the second signal shows the cursor again and prints on a new line that the run was stopped."""
    controller, terminal = os.openpty()
    try:
        with started(tmp_path, "hangs", stderr=terminal) as process:
            os.close(terminal)
            process.send_signal(signal.SIGINT)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
            process.send_signal(signal.SIGINT)
            assert process.wait(40) == 130
        assert shown_on(controller).endswith("\x1b[?25h\r\r\nstopped at once; finished tasks are saved\r\n")
    finally:
        os.close(controller)


def test_interrupted_in_this_process(tmp_path: Path) -> None:
    """Signal handlers are installed while tasks run, and the previous handlers are restored afterwards."""
    write_run(tmp_path)
    before = [signal.getsignal(number) for number in SIGNALS]

    def hook(number: int, *_: object) -> None:
        if number == 2:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            time.sleep(0.5)

    summary = run(tmp_path, handle_signals=True, parts=make_parts(FakeProducer(hook=hook)))
    assert (summary.ending.value, summary.passed) == ("interrupted", 1)
    assert failed(verify(tmp_path / "results", with_pack=True)) == {}
    assert [signal.getsignal(number) for number in SIGNALS] == before
    assert run(tmp_path, resume=True).passed == 6


def test_off_the_main_thread_signals_are_left_alone(tmp_path: Path) -> None:
    """A run on a thread other than the main thread installs no signal handlers, and finishes."""
    write_run(tmp_path)
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(run(tmp_path, handle_signals=True).passed))
    thread.start()
    thread.join()
    assert results == [6]


def test_a_closed_terminal_does_not_keep_sandboxes(tmp_path: Path) -> None:
    """If the terminal is closed and no message can be written, the run still ends its sandboxes and stops (L12)."""
    write_run(tmp_path)

    def hook(number: int, *_: object) -> None:
        if number == 2:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGHUP)
            time.sleep(0.5)

    def notify(text: str) -> None:
        if text.startswith("stopping"):
            raise OSError(errno.EIO, "Input/output error")

    ended: list[bool] = []

    class Driver(ScriptedDriver):
        def kill_all(self) -> None:
            ended.append(True)
            super().kill_all()

    parts = make_parts(FakeProducer(hook=hook), Driver())
    assert run(tmp_path, handle_signals=True, notify=notify, parts=parts).passed == 1
    assert ended


def test_sandboxes_are_ended_again_and_again() -> None:
    """After a stop, ``kill_all`` is called repeatedly, even if it fails, because a sandbox may just be starting."""
    calls: list[float] = []

    class Driver(ScriptedDriver):
        def kill_all(self) -> None:
            calls.append(time.monotonic())
            raise EngineError("busy")

    control = RunControl()
    with Watch(control, Driver(), handle_signals=False, notify=lambda _: None):
        time.sleep(0.3)
        assert not calls
        control.stop()
        time.sleep(0.8)
    assert len(calls) >= 2
