"""Keys in an ssh-agent: a real agent signs, and a broken agent causes an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from securebench.errors import ConfigError
from securebench.signing.dsse import Envelope
from securebench.signing.key_files import load_public, load_signer
from securebench.signing.keys import PrivateKey
from securebench.signing.ssh_agent import AgentKey
from ssh_agents import answering, make_ssh_key, ssh_agent

if TYPE_CHECKING:
    from pathlib import Path


def none() -> bytes:
    """Fail the test: no passphrase may be requested for a key without one."""
    raise AssertionError


def test_the_agent_signs_for_a_public_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the key file is a public key, the ssh-agent signs. The file of the private key is not needed."""
    key, other = make_ssh_key(tmp_path / "id"), make_ssh_key(tmp_path / "other", "ecdsa")
    with ssh_agent(other, key) as address:
        monkeypatch.setenv("SSH_AUTH_SOCK", address)
        key.unlink()
        signer = load_signer(tmp_path / "id.pub", none)
        envelope = Envelope.sign("text/plain", b"payload", signer)
    envelope.verify(load_public(tmp_path / "id.pub", none))


def test_an_agent_without_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the ssh-agent does not have the key, the error contains the key's fingerprint."""
    with ssh_agent(make_ssh_key(tmp_path / "id")) as address:
        monkeypatch.setenv("SSH_AUTH_SOCK", address)
        public = PrivateKey.new().public
        with pytest.raises(ConfigError, match="does not have the key SHA256:") as error:
            AgentKey.find(public)
    assert public.fingerprint in error.value.message


def test_no_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``ConfigError`` is raised if SSH_AUTH_SOCK is not set or is not the path of an agent's socket."""
    public = PrivateKey.new().public
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(ConfigError, match="SSH_AUTH_SOCK is not set"):
        AgentKey.find(public)
    for address in (tmp_path / "none", "x" * 500):
        monkeypatch.setenv("SSH_AUTH_SOCK", str(address))
        with pytest.raises(ConfigError, match="does not answer as expected"):
            AgentKey.find(public)


def string(data: bytes) -> bytes:
    """Return ``data``, preceded by its length in four bytes."""
    return len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0\0",
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        string(b"\x05"),
        string(b"\x0c")[:-1],
        string(b"\x0c"),
        string(b"\x0c\xff\xff\xff\xff"),
        string(b"\x0c\0\0\0\x01\xff\xff\xff\xff"),
    ],
    ids=["closed", "cut", "empty", "huge", "failure", "no content", "no number", "endless", "long string"],
)
def test_a_broken_agent(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the ssh-agent sends a failure, a malformed answer or nothing, the key is reported as unusable."""
    with answering(answer) as address:
        monkeypatch.setenv("SSH_AUTH_SOCK", address)
        with pytest.raises(ConfigError) as error:
            AgentKey.find(PrivateKey.new().public)
    assert error.value.code == "key-unusable"


@pytest.mark.parametrize(
    "answer",
    [string(b"\x05"), string(b"\x0e"), string(b"\x0e" + string(string(b"ssh-rsa") + string(b"s" * 64)))],
    ids=["refused", "empty", "another algorithm"],
)
def test_an_agent_that_does_not_sign(answer: bytes) -> None:
    """If the ssh-agent refuses to sign, or sends no Ed25519 signature, the key is reported as unusable."""
    with answering(answer) as address, pytest.raises(ConfigError) as error:
        AgentKey(PrivateKey.new().public, address).sign(b"data")
    assert error.value.code == "key-unusable"
