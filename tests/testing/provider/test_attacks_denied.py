"""Attacks on egress, keys and the budget, in real sandboxes whose traffic goes through the real gateway."""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING, NamedTuple

import pytest

from provider_client import APIS, PATHS
from securebench.egress.model import EgressPlan, Provider, RelayPlan
from securebench.sandboxes.base import BASE_ENVIRONMENT, Command, Mount, SandboxSpec, workspace_user
from securebench.testing.egress_world import world
from securebench.testing.provider import Say, ScriptedProvider
from securebench.testing.provider.attacks import ALLOWED, DENIED, DONE, LINES, LOOT, Targets, attack
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.egress.gateway import EgressSession
    from securebench.egress.model import EgressReport
    from securebench.images.model import ResolvedImage
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import SandboxDriver
    from securebench.testing.provider import Received

KEY = "sk-canary-of-the-host-0123456789"
ALLOWED_HOST, OTHER_HOST = "allowed.example", "other.example"


class Attacked(NamedTuple):
    """The results of an attack: outcomes by attempt, the loot, and what the gateway and the provider recorded."""

    outcomes: Mapping[str, str]
    loot: bytes
    report: EgressReport
    log: list[Mapping[str, JsonValue]]
    received: tuple[Received, ...]
    keys: frozenset[str]


class Bench(NamedTuple):
    """The driver, the image and the workspace of the sandboxes in which attacks are made."""

    driver: SandboxDriver
    image: ResolvedImage
    workspace: Path

    def attack(self, api: str, *kinds: str, requests: int = 1000, most: int = 1000) -> Attacked:
        """Make the attempts of ``kinds`` in a sandbox with a proxy and a relay, and return the results."""
        hosts = {OTHER_HOST: ("127.0.0.1",)}
        with (
            ScriptedProvider((Say("x"),)) as provider,
            world(ALLOWED_HOST, addresses=hosts) as outside,
            socket.create_server(("0.0.0.0", 0)) as listener,
        ):
            relay = RelayPlan(
                provider=Provider(api),
                base_url=provider.url + ("/v1beta" if api == "gemini" else "/v1"),
                key=KEY,
                model="scripted-model",
                requests=requests,
                tokens=10**9,
                bytes=10**9,
            )
            targets = Targets(api=api, allowed=ALLOWED_HOST, other=OTHER_HOST, port=listener.getsockname()[1])
            with outside.gateway.open(TrialId("task"), EgressPlan(domains=(ALLOWED_HOST,), relay=relay)) as session:
                self._run(attack(*kinds, targets=targets, most=most).command, session)
                report = session.close()
            lines = [json.loads(line) for line in (self.workspace / LINES).read_text().splitlines()]
            loot = self.workspace / LOOT
            return Attacked(
                {line["attempt"]: f"{line['outcome']}" for line in lines},
                loot.read_bytes() if loot.exists() else b"",
                report,
                outside.log,
                provider.requests,
                provider.keys_seen,
            )

    def _run(self, command: str, session: EgressSession) -> None:
        spec = SandboxSpec(
            image=self.image,
            mounts=(Mount(self.workspace, "/workspace", read_only=False),),
            environment={
                **BASE_ENVIRONMENT,
                **session.environment,
                "SECUREBENCH_TASK_FILE": "/workspace/task.json",
                "OPENAI_API_KEY": "placeholder",
            },
            workdir="/workspace",
            forwarded_ports=session.forwarded_ports,
        )
        with self.driver.create(spec) as sandbox:
            result = sandbox.run(Command(argv=("/bin/sh", "-c", command), timeout_seconds=90))
        assert result.exit_code == 0, result.stderr


@pytest.fixture(name="bench")
def _bench(_with_ports: None, driver: SandboxDriver, base_image: ResolvedImage, tmp_path: Path) -> Bench:
    """Return a bench with real sandboxes and an empty workspace."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    if os.getuid() == 0:
        os.chown(workspace, *workspace_user())
    return Bench(driver, base_image, workspace)


def _not_denied(attacked: Attacked) -> set[str]:
    """Return the names of the attempts whose outcome is neither ``denied`` nor ``done``."""
    return {name for name, outcome in attacked.outcomes.items() if outcome not in {DENIED, DONE}}


def test_nothing_gets_past_the_proxy(bench: Bench) -> None:
    """Only the tunnel to the allowed host is opened. At least one denial is logged per other CONNECT attempt."""
    attacked = bench.attack("openai", "direct", "proxy")
    assert _not_denied(attacked) == {"control: CONNECT to the allowed host"}
    assert attacked.outcomes["control: CONNECT to the allowed host"] == ALLOWED
    attempted = [name for name in attacked.outcomes if name.startswith("CONNECT to")]
    assert attacked.report.decisions["allowed"] >= 1
    denied = [line for line in attacked.log if line["decision"] == "denied"]
    assert len(denied) >= len(attempted)


@pytest.mark.parametrize("api", APIS)
def test_nothing_but_answers_of_the_model_gets_past_the_relay(bench: Bench, api: str) -> None:
    """All requests that reach the provider have the permitted path and model, the host's key, and no tools."""
    attacked = bench.attack(api, "relay")
    assert _not_denied(attacked) == {"control: an answer of the model"}
    assert attacked.keys == {KEY}
    assert attacked.received
    for received in attacked.received:
        assert (received.method, received.path) == ("POST", PATHS[api].replace("/m:", "/scripted-model:"))
        assert received.body is not None
        assert api == "gemini" or received.body["model"] == "scripted-model"
        assert received.body.get("model") in ("scripted-model", None)
        assert "tools" not in received.body
        assert OTHER_HOST not in json.dumps([received.body, dict(received.headers)])


def test_no_key_is_to_be_found(bench: Bench) -> None:
    """An attack on keys finds the placeholder. It does not find the host's key, in plain text or encoded."""
    attacked = bench.attack("openai", "keys")
    assert b"placeholder" in attacked.loot
    encoded = (KEY.encode(), KEY.encode().hex().encode(), b"c2stY2FuYXJ5", KEY[::-1].encode(), b"of-the-host")
    assert not [found for found in encoded if found in attacked.loot]


@pytest.mark.parametrize("api", APIS)
def test_nobody_spends_more_than_the_budget(bench: Bench, api: str) -> None:
    """The relay forwards only as many requests as the budget allows. It refuses the next one."""
    attacked = bench.attack(api, "budget", requests=5, most=50)
    assert attacked.outcomes == {"50 answers in a row": DENIED}
    assert len(attacked.received) == 5
