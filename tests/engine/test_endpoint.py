"""Which endpoints of a Docker Engine are tried."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from securebench.engine.endpoint import EngineEndpoint, candidate_endpoints
from securebench.errors import EngineError

if TYPE_CHECKING:
    from pathlib import Path


def add_context(home: Path, name: str, host: str, *, tls: bool = False) -> None:
    """Write a Docker context in the layout of the Docker command line."""
    identity = hashlib.sha256(name.encode()).hexdigest()
    meta = home / ".docker/contexts/meta" / identity
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(json.dumps({"Name": name, "Endpoints": {"docker": {"Host": host}}}))
    if tls:
        (home / ".docker/contexts/tls" / identity / "docker").mkdir(parents=True)


def use_context(home: Path, name: str) -> None:
    """Make a context the current one."""
    (home / ".docker").mkdir(exist_ok=True)
    (home / ".docker/config.json").write_text(json.dumps({"currentContext": name}))


def urls(environ: dict[str, str], home: Path) -> list[str]:
    """Return the addresses that would be tried."""
    return [endpoint.url for endpoint in candidate_endpoints(environ, home)]


def test_the_usual_sockets_are_tried(tmp_path: Path) -> None:
    """Without any configuration, the system's socket is tried first, then the user's socket."""
    assert urls({"XDG_RUNTIME_DIR": "/run/user/1000"}, tmp_path) == [
        "unix:///var/run/docker.sock",
        "unix:///run/user/1000/docker.sock",
    ]


def test_docker_host_is_the_only_one(tmp_path: Path) -> None:
    """``DOCKER_HOST`` takes precedence over a context, and no other endpoint is tried."""
    add_context(tmp_path, "mine", "unix:///mine.sock")
    use_context(tmp_path, "mine")
    environ = {"DOCKER_HOST": "tcp://127.0.0.1:2375", "DOCKER_CONTEXT": "mine"}
    assert urls(environ, tmp_path) == ["tcp://127.0.0.1:2375"]


def test_the_current_context_is_used(tmp_path: Path) -> None:
    """The current context of the Docker command line names the engine."""
    add_context(tmp_path, "mine", "unix:///mine.sock")
    use_context(tmp_path, "mine")
    assert urls({}, tmp_path) == ["unix:///mine.sock"]


def test_docker_context_beats_the_current_one(tmp_path: Path) -> None:
    """``DOCKER_CONTEXT`` takes precedence over the current context in the configuration file."""
    add_context(tmp_path, "mine", "unix:///mine.sock")
    add_context(tmp_path, "other", "unix:///other.sock")
    use_context(tmp_path, "mine")
    assert urls({"DOCKER_CONTEXT": "other"}, tmp_path) == ["unix:///other.sock"]


def test_docker_config_moves_the_configuration(tmp_path: Path) -> None:
    """Contexts are read from the directory in ``DOCKER_CONFIG``."""
    add_context(tmp_path, "mine", "unix:///mine.sock")
    use_context(tmp_path, "mine")
    assert urls({"DOCKER_CONFIG": str(tmp_path / ".docker")}, tmp_path / "elsewhere") == ["unix:///mine.sock"]


@pytest.mark.parametrize("content", ["", "not json", "[]", '{"currentContext": 3}', '{"currentContext": "default"}'])
def test_a_configuration_without_context_changes_nothing(tmp_path: Path, content: str) -> None:
    """A configuration file that is invalid, or names no context or the default one, has no effect."""
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker/config.json").write_text(content)
    assert urls({}, tmp_path) == ["unix:///var/run/docker.sock"]


def test_a_missing_context_is_told(tmp_path: Path) -> None:
    """A context that does not exist is an error. The default sockets are not tried instead."""
    with pytest.raises(EngineError, match="'gone'") as raised:
        candidate_endpoints({"DOCKER_CONTEXT": "gone"}, tmp_path)
    assert raised.value.code == "engine-context-missing"


@pytest.mark.parametrize("url", ["ssh://me@there", "npipe:////./pipe/docker", "unix://", "unix://host/path", "x", ""])
def test_other_addresses_are_refused(url: str) -> None:
    """Addresses that are malformed, or neither a Unix socket nor plain TCP, are refused. The hint tells what works."""
    with pytest.raises(EngineError) as raised:
        EngineEndpoint.parse(url, "DOCKER_HOST")
    assert raised.value.code == "engine-endpoint-unsupported"
    assert "unix://" in raised.value.hint


@pytest.mark.parametrize("where", ["variable", "context"])
def test_tls_is_refused(tmp_path: Path, where: str) -> None:
    """An engine that requires TLS is refused. It is not contacted without encryption instead."""
    add_context(tmp_path, "remote", "tcp://remote:2376", tls=True)
    environ = {
        "variable": {"DOCKER_HOST": "tcp://remote:2376", "DOCKER_TLS_VERIFY": "1"},
        "context": {"DOCKER_CONTEXT": "remote"},
    }
    with pytest.raises(EngineError, match="TLS") as raised:
        candidate_endpoints(environ[where], tmp_path)
    assert raised.value.code == "engine-endpoint-unsupported"
