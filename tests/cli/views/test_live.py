"""Progress on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from cli.views.test_plain import done, start
from securebench.cli.views.live import LiveSink, clock, shortened
from securebench.progress import RunDone, TaskStart, VerifierStart


@pytest.fixture
def console() -> Console:
    """Return a terminal that writes to a string."""
    return Console(file=io.StringIO(), force_terminal=True, width=100, height=40)


def shown(console: Console) -> str:
    """Return everything that was written to the terminal."""
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def begun(task_id: str) -> TaskStart:
    """Return the event for the start of a task."""
    return TaskStart(task_id=task_id, family="f", attempt=1)


def test_finished_tasks_scroll_by(console: Console) -> None:
    """Each finished task is printed as a line with its verdict and reason."""
    sink = LiveSink(console)
    for event in (start(), begun("one"), done("one"), done("two", "failed", "wrong_answer")):
        sink(event)
    sink(RunDone(summary={}))
    assert "PASSED one" in shown(console)
    assert "FAILED two: wrong_answer" in shown(console)


def test_a_failed_task_shows_the_last_line_of_its_agents_stderr(console: Console) -> None:
    """The line from stderr is cut to the width of the terminal. The task's id is not cut."""
    LiveSink(console)(done("x" * 120, "failed", "tests_failed", agent_stderr="y" * 120))
    text = shown(console)
    assert text.count("x") == 120
    assert "agent's stderr: yyy" in text
    assert text.count("y") < 100


def test_what_runs_is_shown(console: Console) -> None:
    """The display shows the running tasks with phase and time, the counts, and the time left."""
    sink = LiveSink(console)
    sink(start(to_do=4))
    sink(begun("pack/first"))
    sink(begun("pack/second"))
    sink(VerifierStart(task_id="pack/second", verifier="f", version="1"))
    sink(done("pack/zero"))
    sink(done("pack/bad", "error", "engine_unavailable"))
    plain = Console(file=io.StringIO(), width=100)
    plain.print(sink._render())
    text = shown(plain)
    sink.close()
    for part in ("pack/first", "agent", "pack/second", "verifier", "0:00", "2/4", "1 passed", "1 error", "left"):
        assert part in text


def test_many_running_tasks_do_not_fill_the_screen(console: Console) -> None:
    """Of 40 running tasks, 16 are named and the others are counted."""
    sink = LiveSink(console)
    for number in range(40):
        sink(begun(f"task-{number}"))
    plain = Console(file=io.StringIO(), width=100)
    plain.print(sink._render())
    assert "and 24 more" in shown(plain)
    assert len(shown(plain).splitlines()) < 20


def test_the_terminal_is_given_back(console: Console) -> None:
    """Closing the display shows the cursor again. A second call of ``close`` is allowed."""
    sink = LiveSink(console)
    sink(start())
    sink.close()
    sink.close()
    assert shown(console).rindex("\x1b[?25h") > shown(console).rindex("\x1b[?25l")


def test_ids_are_not_obeyed(console: Console) -> None:
    """Escape sequences in an id are escaped, and markup in it is shown as text (M13)."""
    sink = LiveSink(console)
    sink(done("[red]x[/red]\x1b[2J\u202e"))
    assert "[red]x[/red]" in shown(console)
    assert "\x1b[2J" not in shown(console)
    assert "\u202e" not in shown(console)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (65.9, "1:05"), (3661, "1:01:01"), (36000, "10:00:00")])
def test_clock(seconds: float, text: str) -> None:
    """A duration is written as minutes and seconds, with hours if it has any."""
    assert clock(seconds) == text


def test_shortened() -> None:
    """A long id is cut in the middle, because most ids differ at the end. A newline in an id is escaped."""
    assert shortened("a\nb") == "a\\nb"
    text = shortened(f"pack/{'x' * 200}-007")
    assert len(text) == 48
    assert text.startswith("pack/xxx")
    assert text.endswith("xxx-007")
