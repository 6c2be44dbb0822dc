"""The key in the sandbox, where a tester asks for that: the provider is reached through the proxy, nobody else is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
import trustme

from pack_files import row, write_pack
from real_agents.runs import CANARY, KEYS, PROGRAMS, Agent, in_world, run_here
from real_agents.searching import contents, holders
from securebench.egress.rules import ProxyRules
from securebench.testing.provider import ScriptedProvider
from securebench.testing.provider.scripts import solve
from securebench.testing.provider.server import Tls

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.oci import OciDriver

pytestmark = [pytest.mark.agents, pytest.mark.oci, pytest.mark.slow, pytest.mark.usefixtures("_with_ports")]

HOST: Final = "api.example.test"
_IN_SANDBOX: Final = "/workspace/ca.pem"


def certified(root: Path) -> Tls:
    """Write a certificate for the host, its key, and as an asset of a pack the authority that has signed it."""
    authority = trustme.CA()
    issued = authority.issue_cert(HOST)
    (root / "pack/assets").mkdir(parents=True)
    authority.cert_pem.write_to_path(root / "pack/assets/ca.pem")
    issued.private_key_pem.write_to_path(root / "key.pem")
    for number, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(root / "cert.pem", append=number > 0)
    return Tls(root / "cert.pem", root / "key.pem")


def rules_for(provider: ScriptedProvider) -> ProxyRules:
    """Return a world in which the host is that provider."""
    port = int(provider.url.rpartition(":")[2])
    return ProxyRules(names={HOST: ("127.0.0.1",)}, ports={443: port}, trusted=("127.0.0.0/8",))


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_key_that_is_passed_through(
    program: str, oci_driver: OciDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program speaks with its provider itself, over TLS; the record says so, and no file of the run has the key."""
    monkeypatch.setenv("SSL_CERT_FILE", _IN_SANDBOX)
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", _IN_SANDBOX)
    with ScriptedProvider(solve("short_answer", "4"), tls=certified(tmp_path)) as provider:
        config: dict[str, Any] = {"base_url": f"https://{HOST}/v1", "credentials": "passthrough"}
        names = ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", KEYS[program]]
        agent = Agent(program=program, provider=provider, config=config, env=names)
        pack = write_pack(tmp_path / "pack", row("short_answer", assets=[{"path": "ca.pem"}]))
        done = run_here(tmp_path, pack, agent, oci_driver, parts=in_world(rules_for(provider)))
        assert provider.keys_seen == {CANARY}
    (record,) = done.records
    assert record["verification_status"] == "passed", (record, done.said)
    assert record["provenance"]["agent"]["credentials"] == "passthrough"
    assert record["provenance"]["agent"]["assurance"].startswith("lower")
    by_agent = [line for line in done.egress if line["kind"] != "probe"]  # the run asks once before the first task
    assert {(line["kind"], line["host"], line["decision"]) for line in by_agent} <= {
        ("connect", HOST, "allowed"),
        ("connect", HOST, "closed"),
    }
    assert holders(CANARY, contents(done.directory.rglob("*"))) == []
