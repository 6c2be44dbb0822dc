"""Progress as plain lines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from securebench.cli.views.plain import PlainSink, cost_text
from securebench.progress import AgentOutput, Event, ProducerStart, Resume, RunDone, RunStart, TaskDone, TaskStart


def lines(*events: Event) -> list[str]:
    """Return the lines that are printed for these events."""
    printed: list[str] = []
    sink = PlainSink(printed.append)
    for event in events:
        sink(event)
    return printed


def start(to_do: int = 3, workers: int = 2, trials: int = 1) -> RunStart:
    """Return the event for the start of a run."""
    return RunStart(
        run_id="r",
        benchmark_id="b",
        agent="a",
        tasks=4,
        trials=trials,
        pack_tasks=4,
        to_do=to_do,
        workers=workers,
        output_dir="/o",
    )


def done(task_id: str, status: str = "passed", reason: str = "", time: float = 0.0, **changes: Any) -> TaskDone:
    """Return the event for the end of a task."""
    values = {"family": "f", "message": "", "agent_stderr": "", "assurance": None, **changes}
    return TaskDone(task_id=task_id, status=status, reason=reason or None, time=time, **values)


def test_a_run() -> None:
    """The start of a run, its resumption and the end of each task are one line each. Other events have no line."""
    printed = lines(
        start(),
        Resume(kept=1, redone=0, planned=4),
        TaskStart(task_id="t", time=1.0, family="f", attempt=1),
        ProducerStart(task_id="t"),
        AgentOutput(task_id="t", stream="stdout", text="hello"),
        done("t", time=3.5),
        done("u", "failed", "wrong_answer"),
        RunDone(summary={}),
    )
    assert printed == [
        "run r: 4 tasks of b, agent a, 2 workers",
        "resuming: 1 of 4 tasks done, 3 to run",
        "[1/3] PASSED t (2.5 s)",
        "[2/3] FAILED u: wrong_answer (0.0 s)",
    ]


def test_trials_are_numbered() -> None:
    """In a run with several trials, each line of a task has the number of the trial. Trial 1 is no exception."""
    printed = lines(
        start(6, trials=2),
        Resume(kept=2, redone=1, planned=8),
        TaskStart(task_id="t", trial=1, time=1.0, family="f", attempt=1),
        TaskStart(task_id="t", trial=2, time=2.0, family="f", attempt=1),
        done("t", trial=2, time=3.0),
        done("t", trial=1, time=5.0),
    )
    assert printed == [
        "run r: 4 tasks of b, 2 trials each, agent a, 2 workers",
        "resuming: 2 of 8 trials done, 6 to run (1 of them again, after an error)",
        "[1/6] PASSED t (trial 2) (1.0 s)",
        "[2/6] PASSED t (trial 1) (4.0 s)",
    ]


def test_a_limited_run_names_the_size_of_the_pack() -> None:
    """With ``--limit 1`` the first line says how many tasks the whole pack has."""
    begun = replace(start(to_do=1, workers=1), tasks=1, pack_tasks=2)
    assert lines(begun) == ["run r: 1 of 2 tasks of b, not the whole benchmark, agent a, 1 worker"]


def test_a_weak_pass_says_so() -> None:
    """The line of a pass says if it rests only on an exit code. The line of a failure does not say this."""
    events = [done("t", assurance="exit_code"), done("u", "failed", "tests_failed", assurance="exit_code")]
    assert lines(*events) == [
        "[1/0] PASSED t (on exit code only) (0.0 s)",
        "[2/0] FAILED u: tests_failed (0.0 s)",
    ]


def test_a_failed_task_shows_the_last_line_of_its_agents_stderr() -> None:
    """The last line of stderr is below the line of the failed task, with control characters escaped."""
    assert lines(done("t", "failed", "agent_exit", agent_stderr="can't open 'a.py'\x1b[2J")) == [
        "[1/0] FAILED t: agent_exit (0.0 s)",
        "    agent's stderr: can't open 'a.py'\\x1b[2J",
    ]


def test_small_amounts_are_exact() -> None:
    """Costs below a cent are exact, and all others are rounded to cents."""
    assert cost_text(0.001104, 0.003) == "$0.001104 of $0.003"
    assert [cost_text(usd) for usd in (0, 0.01, 1234.567)] == ["$0.00", "$0.01", "$1,234.57"]


def test_one_worker() -> None:
    """A single worker is written in the singular."""
    assert lines(start(workers=1)) == ["run r: 4 tasks of b, agent a, 1 worker"]


def test_ids_cannot_command_a_terminal() -> None:
    """Control characters in a task's id do not reach the terminal (M13)."""
    assert "\x1b" not in "".join(lines(done("t\x1b[2J")))
