"""The npm registry: versions, archives, and errors. Downloads as such are tested in tests/http."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fake_npm import integrity
from fake_server import Content, breaks_after, redirects, says
from securebench.agents import registry as registry_module
from securebench.agents.registry import REGISTRY, NpmRegistry, PackageRelease, configured
from securebench.errors import ConfigError, InfrastructureError

if TYPE_CHECKING:
    from pathlib import Path

    from fake_npm import FakeNpm

NAME = "@scope/tool"
DATA = bytes(range(256)) * 1024


def fetched(registry: NpmRegistry, integrity: str = integrity(DATA)) -> bytes:
    """Return the archive of the version 1.2.3."""
    with registry.archive(NAME, PackageRelease("1.2.3", integrity)) as pieces:
        return b"".join(pieces)


def test_a_version_and_a_tag_are_looked_up(npm: FakeNpm, registry: NpmRegistry) -> None:
    """A version and a tag are both resolved to an exact version and the digest of its archive."""
    integrity = npm.publish(NAME, "1.2.3", DATA, tags=("latest",))
    assert registry.release(NAME, "latest") == ("1.2.3", integrity)
    assert registry.release(NAME, "1.2.3") == ("1.2.3", integrity)


def test_an_archive_has_a_conventional_address(npm: FakeNpm, registry: NpmRegistry) -> None:
    """An archive is requested at its usual path on the registry, not at the URL in the registry's document."""
    npm.publish(NAME, "1.2.3", DATA)
    assert fetched(registry) == DATA
    assert [request.path for request in npm.requests] == ["/@scope/tool/-/tool-1.2.3.tgz"]


def test_a_broken_connection_is_resumed(npm: FakeNpm, registry: NpmRegistry) -> None:
    """After a connection breaks, only the missing bytes are requested."""
    npm.publish(NAME, "1.2.3", DATA)
    npm.faults[".tgz"] = [breaks_after(1000)]
    assert fetched(registry) == DATA
    assert [request.start for request in npm.requests] == [0, 1000]


@pytest.mark.parametrize("wanted", [integrity(b"another"), "sha512-short", ""])
def test_another_archive_is_refused(npm: FakeNpm, registry: NpmRegistry, wanted: str) -> None:
    """An archive is refused if its hash is not the expected one, or if the expected hash is invalid."""
    npm.publish(NAME, "1.2.3", DATA)
    with pytest.raises(InfrastructureError, match="is not the expected file") as caught:
        fetched(registry, wanted)
    assert caught.value.code == "agent-integrity"


@pytest.mark.parametrize("status", [401, 403, 418, 500])
def test_a_registry_that_refuses_is_unavailable(npm: FakeNpm, registry: NpmRegistry, status: int) -> None:
    """The error contains the HTTP status, and how to install a program without the registry."""
    npm.faults[".tgz"] = [says(status)] * 5
    with pytest.raises(InfrastructureError, match=str(status)) as caught:
        fetched(registry)
    assert caught.value.code == "agent-unavailable"
    assert "agents install --from" in caught.value.hint


def test_a_missing_version_is_unknown(npm: FakeNpm, registry: NpmRegistry) -> None:
    """A version that the registry does not have is a configuration error, not a network error."""
    with pytest.raises(ConfigError, match=r"does not have @scope/tool 9\.9\.9") as caught:
        registry.release(NAME, "9.9.9")
    assert caught.value.code == "agent-unknown-version"


def test_a_registry_that_cannot_be_reached_is_unavailable() -> None:
    """If the connection is refused, the error names the registry."""
    with pytest.raises(InfrastructureError, match=r"127\.0\.0\.1:9 cannot provide .*: Connection refused") as caught:
        NpmRegistry("http://127.0.0.1:9").release(NAME, "latest")
    assert caught.value.code == "agent-unavailable"


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b'"text"', b"{", b'{"version": 1, "dist": {}}', b'{"version": "1.2.3"}', b"\xff", b"[" * 100_000],
)
def test_an_invalid_document_is_refused(npm: FakeNpm, registry: NpmRegistry, document: bytes) -> None:
    """A response that does not describe a package, such as the page of a captive portal, is refused."""
    npm.files[f"/{NAME}/latest"] = Content(document)
    with pytest.raises(InfrastructureError, match="does not describe a package") as caught:
        registry.release(NAME, "latest")
    assert caught.value.code == "agent-unavailable"


@pytest.mark.parametrize("integrity", ["", "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=", "sha512-short", None, 5])
def test_a_version_without_a_sha512_is_refused(npm: FakeNpm, registry: NpmRegistry, integrity: object) -> None:
    """A version without a valid sha512 hash is refused, because its archive cannot be checked."""
    npm.publish(NAME, "1.2.3", DATA, integrity=integrity)
    with pytest.raises(InfrastructureError, match="no sha512") as caught:
        registry.release(NAME, "1.2.3")
    assert caught.value.code == "agent-integrity"
    assert "to a registry that has this hash" in str(caught.value.hint)
    assert "PROXY" not in str(caught.value.hint)


def test_the_sha512_is_found_among_other_hashes(npm: FakeNpm, registry: NpmRegistry) -> None:
    """The sha512 hash is used if the integrity contains several hashes, separated by spaces."""
    integrity = npm.publish(NAME, "1.2.3", DATA)
    npm.publish(NAME, "1.2.3", DATA, integrity=f"sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk= {integrity}")
    assert registry.release(NAME, "1.2.3").integrity == integrity


@pytest.mark.parametrize("limit", ["_MAX_ARCHIVE", "_MAX_DOCUMENT"])
def test_downloads_have_a_limit(
    npm: FakeNpm, registry: NpmRegistry, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """An archive or document that is larger than its limit is refused."""
    npm.publish(NAME, "1.2.3", DATA)
    monkeypatch.setattr(registry_module, limit, 10)
    with pytest.raises(InfrastructureError, match="more than 10 bytes"):
        fetched(registry) if limit == "_MAX_ARCHIVE" else registry.release(NAME, "1.2.3")


def test_a_redirect_off_tls_is_refused(npm: FakeNpm, registry: NpmRegistry) -> None:
    """A redirect to plain HTTP on another machine is refused."""
    npm.faults[".tgz"] = [redirects("http://192.0.2.1/x.tgz")]
    with pytest.raises(InfrastructureError, match="has no TLS"):
        fetched(registry)


@pytest.mark.parametrize(
    "url", ["http://registry.example.org", "ftp://127.0.0.1", "registry", "https://", "https://user:secret@example.org"]
)
def test_an_unsafe_address_is_refused(url: str) -> None:
    """A registry URL that is invalid or unsafe is refused, and the message contains no password."""
    with pytest.raises(ConfigError) as caught:
        NpmRegistry(url)
    assert caught.value.code == "agent-unavailable"
    assert "secret" not in str(caught.value)


def test_npms_own_settings_are_used(tmp_path: Path) -> None:
    """The order of precedence is: SecureBench's variable, npm's variable, ``.npmrc``, the public registry."""
    home = {"HOME": str(tmp_path)}
    assert configured(home) == REGISTRY
    (tmp_path / ".npmrc").write_text("fund=false\n; registry=https://old\nregistry = https://file.example/npm/\n")
    assert configured(home) == "https://file.example/npm/"
    npms = home | {"npm_config_registry": "https://variable.example"}
    assert configured(npms) == "https://variable.example"
    assert configured(npms | {"SECUREBENCH_NPM_REGISTRY": "https://ours.example"}) == "https://ours.example"


def test_a_registry_may_be_below_a_path(npm: FakeNpm) -> None:
    """The URL of a registry may have a path, as those of many mirrors do."""
    npm.files["/api/npm/@scope/tool/-/tool-1.2.3.tgz"] = Content(DATA)
    assert fetched(NpmRegistry(f"{npm.url}/api/npm/")) == DATA


def test_a_registry_is_asked_whether_it_responds(npm: FakeNpm, registry: NpmRegistry) -> None:
    """``ask`` accepts any response, even a 404, and fails if the connection is refused."""
    registry.ask()
    with pytest.raises(InfrastructureError, match="is unavailable: Connection refused"):
        NpmRegistry("http://127.0.0.1:9").ask()
