"""Progress as plain lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from securebench.cli.plain import PlainSink
from securebench.progress import Event, EventKind

if TYPE_CHECKING:
    from securebench.resources import JsonValue


def lines(*events: Event) -> list[str]:
    """Return what is told of these events."""
    told: list[str] = []
    sink = PlainSink(told.append)
    for event in events:
        sink(event)
    return told


def start(to_do: int = 3, workers: int = 2) -> Event:
    """Return the beginning of a run."""
    data: dict[str, JsonValue] = {
        "run_id": "r",
        "benchmark_id": "b",
        "tasks": 4,
        "to_do": to_do,
        "workers": workers,
        "output_dir": "/o",
    }
    return Event(EventKind.RUN_START, data=data)


def done(task_id: str, status: str = "passed", reason: str = "", time: float = 0.0) -> Event:
    """Return the end of a task."""
    return Event(EventKind.TASK_DONE, task_id, {"status": status, "reason": reason, "message": ""}, time)


def test_a_run() -> None:
    """The beginning of a run, and the end of each task, are one line each; nothing else is told."""
    told = lines(
        start(),
        Event(EventKind.RESUME, data={"kept": 1, "redone": 0, "tasks": 4}),
        Event(EventKind.TASK_START, "t", time=1.0),
        Event(EventKind.PRODUCER_START, "t"),
        Event(EventKind.AGENT_OUTPUT, "t", {"text": "hello"}),
        done("t", time=3.5),
        done("u", "failed", "wrong_answer"),
        Event(EventKind.RUN_DONE),
    )
    assert told == [
        "run r: 3 of 4 tasks of b, 2 workers",
        "resuming: 1 of 4 tasks done, 3 to run",
        "[1/3] PASSED t (2.5 s)",
        "[2/3] FAILED u: wrong_answer (0.0 s)",
    ]


def test_a_weak_pass_says_so() -> None:
    """A pass that rests on an exit code, or on the candidate's own process, says so on its line."""
    events = [done("t"), done("u", "failed", "tests_failed")]
    for event, assurance in zip(events, ("exit_code", "exit_code"), strict=True):
        cast("dict[str, JsonValue]", event.data)["assurance"] = assurance
    assert lines(*events) == [
        "[1/0] PASSED t (on exit code only) (0.0 s)",
        "[2/0] FAILED u: tests_failed (0.0 s)",
    ]


def test_one_worker() -> None:
    """One worker is one worker."""
    assert lines(start(workers=1)) == ["run r: 3 of 4 tasks of b, 1 worker"]


def test_ids_cannot_command_a_terminal() -> None:
    """What stands in a task's id is shown, not obeyed (M13)."""
    assert "\x1b" not in "".join(lines(done("t\x1b[2J")))
