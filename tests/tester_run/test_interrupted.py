"""Signals: the first ends a run cleanly, the second at once (L12)."""

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
    """Give a run whose third task runs."""
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
    """No more tasks, sandboxes ended at once, finished tasks on disk, the one in flight void; then it resumes (L12)."""
    with started(tmp_path, "ends") as process:
        start = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=40)
        assert time.monotonic() - start < 30  # its task would take a minute
    assert out == "interrupted 2 4 True\n"
    assert process.returncode == 0
    assert "press Ctrl-C again" in err
    assert [record["verification_status"] for record in records(tmp_path)] == ["passed", "passed"]


def test_the_second_signal_ends_at_once(tmp_path: Path) -> None:
    """A run that does not end after the first signal ends with the second, its sandboxes ended before (L12)."""
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
    """The cursor is shown again, and the shell's prompt starts on a line of its own, after a word on what happened."""
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
    """Handlers are in force while tasks run, and are put back afterwards."""
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
    """A run on another thread does not touch handlers, and works."""
    write_run(tmp_path)
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(run(tmp_path, handle_signals=True).passed))
    thread.start()
    thread.join()
    assert results == [6]


def test_a_closed_terminal_does_not_keep_sandboxes(tmp_path: Path) -> None:
    """When nobody can be told any more, the run ends all the same (L12)."""
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
    """A sandbox that was in the making when the run was stopped is ended too."""
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
