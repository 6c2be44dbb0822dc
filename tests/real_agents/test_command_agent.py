"""The 30-line agent from the documentation, with a scripted model behind the real relay."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from real_agents.runs import CANARY, COMMAND, MODEL, Agent, documented_agent, run, run_here, short_answers
from securebench.errors import ProviderError
from securebench.execution import retry
from securebench.testing.provider import Fail, Say, ScriptedProvider, Shell, always
from securebench.testing.provider.scripts import READ_TASK

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver

pytestmark = [pytest.mark.oci, pytest.mark.usefixtures("_with_ports", "base_image")]

SCRIPT = (READ_TASK, Shell("echo 40 + 2 | python3 -c 'print(eval(input()))'"), Say("391"))
PRICES = {"input": 0.25, "output": 2}
CRASH = (Shell("kill -9 $PPID"), Say("unreachable"))


def only(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the only record."""
    (record,) = records
    return record


def test_it_works_with_the_key_outside(oci_driver: SandboxDriver, tmp_path: Path) -> None:
    """Tokens, cost, model and outcome are recorded. The provider gets the key, and no file of the run contains it."""
    assert len([line for line in documented_agent().splitlines() if line.strip()]) <= 30
    with ScriptedProvider(SCRIPT, models=(MODEL,)) as provider:
        agent = Agent(program=COMMAND, provider=provider, config={"prices": PRICES})
        done = run(tmp_path, short_answers(tmp_path), agent, oci_driver)
        assert provider.keys_seen == {CANARY}
        requests = [request for request in provider.requests if request.body and "tools" in request.body]
    record = only(done.records)
    assert done.code == 0, done.output
    assert record["verification_status"] in {"passed", "failed"}
    assert record["candidate_text"].strip() == "391"
    assert record["producer_metadata"]["outcome"] == "worked"
    usage = record["provenance"]["usage"]
    assert (len(requests), usage["requests"], usage["relay"]["answered"]) == (3, 3, 3)
    assert (usage["input_tokens"], usage["output_tokens"]) == (3 * 1200, 3 * 34)
    assert usage["cost_usd"] == pytest.approx((3600 * 0.25 + 102 * 2) / 1e6)
    assert usage["relay"]["models"] == {MODEL: 3}
    header = json.loads((done.directory / "run.json").read_text())
    identity = header["decisive"]["agent"]
    assert (identity["provider"], identity["model"], identity["prices"]) == ("chat_completions", MODEL, PRICES)
    assert CANARY not in "".join(
        path.read_text(errors="replace") for path in done.directory.rglob("*") if path.is_file()
    )


ASKED = """
import json, os, urllib.request
prefix, path, body, key = {given}
body["model"] = os.environ[prefix + "_MODEL"]
headers = {{"Content-Type": "application/json", key: os.environ[prefix + "_API_KEY"]}}
request = urllib.request.Request(os.environ[prefix + "_BASE_URL"] + path, json.dumps(body).encode(), headers)
print(urllib.request.urlopen(request).read().decode())
"""
MESSAGES = [{"role": "user", "content": "Say a word."}]


@pytest.mark.parametrize(
    ("dialect", "given"),
    [
        ("chat_completions", ("OPENAI", "/chat/completions", {"messages": MESSAGES}, "Authorization")),
        ("responses", ("OPENAI", "/responses", {"input": "Say a word.", "store": False}, "Authorization")),
        ("messages", ("ANTHROPIC", "/v1/messages", {"messages": MESSAGES, "max_tokens": 9}, "x-api-key")),
    ],
)
def test_every_dialect_works(dialect: str, given: Any, oci_driver: SandboxDriver, tmp_path: Path) -> None:
    """An agent that reads only the API's usual environment variables gets an answer."""
    with ScriptedProvider((Say("unused"),)) as provider:
        agent = Agent(program=COMMAND, provider=provider, config={"dialect": dialect, "api_key_env": "OPENAI_API_KEY"})
        agent = replace(agent, code=ASKED.format(given=given))
        done = run_here(tmp_path, short_answers(tmp_path), agent, oci_driver)
        assert provider.keys_seen == {CANARY}
    record = only(done.records)
    assert "Scripted." in record["candidate_text"]
    assert record["provenance"]["usage"]["relay"]["answered"] == 1


def test_a_wrong_key_ends_the_run(oci_driver: SandboxDriver, tmp_path: Path) -> None:
    """The gateway's own test request detects a wrong key, and the run ends before any task."""
    with ScriptedProvider(SCRIPT, fault=always(Fail(401))) as provider:
        done = run(tmp_path, short_answers(tmp_path), Agent(program=COMMAND, provider=provider), oci_driver)
    assert (done.code, done.records) == (1, [])
    assert "provider-refused" in done.output
    assert "OPENAI_API_KEY" in done.output


@pytest.fixture
def _once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the run's retries after a provider failure."""
    monkeypatch.setattr(retry, "PROVIDER_BACK_OFF", ())


@pytest.mark.usefixtures("_once")
def test_an_outage_is_an_error(oci_driver: SandboxDriver, tmp_path: Path) -> None:
    """If the provider fails for the agent and for the gateway's probes, the task is an error, not a failure."""
    with ScriptedProvider(SCRIPT, fault=always(Fail(500))) as provider:
        done = run_here(tmp_path, short_answers(tmp_path), Agent(program=COMMAND, provider=provider), oci_driver)
    record = only(done.records)
    assert (record["verification_status"], record["failure_reason"]) == ("error", "provider_unavailable")
    assert "provider-failed" in record["failure_message"]


@pytest.mark.usefixtures("_once")
def test_a_crash_is_its_failure(oci_driver: SandboxDriver, tmp_path: Path) -> None:
    """If the provider works, an agent whose program crashes has failed the task."""
    with ScriptedProvider(CRASH) as provider:
        done = run_here(tmp_path, short_answers(tmp_path), Agent(program=COMMAND, provider=provider), oci_driver)
    record = only(done.records)
    assert (record["verification_status"], record["producer_metadata"]["outcome"]) == ("failed", "crashed")


@pytest.mark.usefixtures("_once")
def test_a_provider_that_is_gone(oci_driver: SandboxDriver, tmp_path: Path) -> None:
    """If no process listens on the provider's port, the run ends with an error before the first task."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with ScriptedProvider(SCRIPT) as provider:
        config = {"base_url": f"http://127.0.0.1:{port}/v1"}
        agent = Agent(program=COMMAND, provider=provider, config=config)
        with pytest.raises(ProviderError) as raised:
            run_here(tmp_path, short_answers(tmp_path), agent, oci_driver)
    assert raised.value.code == "provider-unreachable"
