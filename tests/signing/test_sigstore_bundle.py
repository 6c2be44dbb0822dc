"""Sigstore bundles, made with a test authority. The tests connect only to this machine."""

from __future__ import annotations

import base64
import json
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import ConfigError
from securebench.signing.sigstore_bundle import (
    TRUST_VARIABLE,
    SigstoreIdentity,
    SigstoreSigner,
    trust_config,
    verify_sigstore_bundle,
)
from securebench.signing.statement import TEST_RESULT, Statement
from sigstore_authority import ISSUER, sigstore_authority, token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytest.importorskip("sigstore")

JOB = "https://ci.test/project/workflow"
SIGNER = SigstoreIdentity(JOB, ISSUER)
STATEMENT = Statement({"run.json": "a" * 64}, TEST_RESULT, {"result": "PASSED"}).to_bytes()


@pytest.fixture(autouse=True)
def only_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every connection to another machine."""
    connect = socket.socket.connect

    def local(self: socket.socket, address: Any) -> None:
        assert address[0] == "127.0.0.1", f"a connection to {address}"
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Simulate a GitLab job, whose identity token is in an environment variable, and trust the test authority."""
    for name in ("GITHUB_ACTIONS", "BUILDKITE", "CIRCLECI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", token(JOB))
    with sigstore_authority(tmp_path) as config:
        monkeypatch.setenv(TRUST_VARIABLE, str(config))
        yield


@pytest.mark.usefixtures("job")
def test_a_round_trip() -> None:
    """The signed statement is returned both by verifying the bundle and by the signer's ``open``."""
    signer = SigstoreSigner()
    signer.try_out()
    bundle = signer.sign(STATEMENT)
    assert verify_sigstore_bundle(bundle, SIGNER) == signer.open(bundle) == STATEMENT


@pytest.mark.usefixtures("job")
def test_a_bundle_is_checked_without_the_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle contains all proofs, so verifying it opens no connection, not even to the authority."""
    bundle = SigstoreSigner().sign(STATEMENT)

    def fail(_self: socket.socket, address: Any) -> None:
        raise AssertionError(address)

    monkeypatch.setattr(socket.socket, "connect", fail)
    assert verify_sigstore_bundle(bundle, SIGNER) == STATEMENT


@pytest.mark.usefixtures("job")
def test_only_the_expected_identity_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle is accepted only if exactly its subject and its issuer are expected.

    An empty expected subject or issuer is not a wildcard. A job with another identity cannot open the bundle.
    """
    bundle = SigstoreSigner().sign(STATEMENT)
    for identity, issuer in ((f"{JOB}2", ISSUER), (JOB, "https://other.test"), (JOB, ""), ("", ISSUER)):
        with pytest.raises(ValueError, match=r"."):
            verify_sigstore_bundle(bundle, SigstoreIdentity(identity, issuer))
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", token("https://ci.test/other"))
    with pytest.raises(ValueError, match=r"."):
        SigstoreSigner().open(bundle)


@pytest.mark.usefixtures("job")
def test_a_bundle_of_another_authority_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle of an untrusted authority is refused.

    Anyone can run an authority that certifies every identity.
    """
    (tmp_path / "other").mkdir()
    with sigstore_authority(tmp_path / "other") as config, monkeypatch.context() as patch:
        patch.setenv(TRUST_VARIABLE, str(config))
        bundle = SigstoreSigner().sign(STATEMENT)
        assert verify_sigstore_bundle(bundle, SIGNER) == STATEMENT
    with pytest.raises(ValueError, match=r"."):
        verify_sigstore_bundle(bundle, SIGNER)


def _entry(bundle: dict[str, Any]) -> Any:
    return bundle["verificationMaterial"]["tlogEntries"][0]


def _flipped(text: str) -> str:
    data = bytearray(base64.b64decode(text))
    data[-1] ^= 1
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    "change",
    [
        lambda bundle: bundle["dsseEnvelope"].update(payload=base64.b64encode(STATEMENT + b" ").decode()),
        lambda bundle: bundle["dsseEnvelope"].update(payloadType="text/plain"),
        lambda bundle: bundle["dsseEnvelope"].update(signatures=[]),
        lambda bundle: bundle["dsseEnvelope"]["signatures"].append(bundle["dsseEnvelope"]["signatures"][0]),
        lambda bundle: bundle["dsseEnvelope"]["signatures"][0].update(
            sig=_flipped(bundle["dsseEnvelope"]["signatures"][0]["sig"])
        ),
        lambda bundle: bundle.pop("dsseEnvelope"),
        lambda bundle: bundle["verificationMaterial"].update(tlogEntries=[]),
        lambda bundle: bundle["verificationMaterial"]["certificate"].update(
            rawBytes=_flipped(bundle["verificationMaterial"]["certificate"]["rawBytes"])
        ),
        lambda bundle: _entry(bundle).pop("inclusionPromise"),
        lambda bundle: _entry(bundle).pop("inclusionProof"),
        lambda bundle: _entry(bundle).update(integratedTime="1"),
        lambda bundle: _entry(bundle)["inclusionProof"].update(
            rootHash=_flipped(_entry(bundle)["inclusionProof"]["rootHash"])
        ),
        lambda bundle: _entry(bundle).update(canonicalizedBody=_flipped(_entry(bundle)["canonicalizedBody"])),
    ],
)
@pytest.mark.usefixtures("job")
def test_a_changed_bundle_is_refused(change: Callable[[Any], object]) -> None:
    """A bundle is refused if its statement, signature, certificate or a proof of the log was changed or removed."""
    bundle = json.loads(SigstoreSigner().sign(STATEMENT))
    change(bundle)
    with pytest.raises(ValueError, match=r"."):
        verify_sigstore_bundle(json.dumps(bundle).encode(), SIGNER)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b"null", b"[" * 100_000])
@pytest.mark.usefixtures("job")
def test_what_is_not_a_bundle_is_refused(data: bytes) -> None:
    """Data that is not a bundle raises a ValueError, whichever error the library raises."""
    with pytest.raises(ValueError, match=r"."):
        verify_sigstore_bundle(data, SIGNER)


@pytest.mark.usefixtures("job")
def test_a_job_without_an_identity_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """``try_out``, which is called before a run, fails if the CI job has no valid identity."""
    for environment in ({"GITLAB_CI": ""}, {"SIGSTORE_ID_TOKEN": "nonsense"}):
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            with pytest.raises(ConfigError, match="identity") as refused:
                SigstoreSigner().try_out()
            assert refused.value.code == "sigstore-failed"


@pytest.mark.usefixtures("job")
def test_an_authority_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the authority does not answer, signing raises a ``ConfigError``."""
    with sigstore_authority(tmp_path) as config:
        monkeypatch.setenv(TRUST_VARIABLE, str(config))
    with pytest.raises(ConfigError, match="did not sign") as refused:
        SigstoreSigner().sign(STATEMENT)
    assert refused.value.code == "sigstore-failed"


def test_the_keys_of_the_public_sigstore_are_part_of_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With neither a cache nor a network, the keys of the public Sigstore are loaded from the library."""
    monkeypatch.delenv(TRUST_VARIABLE, raising=False)
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    assert trust_config().trusted_root.get_fulcio_certs()


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the library is not installed, the error names the extra to install."""
    monkeypatch.setitem(sys.modules, "sigstore.models", None)
    with pytest.raises(ConfigError, match="not installed") as refused:
        trust_config()
    assert "securebench[sigstore]" in str(refused.value)


@pytest.mark.parametrize("content", [None, b"", b"{", b"{}", b"\xff"])
def test_a_damaged_trust_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None) -> None:
    """The error for a trust configuration that is missing or invalid names its file."""
    monkeypatch.setenv(TRUST_VARIABLE, str(tmp_path / "trust.json"))
    if content is not None:
        (tmp_path / "trust.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"trust\.json") as refused:
        trust_config()
    assert refused.value.code == "sigstore-failed"
