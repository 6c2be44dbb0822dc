"""How the work of the real programs ends, in every family: what is a verdict, and what is no fault of an agent."""

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
"""An answer that is printed, and one that is left in files."""

in_families = pytest.mark.parametrize(
    "families",
    [
        pytest.param(TWO_FAMILIES, id="two families"),
        pytest.param(FAMILIES, id="all families", marks=pytest.mark.long),
    ],
)


with_codex = pytest.mark.parametrize("program", ["codex", pytest.param("claude_code", marks=pytest.mark.long)])
"""For tests of the relay and the run. Claude Code takes three times as long."""


@pytest.fixture(autouse=True)
def _once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a provider's trouble be final at once: the programs themselves have asked again often enough."""
    monkeypatch.setattr(retry, "PROVIDER_BACK_OFF", ())


def _by_family(done: Here, key: str) -> dict[str, Any]:
    return {record["task_type"]: record.get(key) for record in done.records}


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_family_is_solved(program: str, driver: SandboxDriver, tmp_path: Path) -> None:
    """A task of each active family is solved end to end, though the provider is slow and fails now and then."""
    with ScriptedProvider(solving_all(), fault=lambda request: Slow(0.01) if request.number % 2 else None) as provider:
        done = run_here(tmp_path, mixed_pack(tmp_path), Agent(program=program, provider=provider), driver)
    assert _by_family(done, "verification_status") == dict.fromkeys(FAMILIES, "passed"), done.records


@with_codex
@in_families
def test_no_family_is_passed_by_a_refusal(
    program: str, families: tuple[str, ...], driver: SandboxDriver, tmp_path: Path
) -> None:
    """A model that refuses to work fails each task, which is no crash and no trouble of the machine."""
    with ScriptedProvider(refuse()) as provider:
        done = run_here(tmp_path, mixed_pack(tmp_path, families), Agent(program=program, provider=provider), driver)
    assert _by_family(done, "verification_status") == dict.fromkeys(families, "failed"), done.records
    assert {record["producer_metadata"]["outcome"] for record in done.records} <= {"gave_up", "worked", "refused"}


@with_codex
@in_families
def test_an_agent_out_of_time_has_failed(
    program: str, families: tuple[str, ...], driver: SandboxDriver, tmp_path: Path
) -> None:
    """An agent that does not end in time is ended with its sandbox, in each family, and has failed."""
    seconds = 45 if program == "claude_code" else 15  # without a request until then, it would be the machine's fault
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
    """An agent that kills its own program has failed, whatever a provider would have said next."""
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
    """Where the provider answers no agent well, no family has a score: the task is redone on ``--resume``."""
    # Number 0 is the question before the first task, which would end the run where the key is refused.
    with ScriptedProvider(solving_all(), fault=lambda request: fault if request.number else None) as provider:
        done = run_here(tmp_path, mixed_pack(tmp_path, families), Agent(program=program, provider=provider), oci_driver)
    assert _by_family(done, "failure_reason") == dict.fromkeys(families, "provider_unavailable"), done.records
    assert all("score" not in record and code in record["failure_message"] for record in done.records)


@pytest.mark.oci
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_key_that_is_refused_ends_a_run_before_it_begins(program: str, oci_driver: OciDriver, tmp_path: Path) -> None:
    """One question tells it: no program is started, and nothing is recorded."""
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
    """What kept the provider from answering is told apart in the record."""
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
    """The programs ask again, a few times: one failure for each answer costs no task."""
    with ScriptedProvider(solving_all(), fault=at_first(1, Fail(500))) as provider:
        done = run_here(tmp_path, mixed_pack(tmp_path, families), Agent(program=program, provider=provider), oci_driver)
    assert _by_family(done, "verification_status") == dict.fromkeys(families, "passed"), done.records
