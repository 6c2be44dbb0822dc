"""The npm registry: asked for little, believed less, and waited for in bounds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from fake_npm import breaks_after, says, waits
from securebench.agents import registry as registry_module
from securebench.agents.registry import REGISTRY, NpmRegistry, configured
from securebench.errors import ConfigError, InfrastructureError
from securebench.images.registry.patience import Timeouts

if TYPE_CHECKING:
    from pathlib import Path

    from fake_npm import FakeNpm

NAME = "@scope/tool"
DATA = bytes(range(256)) * 1024


def fetched(registry: NpmRegistry) -> bytes:
    """Return the archive of the version 1.2.3."""
    return b"".join(registry.archive(NAME, "1.2.3"))


def test_a_version_and_a_tag_are_looked_up(npm: FakeNpm, registry: NpmRegistry) -> None:
    """Both lead to an exact version, and to what its archive must be."""
    integrity = npm.publish(NAME, "1.2.3", DATA, tags=("latest",))
    assert registry.release(NAME, "latest") == ("1.2.3", integrity)
    assert registry.release(NAME, "1.2.3") == ("1.2.3", integrity)


def test_an_archive_lies_by_convention(npm: FakeNpm, registry: NpmRegistry) -> None:
    """What a registry says of a tarball's place leads nowhere: the document's would be another host."""
    npm.publish(NAME, "1.2.3", DATA)
    assert fetched(registry) == DATA
    assert npm.requests == [("/@scope/tool/-/tool-1.2.3.tgz", "")]


def test_a_connection_that_breaks_is_made_again_for_the_rest(npm: FakeNpm, registry: NpmRegistry) -> None:
    """What has come is not asked for twice, also from a server that hangs up often."""
    npm.publish(NAME, "1.2.3", DATA)
    npm.faults[".tgz"] = [breaks_after(1000)]
    assert fetched(registry) == DATA
    assert [sent for _, sent in npm.requests] == ["", "bytes=1000-"]


def test_a_server_that_knows_no_ranges_gives_the_rest_too(npm: FakeNpm, registry: NpmRegistry) -> None:
    """It sends all of it again, and what was there is skipped."""
    npm.publish(NAME, "1.2.3", DATA)
    npm.faults[".tgz"] = [breaks_after(1000), says(200, DATA)]
    assert fetched(registry) == DATA


def test_another_part_than_was_asked_for_is_refused(npm: FakeNpm, registry: NpmRegistry) -> None:
    """It would be put where other bytes belong."""
    npm.publish(NAME, "1.2.3", DATA)
    npm.faults[".tgz"] = [breaks_after(1000), says(206, DATA[:50], **{"Content-Range": "bytes 0-49/262144"})]
    with pytest.raises(InfrastructureError, match="another part") as caught:
        fetched(registry)
    assert caught.value.code == "agent-unavailable"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_registry_is_asked_again(npm: FakeNpm, registry: NpmRegistry, status: int) -> None:
    """A few times."""
    npm.publish(NAME, "1.2.3", DATA)
    npm.faults[".tgz"] = [says(status), says(status)]
    assert fetched(registry) == DATA


@pytest.mark.parametrize("status", [401, 403, 418, 500])
def test_a_registry_that_refuses_is_unavailable(npm: FakeNpm, registry: NpmRegistry, status: int) -> None:
    """The message says what it answers, and how to do without it."""
    npm.faults[".tgz"] = [says(status)] * 5
    with pytest.raises(InfrastructureError, match=str(status)) as caught:
        fetched(registry)
    assert caught.value.code == "agent-unavailable"
    assert "agents install --from" in caught.value.hint


def test_what_it_has_not_is_an_unknown_version(npm: FakeNpm, registry: NpmRegistry) -> None:
    """Nobody's network is at fault."""
    with pytest.raises(ConfigError, match=r"has no @scope/tool 9\.9\.9") as caught:
        registry.release(NAME, "9.9.9")
    assert caught.value.code == "agent-unknown-version"


def test_a_registry_that_is_not_there_is_told_of_at_once() -> None:
    """It was never reached, so it is not asked again."""
    with pytest.raises(InfrastructureError, match=r"127\.0\.0\.1:9") as caught:
        NpmRegistry("http://127.0.0.1:9").release(NAME, "latest")
    assert caught.value.code == "agent-unavailable"


def test_a_registry_that_falls_silent_is_given_up(npm: FakeNpm) -> None:
    """In the time that its patience has, not in the socket's."""
    npm.publish(NAME, "1.2.3", DATA)
    npm.faults[".tgz"] = [waits(sent=100)] * 5
    impatient = NpmRegistry(npm.url, Timeouts(read=0.3, attempts=2, pause=0.01))
    started = time.monotonic()
    with pytest.raises(InfrastructureError) as caught:
        fetched(impatient)
    assert caught.value.code == "agent-unavailable"
    assert time.monotonic() - started < 15


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b'"text"', b"{", b'{"version": 1, "dist": {}}', b'{"version": "1.2.3"}', b"\xff", b"[" * 100_000],
)
def test_what_is_no_document_of_a_registry_is_refused(npm: FakeNpm, registry: NpmRegistry, document: bytes) -> None:
    """A captive portal, a proxy's page, or worse."""
    npm.documents[f"/{NAME}/latest"] = document
    with pytest.raises(InfrastructureError, match="does not answer as") as caught:
        registry.release(NAME, "latest")
    assert caught.value.code == "agent-unavailable"


@pytest.mark.parametrize("said", ["", "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=", "sha512-short", None, 5])
def test_a_version_without_a_sha512_is_refused(npm: FakeNpm, registry: NpmRegistry, said: object) -> None:
    """An archive would have to be held to less, or to nothing."""
    npm.publish(NAME, "1.2.3", DATA, integrity=said)
    with pytest.raises(InfrastructureError, match="no sha512") as caught:
        registry.release(NAME, "1.2.3")
    assert caught.value.code == "agent-integrity"


def test_the_sha512_is_found_among_other_hashes(npm: FakeNpm, registry: NpmRegistry) -> None:
    """The field may hold several, with spaces between them."""
    integrity = npm.publish(NAME, "1.2.3", DATA)
    npm.publish(NAME, "1.2.3", DATA, integrity=f"sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk= {integrity}")
    assert registry.release(NAME, "1.2.3").integrity == integrity


def test_more_than_any_archive_has_is_not_read(
    npm: FakeNpm, registry: NpmRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what announces itself so large, nor what does not."""
    npm.publish(NAME, "1.2.3", DATA)
    monkeypatch.setattr(registry_module, "_MAX_ARCHIVE", len(DATA) - 1)
    npm.faults[".tgz"] = [says(200, DATA)]
    for _ in range(2):
        with pytest.raises(InfrastructureError, match="more than"):
            fetched(registry)


def test_a_redirect_is_followed_and_a_circle_is_not(npm: FakeNpm, registry: NpmRegistry) -> None:
    """Registries lead to where their archives are."""
    npm.publish(NAME, "1.2.3", DATA)
    npm.documents["/elsewhere"] = DATA
    npm.faults[".tgz"] = [says(302, b"", Location="/elsewhere"), *[says(302, b"", Location="/x.tgz")] * 9]
    assert fetched(registry) == DATA
    with pytest.raises(InfrastructureError, match="redirects more than"):
        fetched(registry)


def test_a_redirect_off_tls_is_refused(npm: FakeNpm, registry: NpmRegistry) -> None:
    """Plain HTTP is for this machine alone."""
    npm.faults[".tgz"] = [says(302, b"", Location="http://192.0.2.1/x.tgz")]
    with pytest.raises(InfrastructureError, match="has no TLS"):
        fetched(registry)


@pytest.mark.parametrize(
    "url", ["http://registry.example.org", "ftp://127.0.0.1", "registry", "https://", "https://user:secret@example.org"]
)
def test_an_address_that_cannot_be_trusted_is_refused(url: str) -> None:
    """Before any connection, and without what may be a password in the message."""
    with pytest.raises(ConfigError) as caught:
        NpmRegistry(url)
    assert caught.value.code == "agent-unavailable"
    assert "secret" not in str(caught.value)


def test_npms_own_settings_are_followed(tmp_path: Path) -> None:
    """Ours first, then npm's variable, then the user's file, then the public registry."""
    home = {"HOME": str(tmp_path)}
    assert configured(home) == REGISTRY
    (tmp_path / ".npmrc").write_text("fund=false\n; registry=https://old\nregistry = https://file.example/npm/\n")
    assert configured(home) == "https://file.example/npm/"
    npms = home | {"npm_config_registry": "https://variable.example"}
    assert configured(npms) == "https://variable.example"
    assert configured(npms | {"SECUREBENCH_NPM_REGISTRY": "https://ours.example"}) == "https://ours.example"


def test_a_registry_below_a_path_is_asked_there(npm: FakeNpm) -> None:
    """Mirrors are often parts of something."""
    npm.documents["/api/npm/@scope/tool/-/tool-1.2.3.tgz"] = DATA
    assert fetched(NpmRegistry(f"{npm.url}/api/npm/")) == DATA


def test_a_registry_is_asked_whether_it_answers(npm: FakeNpm, registry: NpmRegistry) -> None:
    """Any answer is one; none is an error."""
    registry.ask()
    with pytest.raises(InfrastructureError):
        NpmRegistry("http://127.0.0.1:9").ask()
