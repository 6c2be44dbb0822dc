"""Attempts to reach anything outside, made from inside an agent's sandbox: they are denied and logged."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest
import trustme

from real_agents.mixed import one_task
from real_agents.runs import APIS, CANARY, COMMAND, MODEL, Agent, every_agent, in_world, run_here
from securebench.egress.relay.providers.base import QUESTION
from securebench.egress.rules import ProxyRules
from securebench.testing.egress_world import LoopbackServer, echo, hello_world
from securebench.testing.provider import ScriptedProvider
from securebench.testing.provider.attacks import ALLOWED, DENIED, DONE, LINES, Targets
from securebench.testing.provider.scripts import attack_budget, attack_everything

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("_with_ports")]

ALLOWED_HOST: Final = "allowed.example"
PATHS: Final = {
    "codex": {"/v1/responses", "/v1/models"},
    "claude_code": {"/v1/messages", "/v1/messages/count_tokens"},
    "command": {"/v1/chat/completions"},
    "model": {"/v1/chat/completions"},
}


@dataclass
class Outside:
    """The outside of the sandbox: rules that lead to an allowed host, and a forbidden service's port and visitors."""

    rules: ProxyRules
    service: int
    visits: list[Any]


@pytest.fixture
def outside() -> Iterator[Outside]:
    """Serve the allowed host on servers of the test, and the forbidden service on all addresses of this host."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(ALLOWED_HOST).configure_cert(context)
    with ExitStack() as stack, _service() as (port, visits):
        tls, plain = LoopbackServer(echo, context), LoopbackServer(hello_world)
        stack.callback(tls.close)
        stack.callback(plain.close)
        names = {ALLOWED_HOST: ("127.0.0.1",)}
        yield Outside(
            ProxyRules(names=names, ports={443: tls.port, 80: plain.port}, trusted=("127.0.0.0/8",)), port, visits
        )


@contextmanager
def _service() -> Iterator[tuple[int, list[Any]]]:
    """Listen on all addresses of this host. Yield the port, and the list to which each client's address is added."""
    visits: list[Any] = []
    with socket.create_server(("", 0)) as listener:

        def take() -> None:
            with suppress(OSError):
                while True:
                    connection, address = listener.accept()
                    visits.append(address)
                    connection.close()

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        yield listener.getsockname()[1], visits
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def _own_addresses() -> tuple[str, ...]:
    """Return addresses of this host other than loopback: that of its default route, and that of Docker's bridge."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return (probe.getsockname()[0], "172.17.0.1")


def attempts_of(out: Path) -> list[dict[str, str]]:
    """Return the attempts that the attack recorded in its workspace."""
    (lines,) = out.glob(f"workspaces/*/{LINES}")
    return [json.loads(line) for line in lines.read_text().splitlines()]


@pytest.mark.timeout(240)
@every_agent
def test_every_escape_is_denied_and_logged(
    program: str, driver: SandboxDriver, outside: Outside, tmp_path: Path
) -> None:
    """An agent that makes over 150 attempts reaches only the allowed host and its model, and denials are logged."""
    targets = Targets(
        api=APIS[program],
        model=MODEL,
        allowed=ALLOWED_HOST,
        host=_own_addresses(),
        port=outside.service,
    )
    with ScriptedProvider(attack_everything(targets)) as provider:
        agent = Agent(program=program, provider=provider, config={"allowed_domains": [ALLOWED_HOST]})
        done = run_here(tmp_path, one_task(tmp_path, program), agent, driver, parts=in_world(outside.rules))
        requests = [request for request in provider.requests if request.method != "HEAD"]
        assert provider.keys_seen == {CANARY}
    attempts = attempts_of(done.directory)
    assert len(attempts) > 150
    outcomes = {a["attempt"]: a["outcome"] for a in attempts if a["outcome"] != DONE}
    assert outcomes == {name: ALLOWED if name.startswith("control") else DENIED for name in outcomes}
    assert outside.visits == []
    assert {request.path.partition("?")[0] for request in requests} <= PATHS[program]
    assert {request.body["model"] for request in requests if request.body} == {MODEL}
    _hold_the_log_to(attempts, done.egress)


def _hold_the_log_to(attempts: list[dict[str, str]], log: list[dict[str, Any]]) -> None:
    """Check that every denial in the log has a reason, and that the proxy and the relay logged enough denials."""
    denied = [line for line in log if line["decision"] == "denied"]
    assert all(line["reason"] for line in denied)
    through_proxy = [a for a in attempts if a["attempt"].startswith(("CONNECT", "TLS ", "plain HTTP"))]
    assert len([line for line in denied if line["kind"] in {"connect", "http"}]) >= len(through_proxy)
    assert len([line for line in denied if line["kind"] == "relay"]) > 30


@pytest.mark.oci
@every_agent
def test_a_budget_ends(program: str, oci_driver: SandboxDriver, outside: Outside, tmp_path: Path) -> None:
    """An agent that requests answers until its budget is used up has failed, and gets no answer beyond the budget."""
    targets = Targets(api=APIS[program], model=MODEL)
    with ScriptedProvider(attack_budget(targets, most=100)) as provider:
        # The price of 20 answers with 34 output tokens each, at 1 USD per million tokens.
        money = {"budget": {"usd": 0.00068}, "prices": {"input": 0, "output": 1}}
        limit = money if program == COMMAND else {"budget": {"requests": 20}}
        agent = Agent(program=program, provider=provider, config=limit)
        done = run_here(tmp_path, one_task(tmp_path, program), agent, oci_driver)
        prompts = [request.conversation.prompt for request in provider.requests if request.conversation]
        assert len([prompt for prompt in prompts if QUESTION not in prompt]) <= 20  # without the run's own probe
    (record,) = done.records
    assert (record["verification_status"], record["failure_reason"]) == ("failed", "agent_out_of_budget")
    assert record["producer_metadata"]["outcome"] == "out_of_budget"
