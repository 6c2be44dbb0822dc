"""Many real agents at the same time, and an agent whose gateway is killed."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from leftovers import family_of
from real_agents.runs import Agent, run_here, short_answers
from securebench.testing.provider import Say, ScriptedProvider, Shell
from securebench.testing.provider.scripts import READ_TASK, solve

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver

pytestmark = [pytest.mark.agents, pytest.mark.slow, pytest.mark.usefixtures("_with_ports")]


@pytest.mark.timeout(280)
@pytest.mark.parametrize("agents", [10, pytest.param(40, marks=pytest.mark.long)])
def test_many_agents_at_once(driver: SandboxDriver, tmp_path: Path, agents: int) -> None:
    """Many agents request the model at the same time, and all of them solve their tasks."""
    together = threading.Barrier(agents, timeout=150)

    def met(request: Any) -> None:
        if 1 <= request.number <= agents:  # 0: the run's own question before the first task
            together.wait()

    with ScriptedProvider(solve("short_answer", "4"), fault=met) as provider:
        agent = Agent(program="codex", provider=provider, limits={"memory": "400m"})
        done = run_here(
            tmp_path,
            short_answers(tmp_path, *(f"many/{number}" for number in range(agents))),
            agent,
            driver,
            workers=agents,
        )
    assert set(done.statuses.values()) == {"passed"}, done.records
    assert len(done.records) == agents


@pytest.mark.oci
@pytest.mark.timeout(240)
def test_a_gateway_that_dies_is_no_score(oci_driver: SandboxDriver, tmp_path: Path) -> None:
    """If the gateway is killed at each request of the agent, the task ends in an error long before its time limit."""
    killed = 0

    def kill(request: Any) -> None:
        nonlocal killed
        if not request.number:  # the run's own question before the first task
            return
        for child, command in family_of(os.getpid()).items():
            if "securebench.egress.process" in command:
                os.kill(child, signal.SIGKILL)
                killed += 1

    with ScriptedProvider((READ_TASK, Shell("sleep 300"), Say("Done.")), fault=kill) as provider:
        agent = Agent(program="codex", provider=provider, config={"timeout_seconds": 200})
        done = run_here(tmp_path, short_answers(tmp_path), agent, oci_driver)
    (record,) = done.records
    assert (record["verification_status"], record["failure_reason"]) == ("error", "egress_failed")
    assert record["provenance"]["tries"] == {"preflight": 1, "produce": killed}
    assert record["provenance"]["durations"]["total"] < 100
