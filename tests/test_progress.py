"""Progress events."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from securebench.progress import EVENTS, AgentOutput, Event, EventKind, Reporter, Resume, TaskStart
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from securebench.resources import JsonValue

CONTRACT = (
    "run_start resume task_start producer_start producer_done verifier_start verifier_policy_denied verifier_done "
    "task_done sandbox_create sandbox_start sandbox_command sandbox_result agent_output run_done"
)

TASK_START = TaskStart(family="short_answer", attempt=1)


def test_the_kinds_are_those_of_the_contract() -> None:
    """The kinds of events are exactly those in ``CONTRACT``, and each has its own type."""
    assert EVENTS.keys() == set(EventKind)
    assert [kind.value for kind in EventKind] == CONTRACT.split()


def test_events_carry_their_task_and_time() -> None:
    """An event has the id of its task, the number of the trial, its data, and a time that never decreases."""
    events: list[Event] = []
    report = Reporter([events.append])
    report.emit(Resume(kept=1, redone=0, planned=3))
    report.task(TrialId("pack/one", 2)).emit(TaskStart(family="short_answer", attempt=1))
    assert [(event.kind, event.task_id, event.trial) for event in events] == [
        (EventKind.RESUME, "", 0),
        (EventKind.TASK_START, "pack/one", 2),
    ]
    assert events[0].data == {"kept": 1, "redone": 0, "planned": 3}
    assert events[0].time <= events[1].time


def test_a_sink_that_raises_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """A sink that raises is removed with one warning, and the other sinks still get every event (L19)."""
    calls: list[str] = []

    def bad(_: Event) -> None:
        calls.append("bad")
        raise ValueError

    report = Reporter([bad, lambda _: calls.append("good")])
    one, other = report.task(TrialId("a")), report.task(TrialId("b"))
    one.emit(TASK_START)
    other.emit(TASK_START)
    assert calls == ["bad", "good", "good"]
    assert caplog.text.count("was dropped") == 1


def test_muted_kinds_reach_nobody() -> None:
    """An event that is muted, or for which there is no sink, is not passed on and not redacted."""
    events: list[Event] = []
    scrubbed: list[object] = []

    def scrub(data: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        scrubbed.append(data)
        return data

    report = Reporter([events.append], muted=[EventKind.AGENT_OUTPUT]).task(TrialId("a"), scrub=scrub)
    report.emit(AgentOutput(stream="stdout", text="x"))
    assert not events
    assert not scrubbed
    Reporter().task(TrialId("a"), scrub=scrub).emit(TASK_START)
    assert not scrubbed


def test_data_is_redacted_before_any_sink_sees_it() -> None:
    """The reporter of a task redacts the data of an event before it passes the event to a sink (F13)."""
    events: list[Event] = []
    report = Reporter([events.append]).task(TrialId("a"), scrub=lambda data: dict.fromkeys(data, "<redacted>"))
    report.emit(AgentOutput(stream="stdout", text="secret"))
    assert events[0].data == {"stream": "<redacted>", "text": "<redacted>"}


def test_one_event_at_a_time() -> None:
    """A sink is never called by two threads at the same time."""
    both_inside = threading.Barrier(2)
    calls, overlaps = 0, 0

    def sink(_: Event) -> None:
        nonlocal calls, overlaps
        calls += 1
        with suppress(threading.BrokenBarrierError):
            both_inside.wait(timeout=0.2)
            overlaps += 1

    report = Reporter([sink])
    threads = [threading.Thread(target=report.task(TrialId(name)).emit, args=[TASK_START]) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (calls, overlaps) == (2, 0)
