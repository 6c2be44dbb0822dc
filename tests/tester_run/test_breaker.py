"""The circuit breaker, which stops a run in which no agent could start, and reports nodes with many errors."""

from __future__ import annotations

from typing import Any

import pytest

from results.samples import STATUS, record
from run_fakes import FakeProducer, Sink
from securebench.errors import CandidateError, FailurePhase, FailureReason
from securebench.harnesses.base import AgentResult
from securebench.progress import TaskDone
from securebench.results.records.record import Failure, Output
from securebench.results.summary import RunEnd
from securebench.tester_run.breaker import ERRORS_IN_A_ROW, FAILED_STARTS, START_SECONDS, Breaker
from securebench.testing.scripted_sandbox import ScriptedDriver
from tester_run.running import make_parts, records, run, write_run

TYPO = "python3: can't open file 'agnet.py'"


def failed_start(**changes: Any) -> Any:
    """Return the record of an agent that failed immediately."""
    fields: dict[str, Any] = {
        "verifier": None,
        "failure": Failure(FailureReason.AGENT_EXIT, FailurePhase.PRODUCE, "the agent ended with exit code 2"),
        "producer": Output(stderr=f"trying\n{TYPO}\n"),
        "provenance": {"attempt": 1, "durations": {"produce": 0.2}},
    }
    return record(status=STATUS.FAILED, **{**fields, **changes})


SLOW = failed_start(provenance={"attempt": 1, "durations": {"produce": START_SECONDS + 1}})
TALKING = failed_start(producer=Output(stdout="hello", stderr=TYPO))
SILENT = failed_start(producer=Output())
OTHER = failed_start(producer=Output(stderr="another error"))


def stops(*seen: Any, is_resumed: bool = False) -> list[str]:
    """Return the breaker's message after each record. An empty message means that the run continues."""
    breaker = Breaker(ScriptedDriver(), is_resumed=is_resumed)
    return [breaker.trips(one) for one in seen]


def test_a_run_stops_when_its_first_agents_could_not_start() -> None:
    """After ``FAILED_STARTS`` failed starts the run stops. The message has exit code and last line of stderr."""
    *before, last = stops(*[failed_start()] * FAILED_STARTS)
    assert not any(before)
    assert last.startswith("no agent could start: ")
    assert "exit code 2" in last
    assert TYPO in last


@pytest.mark.parametrize("other", [record(), SLOW, TALKING, SILENT, OTHER])
@pytest.mark.parametrize("at", [0, FAILED_STARTS - 1])
def test_one_other_ending_shows_that_agents_start(other: Any, at: int) -> None:
    """The run does not stop for failed starts if one of the first agents ended differently.

    Its record may have passed, have failed slowly, or have output, no stderr or another stderr.
    """
    seen = [failed_start()] * (FAILED_STARTS * 3)
    seen[at] = other
    assert not any(stops(*seen))


def test_a_resumed_run_does_not_stop() -> None:
    """A resumed run does not stop for failed starts: its user has seen the message and wants the other tasks to run."""
    assert not any(stops(*[failed_start()] * 20, is_resumed=True))


def test_a_node_with_errors_is_distrusted_and_the_run_goes_on() -> None:
    """Errors in a row count only for their node, and do not stop the run. A success resets the count.

    The breaker cannot stop the run, because only the executor knows whether another node is left.
    """
    breaker = Breaker(ScriptedDriver())
    failed = record(
        status=STATUS.ERROR,
        verifier=None,
        failure=Failure(FailureReason.STORAGE_FAILED, FailurePhase.PRODUCE, "no space left on device"),
    )
    assert not any(breaker.trips(failed, "bad") for _ in range(ERRORS_IN_A_ROW))
    assert "no space left" in breaker.distrusts("bad")
    assert not breaker.distrusts("good")
    assert not breaker.trips(record(), "bad")
    assert not breaker.distrusts("bad")


def test_a_run_without_a_working_agent_stops_and_can_be_resumed(tmp_path: Any) -> None:
    """Tasks that did not start have no record, each failed task reports its stderr, and --resume runs the rest."""
    write_run(tmp_path, 8)
    failure = CandidateError(FailureReason.AGENT_EXIT, "the agent ended with exit code 2", phase=FailurePhase.PRODUCE)
    producer = FakeProducer(hook=lambda *_: AgentResult(candidate=None, failure=failure, stderr=f"{TYPO}\n"))
    sink = Sink()
    summary = run(tmp_path, parts=make_parts(producer), sinks=[sink])
    assert (summary.ending, summary.failed, summary.total.not_run) == (RunEnd.STOPPED, FAILED_STARTS, 3)
    assert summary.problems[0].startswith("no agent could start")
    assert {event.agent_stderr for event in sink.events if isinstance(event, TaskDone)} == {TYPO}
    assert {entry.agent_stderr for entry in summary.failures} == {TYPO}
    again = run(tmp_path, resume=True, parts=make_parts(producer))
    assert (again.ending, again.failed, len(records(tmp_path))) == (RunEnd.FINISHED, 8, 8)
