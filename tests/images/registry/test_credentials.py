"""Credentials: found where ``docker login`` leaves them, for one registry each."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from securebench.images.registry.credentials import Credentials, find_credentials

if TYPE_CHECKING:
    from pathlib import Path

AUTH = {"auth": b64encode(b"user:pass:word").decode()}
KNOWN = Credentials("user", "pass:word")


def found(directory: Path, auths: Any, registry: str = "registry.example.com") -> Credentials | None:
    """Return what is found with these entries."""
    (directory / "config.json").write_text(json.dumps({"auths": auths}))
    return find_credentials(registry, {"DOCKER_CONFIG": str(directory)})


@pytest.mark.parametrize(
    ("key", "registry"),
    [
        ("registry.example.com", "registry.example.com"),
        ("https://registry.example.com", "registry.example.com"),
        ("localhost:5000", "localhost:5000"),
        ("https://index.docker.io/v1/", "docker.io"),
        ("docker.io", "docker.io"),
    ],
)
def test_they_are_found_by_the_registrys_name(docker_config: Path, key: str, registry: str) -> None:
    """Each way in which a registry stands in the file is known."""
    assert found(docker_config, {key: AUTH}, registry) == KNOWN


@pytest.mark.parametrize("key", ["registry.example.com:5000", "example.com", "registry.example.com.evil.example"])
def test_they_are_for_no_other_registry(docker_config: Path, key: str) -> None:
    """A name that is only like the registry's is another's."""
    assert found(docker_config, {key: AUTH}) is None


@pytest.mark.parametrize(
    "auths",
    [None, [], {"registry.example.com": None}, {"registry.example.com": {}}]
    + [{"registry.example.com": {"auth": text}} for text in ("", "%", "dXNlcg==", "/w==", 5)],
)
def test_an_entry_that_makes_no_sense_is_none(docker_config: Path, auths: Any) -> None:
    """A file that is not as expected means no credentials, and no crash."""
    assert found(docker_config, auths) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000])
def test_a_file_that_cannot_be_read_is_none(docker_config: Path, text: str) -> None:
    """Anything may lie there."""
    (docker_config / "config.json").write_text(text)
    assert find_credentials("docker.io", {"DOCKER_CONFIG": str(docker_config)}) is None


def test_the_usual_place_is_in_the_home_directory(tmp_path: Path) -> None:
    """Without ``DOCKER_CONFIG`` the file is in ``~/.docker``, and user and password may stand there plainly."""
    (tmp_path / ".docker").mkdir()
    entries = {"auths": {"docker.io": {"username": "user", "password": "pass:word"}}}
    (tmp_path / ".docker" / "config.json").write_text(json.dumps(entries))
    assert find_credentials("docker.io", {"HOME": str(tmp_path)}) == KNOWN


def test_a_password_is_not_shown() -> None:
    """J15: what ends up in a message or a log has no password in it."""
    assert "word" not in repr(KNOWN)
