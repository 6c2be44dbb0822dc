"""Outcomes of the real agent programs in every family: verdicts, and errors that are not the agent's fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from real_agents.mixed import FAMILIES, mixed_pack, solving_all
from real_agents.runs import PROGRAMS, Agent, run_here, short_answers
from securebench.errors import ConfigError
from securebench.execution import retry
from securebench.testing.provider import Cut, Fail, ScriptedProvider, Slow, always, at_first
from securebench.testing.provider.scripts import crash, refuse, solve, work_forever

if TYPE_CHECKING:
    from pathlib import Path

    from real_agents.runs import Here
    from securebench.sandboxes.base import SandboxDriver
    from securebench.sandboxes.oci import OciDriver

pytestmark = [pytest.mark.agents, pytest.mark.slow, pytest.mark.usefixtures("_with_ports", "images")]

TWO_FAMILIES = ("short_answer", "repo_patch")
"""One family whose candidate is a text, and one whose candidate is a patch."""

in_families = pytest.mark.parametrize(
    "families",
    [
        pytest.param(TWO_FAMILIES, id="two families"),
        pytest.param(FAMILIES, id="all families", marks=pytest.mark.long),
    ],
)


with_codex = pytest.mark.parametrize("program", ["codex", pytest.param("claude_code", marks=pytest.mark.long)])
"""For tests of the relay and the run. Claude Code takes three times as long, so it is marked ``long``."""


@pytest.fixture(autouse=True)
def _once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the run's retries after a provider failure, because the agent programs retry often enough themselves."""
    monkeypatch.setattr(retry, "PROVIDER_BACK_OFF", ())


def _by_family(done: Here, key: str) -> dict[str, Any]:
    return {record["task_type"]: record.get(key) for record in done.records}


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_family_is_solved(program: str, driver: SandboxDriver, tmp_path: Path) -> None:
    """A task of each active family is solved end to end, although the provider sends every second answer slowly."""
    with ScriptedProvider(solving_all(), fault=lambda request: Slow(0.01) if request.number % 2 else None) as provider:
        done = run_here(tmp_path, mixed_pack(tmp_path), Agent(program=program, provider=provider), driver)
    assert _by_family(done, "verification_status") == dict.fromkeys(FAMILIES, "passed"), done.records


@with_codex
@in_families
def test_no_family_is_passed_by_a_refusal(
    program: str, families: tuple[str, ...], driver: SandboxDriver, tmp_path: Path
) -> None:
    """If the model refuses to work, each task has failed; the outcome is neither a crash nor an error."""
    with ScriptedProvider(refuse()) as provider:
        done = run_here(tmp_path, mixed_pack(tmp_path, families), Agent(program=program, provider=provider), driver)
    assert _by_family(done, "verification_status") == dict.fromkeys(families, "failed"), done.records
    assert {record["producer_metadata"]["outcome"] for record in done.records} <= {"gave_up", "worked", "refused"}


@with_codex
@in_families
def test_an_agent_out_of_time_has_failed(
    program: str, families: tuple[str, ...], driver: SandboxDriver, tmp_path: Path
) -> None:
    """In each family, an agent that exceeds its time limit has failed."""
    seconds = 45 if program == "claude_code" else 15  # time for a first request: without one, the machine is blamed
    with ScriptedProvider(work_forever()) as provider:
        agent = Agent(program=program, provider=provider, config={"timeout_seconds": seconds})
        done = run_here(tmp_path, mixed_pack(tmp_path, families), agent, driver)
    assert _by_family(done, "failure_reason") == dict.fromkeys(families, "agent_timeout"), done.records
    assert {record["producer_metadata"]["outcome"] for record in done.records} == {"timed_out"}


@pytest.mark.oci
@with_codex
@in_families
def test_a_program_that_is_killed_has_crashed(
    program: str, families: tuple[str, ...], oci_driver: OciDriver, tmp_path: Path
) -> None:
    """An agent that kills its own program has crashed, and its task has failed."""
    with ScriptedProvider(crash()) as provider:
        done = run_here(tmp_path, mixed_pack(tmp_path, families), Agent(program=program, provider=provider), oci_driver)
    assert _by_family(done, "failure_reason") == dict.fromkeys(families, "agent_exit"), done.records
    assert {record["producer_metadata"]["outcome"] for record in done.records} == {"crashed"}


@pytest.mark.oci
@pytest.mark.timeout(300)
@with_codex
@pytest.mark.parametrize(
    ("fault", "code"),
    [(Fail(401, echo_key=True), "provider-refused"), (Fail(529), "provider-failed")],
    ids=["key refused", "down"],
)
@in_families
def test_trouble_with_a_provider_is_no_score(
    program: str, fault: Fail, code: str, families: tuple[str, ...], oci_driver: OciDriver, tmp_path: Path
) -> None:
    """If the provider refuses the key or fails during the tasks, each task ends in an error without a score."""
    # Request 0 is the run's own probe before the first task. If it failed with 401, the run would end there.
    with ScriptedProvider(solving_all(), fault=lambda request: fault if request.number else None) as provider:
        done = run_here(tmp_path, mixed_pack(tmp_path, families), Agent(program=program, provider=provider), oci_driver)
    assert _by_family(done, "failure_reason") == dict.fromkeys(families, "provider_unavailable"), done.records
    assert all("score" not in record and code in record["failure_message"] for record in done.records)


@pytest.mark.oci
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_key_that_is_refused_ends_a_run_before_it_begins(program: str, oci_driver: OciDriver, tmp_path: Path) -> None:
    """If the first request shows that the key is refused, the run ends and sends no further request."""
    pack = short_answers(tmp_path)
    with ScriptedProvider(solving_all(), fault=always(Fail(401))) as provider:
        agent = Agent(program=program, provider=provider)
        with pytest.raises(ConfigError) as raised:
            run_here(tmp_path, pack, agent, oci_driver)
        assert raised.value.code == "provider-refused"
        assert len(provider.requests) == 1


@pytest.mark.oci
@pytest.mark.timeout(300)
@with_codex
@pytest.mark.parametrize(
    ("fault", "code"),
    [(Fail(429), "provider-rate-limited"), (Fail(400), "provider-rejected"), (Cut(300), "provider-failed")],
    ids=["rate limited", "rejected", "cut"],
)
def test_each_trouble_has_its_code(
    program: str, fault: Fail | Cut, code: str, oci_driver: OciDriver, tmp_path: Path
) -> None:
    """The record of a provider failure contains the error code for its cause."""
    pack = short_answers(tmp_path)
    with ScriptedProvider(solve("short_answer", "4"), fault=fault) as provider:
        (record,) = run_here(tmp_path, pack, Agent(program=program, provider=provider), oci_driver).records
    assert (record["verification_status"], record["failure_reason"]) == ("error", "provider_unavailable")
    assert code in record["failure_message"]


@pytest.mark.oci
@pytest.mark.timeout(300)
@with_codex
@in_families
def test_a_provider_that_comes_back_is_waited_for(
    program: str, families: tuple[str, ...], oci_driver: OciDriver, tmp_path: Path
) -> None:
    """If the first request for each answer fails, the agent programs retry it, and all tasks pass."""
    with ScriptedProvider(solving_all(), fault=at_first(1, Fail(500))) as provider:
        done = run_here(tmp_path, mixed_pack(tmp_path, families), Agent(program=program, provider=provider), oci_driver)
    assert _by_family(done, "verification_status") == dict.fromkeys(families, "passed"), done.records
