"""The model harness with a scripted model behind the real relay: tasks of every family, in images of every kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from real_agents.mixed import FAMILIES, answering_all, mixed_pack, solving_all
from real_agents.runs import CANARY, MODEL, PLAIN_MODEL, Agent, run, run_here
from securebench.testing.provider import Say, ScriptedProvider, Shell

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver
    from securebench.testing.provider import Script

pytestmark = [pytest.mark.usefixtures("_with_ports", "base_image")]

PRICES = {"input": 0.25, "output": 2}


@pytest.mark.oci
def test_a_question(oci_driver: SandboxDriver, tmp_path: Path) -> None:
    """One turn: the right answer passes, all that it used and did is recorded, and the key is nowhere."""
    with ScriptedProvider((), texts=answering_all()) as provider:
        agent = Agent(program=PLAIN_MODEL, provider=provider, config={"prices": PRICES, "temperature": 0})
        done = run(tmp_path, mixed_pack(tmp_path, ("multiple_choice",)), agent, oci_driver)
        assert provider.keys_seen == {CANARY}
    assert done.code == 0, done.said
    (record,) = done.records
    assert record["verification_status"] == "passed", record
    assert record["producer_metadata"]["outcome"] == "worked"
    usage = record["provenance"]["usage"]
    assert (usage["input_tokens"], usage["turns"], usage["relay"]["models"]) == (1200, 1, {MODEL: 1})
    assert usage["cost_usd"] == pytest.approx((1200 * 0.25 + 34 * 2) / 1e6)
    assert json.loads((done.directory / "run.json").read_text())["decisive"]["agent"]["settings"]["temperature"] == 0
    (steps,) = (done.directory / "trajectories").iterdir()
    assert [json.loads(line)["kind"] for line in steps.read_text().splitlines()] == ["prompt", "message", "usage"]
    files = (path.read_text(errors="replace") for path in done.directory.rglob("*") if path.is_file())
    assert not any(CANARY in text for text in files)


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("dialect", ["chat_completions", "responses", "messages", "gemini"])
def test_every_family_is_solved(dialect: str, driver: SandboxDriver, tmp_path: Path) -> None:
    """In one turn, or in the loop, also in a repository's image, which has another Python."""
    with ScriptedProvider(solving_all(), texts=answering_all()) as provider:
        agent = Agent(
            program=PLAIN_MODEL, provider=provider, config={"dialect": dialect, "api_key_env": "OPENAI_API_KEY"}
        )
        done = run_here(tmp_path, mixed_pack(tmp_path), agent, driver)
        assert provider.keys_seen == {CANARY}
    assert set(done.statuses.values()) == {"passed"}, done.records
    assert len(done.records) == len(FAMILIES)


@pytest.mark.long
@pytest.mark.oci
def test_a_loop_that_never_ends(oci_driver: SandboxDriver, tmp_path: Path) -> None:
    """Its turns end, its workspace is judged, and the record says why it ended."""
    script: Script = (Shell("sort -n numbers.txt > sorted.txt"), *(Shell("true") for _ in range(9)), Say("unreachable"))
    with ScriptedProvider(script) as provider:
        agent = Agent(program=PLAIN_MODEL, provider=provider, config={"max_turns": 3})
        done = run_here(tmp_path, mixed_pack(tmp_path, ("terminal_task",)), agent, oci_driver)
    record: dict[str, Any] = done.records[0]
    assert (record["verification_status"], record["producer_metadata"]["outcome"]) == ("passed", "out_of_turns")
    assert record["provenance"]["usage"]["turns"] == 3
