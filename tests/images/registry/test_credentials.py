"""Credentials of a registry, read from the file in which ``docker login`` stores them."""

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
    """Return the credentials that are found in a file with the entries ``auths``."""
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
    """The file may name a registry in several ways. Its credentials are found under each of these names."""
    assert found(docker_config, {key: AUTH}, registry) == KNOWN


@pytest.mark.parametrize("key", ["registry.example.com:5000", "example.com", "registry.example.com.evil.example"])
def test_they_are_for_no_other_registry(docker_config: Path, key: str) -> None:
    """Credentials of a registry with a similar name are not used."""
    assert found(docker_config, {key: AUTH}) is None


@pytest.mark.parametrize(
    "auths",
    [None, [], {"registry.example.com": None}, {"registry.example.com": {}}]
    + [{"registry.example.com": {"auth": text}} for text in ("", "%", "dXNlcg==", "/w==", 5)],
)
def test_an_entry_that_makes_no_sense_is_none(docker_config: Path, auths: Any) -> None:
    """Invalid entries give no credentials, and raise no error."""
    assert found(docker_config, auths) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000])
def test_a_file_that_cannot_be_read_is_none(docker_config: Path, text: str) -> None:
    """A file that is not valid JSON, or not an object, gives no credentials and raises no error."""
    (docker_config / "config.json").write_text(text)
    assert find_credentials("docker.io", {"DOCKER_CONFIG": str(docker_config)}) is None


def test_the_usual_place_is_in_the_home_directory(tmp_path: Path) -> None:
    """Without ``DOCKER_CONFIG``, the file in ``~/.docker`` is read, which may have user and password in plain text."""
    (tmp_path / ".docker").mkdir()
    entries = {"auths": {"docker.io": {"username": "user", "password": "pass:word"}}}
    (tmp_path / ".docker" / "config.json").write_text(json.dumps(entries))
    assert find_credentials("docker.io", {"HOME": str(tmp_path)}) == KNOWN


def test_a_password_is_not_shown() -> None:
    """J15: the ``repr`` of credentials, which may appear in a message or log, does not contain the password."""
    assert "word" not in repr(KNOWN)
