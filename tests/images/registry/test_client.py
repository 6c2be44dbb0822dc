"""Registries that require authentication or redirect: which server receives which credentials."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING

import pytest

from fake_registry import fake_registry
from fake_server import breaks_after, redirects, says
from pulling import MemorySink, pull
from securebench.errors import ImageError
from securebench.images.registry.client import Challenge, parse_challenge, registry_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from fake_registry import FakeRegistry

ROOT = b"root" * 1000
LOGIN = "user:pass word:1"


@pytest.fixture
def other() -> Iterator[FakeRegistry]:
    """Start a second server, which is another origin because its port differs, and return it."""
    with fake_registry() as server:
        yield server


def log_in(docker_config: Path, registry: str, login: str = LOGIN) -> None:
    """Store credentials as ``docker login`` does."""
    entry = {"auth": b64encode(login.encode()).decode()}
    (docker_config / "config.json").write_text(json.dumps({"auths": {registry: entry}}))


def refused(reference: str) -> ImageError:
    """Return the error with which the download of an image fails."""
    with pytest.raises(ImageError) as raised:
        pull(reference)
    return raised.value


def layer_of(registry: FakeRegistry) -> str:
    """Return the digest of the only layer of the image with the tag ``1``."""
    manifest = json.loads(registry.blobs["1"].data)
    return str(manifest["layers"][0]["digest"])


def test_a_token_is_got_and_used(registry: FakeRegistry) -> None:
    """After a challenge, a token is requested once, and sent with the request for the layer."""
    reference = registry.add_image(ROOT)
    registry.tokens = {"secret"}
    pull(reference)
    assert len(registry.requests_for("/token")) == 1
    (request,) = registry.requests_for("/token")
    assert request.path == "/token?service=fake&scope=repository%3Abase%3Apull"
    assert registry.requests_for(layer_of(registry))[0].headers["authorization"] == "Bearer secret"


def test_a_token_that_expires_is_got_anew(registry: FakeRegistry) -> None:
    """If the token expires during a download, the download continues with a new token."""
    reference = registry.add_image(ROOT)
    registry.tokens = {"first"}

    class Expiring(MemorySink):
        def has(self, digest: str) -> bool:
            registry.tokens = {"second"}
            return super().has(digest)

    pull(reference, Expiring())
    assert registry.requests_for(layer_of(registry))[-1].headers["authorization"] == "Bearer second"


def test_credentials_go_to_the_token_server(registry: FakeRegistry, docker_config: Path) -> None:
    """Credentials stored by ``docker login`` are sent only to the token server, which returns a token."""
    reference = registry.add_image(ROOT)
    registry.tokens, registry.logins = {"secret"}, {LOGIN}
    log_in(docker_config, registry.host)
    pull(reference)
    paths = {request.path.partition("?")[0] for request in registry.requests if "Basic" in _sent(request.headers)}
    assert paths == {"/token"}


def test_a_registry_that_wants_a_password_gets_it(registry: FakeRegistry, docker_config: Path) -> None:
    """A registry without a token server receives the credentials themselves."""
    reference = registry.add_image(ROOT)
    registry.basic, registry.logins = True, {LOGIN}
    log_in(docker_config, registry.host)
    assert pull(reference).layers


@pytest.mark.parametrize("basic", [True, False])
def test_wrong_credentials_are_said(registry: FakeRegistry, docker_config: Path, basic: bool) -> None:
    """J15: the error for refused credentials says so, and does not contain the password."""
    reference = registry.add_image(ROOT)
    registry.tokens, registry.logins, registry.basic = {"secret"}, {LOGIN}, basic
    log_in(docker_config, registry.host, "user:wrong-one")
    error = refused(reference)
    assert error.code == "registry-denied"
    assert "refused the credentials" in error.hint
    assert "wrong-one" not in str(error)


def test_a_private_image_says_how_to_log_in(registry: FakeRegistry) -> None:
    """Without credentials, the error for a private image says how to log in."""
    reference = registry.add_image(ROOT)
    registry.basic = True
    error = refused(reference)
    assert error.code == "registry-denied"
    assert f"docker login {registry.host}" in error.hint


def test_credentials_of_another_registry_are_not_sent(
    registry: FakeRegistry, other: FakeRegistry, docker_config: Path
) -> None:
    """Credentials that are stored for another port of the same host are not sent."""
    reference = registry.add_image(ROOT)
    registry.basic, registry.logins = True, {LOGIN}
    log_in(docker_config, other.host)
    assert refused(reference).code == "registry-denied"
    assert not any(_sent(request.headers) for request in registry.requests)


def test_blobs_from_elsewhere_are_asked_for_without_credentials(registry: FakeRegistry, other: FakeRegistry) -> None:
    """J09: a redirect to another server is followed, and the token is not sent there."""
    reference = registry.add_image(ROOT)
    registry.tokens = {"secret"}
    digest = layer_of(registry)
    other.add(registry.blobs[digest])
    registry.faults[digest] = [redirects(f"http://{other.host}/storage/{digest}?signature=abc")]
    sink = MemorySink()
    pull(reference, sink)
    assert sink.blobs
    assert [request.path for request in other.requests] == [f"/storage/{digest}?signature=abc"]
    assert not _sent(other.requests[0].headers)


def test_a_redirect_within_the_registry_keeps_the_token(registry: FakeRegistry) -> None:
    """A redirect to the same host and port is followed with the token."""
    reference = registry.add_image(ROOT)
    registry.tokens = {"secret"}
    digest = layer_of(registry)
    registry.faults[f"base/blobs/{digest}"] = [redirects(f"/elsewhere/{digest}")]
    assert pull(reference).layers
    assert _sent(registry.requests_for(f"/elsewhere/{digest}")[0].headers) == "Bearer secret"


def test_a_token_server_elsewhere_is_not_followed_further(registry: FakeRegistry, other: FakeRegistry) -> None:
    """J09: a redirect of the token server is not followed, because the token server receives the credentials."""
    reference = registry.add_image(ROOT)
    registry.tokens = {"secret"}
    registry.faults["/token"] = [redirects(f"http://{other.host}/token")]
    assert refused(reference).code == "registry-answer-invalid"
    assert not other.requests


@pytest.mark.parametrize("location", ["", "http://registry.example/x", "file:///etc/passwd", "http://u:p@127.0.0.1/x"])
def test_a_redirect_off_the_way_is_refused(registry: FakeRegistry, location: str) -> None:
    """J09: a redirect is refused if it is empty, has a password, or leads to a file or a remote host without TLS."""
    reference = registry.add_image(ROOT)
    registry.faults["/manifests/1"] = [redirects(location)] * 9
    assert refused(reference).code == "registry-answer-invalid"


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"{}", b'{"token": 1}', b'{"token": "a b"}', b'{"token": "a\\r\\nX: y"}', b"{" * 100_000, b"\xff"],
)
def test_a_token_that_is_none_is_refused(registry: FakeRegistry, answer: bytes) -> None:
    """An invalid response of the token server is refused before its token becomes part of a header."""
    reference = registry.add_image(ROOT)
    registry.tokens = {"secret"}
    registry.faults["/token"] = [says(200, answer)]
    assert refused(reference).code == "registry-answer-invalid"


@pytest.mark.parametrize("challenge", ["", "Negotiate", 'Bearer service="x"'])
def test_a_challenge_that_cannot_be_met_is_a_refusal(registry: FakeRegistry, challenge: str) -> None:
    """A challenge that is empty, unsupported or lacks the token server's address is reported as denied access."""
    reference = registry.add_image(ROOT)
    registry.faults["/manifests/1"] = [says(401, WWW_Authenticate=challenge)]
    assert refused(reference).code == "registry-denied"


@pytest.mark.parametrize(
    ("header", "meant"),
    [
        (
            'Bearer realm="https://a/t",service="s",scope="x:y:pull,push"',
            Challenge("https://a/t", "s", "x:y:pull,push"),
        ),
        ('bearer Realm="https://a/t"', Challenge("https://a/t")),
        ('Basic realm="x", Bearer realm="https://a/t",service="s"', Challenge("https://a/t", "s")),
        ('Basic realm="bearer "', Challenge()),
        ("BASIC", Challenge()),
        ('Digest realm="basic"', None),
        ("Bearer", None),
    ],
)
def test_a_challenge_is_understood(header: str, meant: Challenge | None) -> None:
    """A challenge is parsed whatever the case of its letters, and a token is preferred to a password."""
    assert parse_challenge(header) == meant


def test_a_body_that_is_cut_is_not_a_document(registry: FakeRegistry) -> None:
    """If the connection breaks in the middle of a manifest, the manifest is requested again."""
    reference = registry.add_image(ROOT)
    manifest = registry.blobs["1"]
    registry.faults["/manifests/1"] = [breaks_after(10)]
    assert pull(reference).manifest == manifest.data


def test_docker_hub_is_asked_where_it_answers() -> None:
    """The API of the default registry is not at docker.io, which is a web site; only a local registry needs no TLS."""
    assert registry_address("docker.io").origin == "https://registry-1.docker.io:443"
    assert registry_address("registry.example.com:5000").origin == "https://registry.example.com:5000"
    assert registry_address("localhost:5000").origin == "http://localhost:5000"


def _sent(headers: Mapping[str, str]) -> str:
    return headers.get("authorization", "")
