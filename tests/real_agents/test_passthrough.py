"""Runs with ``credentials: passthrough``: the key is in the sandbox, and the proxy allows only the provider."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar, Final
from zlib import crc32

import pytest
import trustme

from pack_files import row, write_pack
from real_agents.runs import CANARY, KEYS, MODEL, PROGRAMS, Agent, in_world, run_here
from real_agents.searching import contents, holders
from securebench.egress.rules import ProxyRules
from securebench.testing.provider import ScriptedProvider, anthropic_wire
from securebench.testing.provider.answering import BACKGROUND
from securebench.testing.provider.scripts import solve
from securebench.testing.provider.server import Tls
from securebench.testing.provider.steps import answer_at

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.oci import OciDriver

pytestmark = [pytest.mark.agents, pytest.mark.oci, pytest.mark.slow, pytest.mark.usefixtures("_with_ports")]

HOST: Final = "api.example.test"
_IN_SANDBOX: Final = "/workspace/ca.pem"


def certified(root: Path, host: str = HOST) -> Tls:
    """Write a certificate for ``host`` and its private key. The authority's certificate is an asset of the pack."""
    authority = trustme.CA()
    issued = authority.issue_cert(host)
    (root / "pack/assets").mkdir(parents=True)
    authority.cert_pem.write_to_path(root / "pack/assets/ca.pem")
    issued.private_key_pem.write_to_path(root / "key.pem")
    for number, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(root / "cert.pem", append=number > 0)
    return Tls(root / "cert.pem", root / "key.pem")


def rules_for(provider: ScriptedProvider) -> ProxyRules:
    """Return proxy rules in which the name ``HOST`` leads to ``provider``."""
    port = int(provider.url.rpartition(":")[2])
    return ProxyRules(names={HOST: ("127.0.0.1",)}, ports={443: port}, trusted=("127.0.0.0/8",))


CLOUD: Final = "bedrock-runtime.us-east-1.amazonaws.com"


def framed(event: bytes) -> bytes:
    """Return a message of an AWS event stream that contains one event of a model."""
    payload = json.dumps({"bytes": b64encode(event).decode()}).encode()
    headers = b"".join(
        bytes([len(name)]) + name + b"\x07" + len(value).to_bytes(2, "big") + value
        for name, value in (
            (b":event-type", b"chunk"),
            (b":content-type", b"application/json"),
            (b":message-type", b"event"),
        )
    )
    prelude = (len(payload) + len(headers) + 16).to_bytes(4, "big") + len(headers).to_bytes(4, "big")
    message = prelude + crc32(prelude).to_bytes(4, "big") + headers + payload
    return message + crc32(message).to_bytes(4, "big")


class Bedrock(BaseHTTPRequestHandler):
    """A server of Amazon Bedrock's streaming API for Anthropic's models, with a scripted model that solves a task."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, str]]] = []
    """The path and the credentials of each request."""

    def do_POST(self) -> None:
        """Answer with the next step of the script."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.seen.append((self.path, self.headers.get("authorization", "")))
        conversation = anthropic_wire.read({**body, "model": MODEL, "stream": True})
        step = answer_at(solve("short_answer", "4"), len(conversation.results))
        reply = anthropic_wire.render(BACKGROUND if conversation.is_background else step, conversation)
        data = b"".join(framed(piece.partition(b"data: ")[2].strip()) for piece in reply.pieces)
        self.send_response(200)
        self.send_header("content-type", "application/vnd.amazon.eventstream")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in http.server
        """Log nothing."""


@pytest.mark.long
def test_a_cloud(oci_driver: OciDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claude Code uses Bedrock with the tester's token in the sandbox, and the recorded assurance is ``lower``."""
    variables = {
        "CLAUDE_CODE_USE_BEDROCK": "1",
        "AWS_REGION": "us-east-1",
        "AWS_BEARER_TOKEN_BEDROCK": CANARY,
        "SSL_CERT_FILE": _IN_SANDBOX,
        "NODE_EXTRA_CA_CERTS": _IN_SANDBOX,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name in KEYS.values():
        monkeypatch.delenv(name, raising=False)
    tls = certified(tmp_path, CLOUD)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bedrock)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, daemon=True).start()
    rules = ProxyRules(names={CLOUD: ("127.0.0.1",)}, ports={443: server.server_port}, trusted=("127.0.0.0/8",))
    config = {"model": "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "allowed_domains": [CLOUD], "base_url": None}
    with ScriptedProvider(solve("short_answer", "4")) as unused, server:
        agent = Agent(
            program="claude_code",
            provider=unused,
            config={**config, "credentials": "passthrough"},
            env=list(variables),
            has_key=False,
        )
        pack = write_pack(tmp_path / "pack", row("short_answer", assets=[{"path": "ca.pem"}]))
        done = run_here(tmp_path, pack, agent, oci_driver, parts=in_world(rules))
        server.shutdown()
    (record,) = done.records
    assert record["verification_status"] == "passed", (record, done.output)
    assert record["provenance"]["agent"]["endpoint"] == "CLAUDE_CODE_USE_BEDROCK"
    assert record["provenance"]["agent"]["assurance"].startswith("lower")
    assert {key for _, key in Bedrock.seen} == {f"Bearer {CANARY}"}
    allowed = {line["host"] for line in done.egress if line["decision"] == "allowed"}
    assert {host.replace("<redacted>", "us-east-1") for host in allowed} == {
        CLOUD
    }  # values of harness.env are redacted
    assert holders(CANARY, contents(done.directory.rglob("*"))) == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_key_that_is_passed_through(
    program: str, oci_driver: OciDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent program with the key in its sandbox uses its provider over TLS.

    The recorded assurance is ``lower``, and no file of the run contains the key.
    """
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
    assert record["verification_status"] == "passed", (record, done.output)
    assert record["provenance"]["agent"]["credentials"] == "passthrough"
    assert record["provenance"]["agent"]["assurance"].startswith("lower")
    by_agent = [line for line in done.egress if line["kind"] != "probe"]  # probes are the run's own
    assert {(line["kind"], line["host"], line["decision"]) for line in by_agent} <= {
        ("connect", HOST, "allowed"),
        ("connect", HOST, "closed"),
    }
    assert holders(CANARY, contents(done.directory.rglob("*"))) == []
