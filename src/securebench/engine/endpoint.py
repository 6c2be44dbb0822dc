"""The endpoint of a Docker Engine: ``DOCKER_HOST``, the current Docker context, or the default sockets.

Only an engine on this machine works: sandboxes bind-mount directories of this host, which a remote engine would look
for on its own disk. So ``unix://`` and plain ``tcp://`` are supported, but TLS and SSH are not.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from securebench.errors import EngineError
from securebench.fs.home import home_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_SOCKET = "/var/run/docker.sock"
DIAL_TIMEOUT = 10.0
"""The time limit in seconds for connecting to a local socket. A longer time means that nothing accepts connections."""


@dataclass(frozen=True, slots=True)
class EngineEndpoint:
    """A socket's ``path``, or ``host`` and ``port``. ``source`` names the setting that the endpoint comes from."""

    url: str
    source: str
    path: str = ""
    host: str = ""
    port: int = 0

    @classmethod
    def parse(cls, url: str, source: str) -> EngineEndpoint:
        """Return the endpoint of ``url``. Raises :class:`EngineError` (``engine-endpoint-unsupported``)."""
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path.startswith("/") and not parts.netloc:
            return cls(url, source, path=parts.path)
        if parts.scheme in {"tcp", "http"} and parts.hostname:
            return cls(url, source, host=parts.hostname, port=parts.port or 2375)
        raise EngineError(
            f"the engine address {url!r} ({source}) is not supported",
            code="engine-endpoint-unsupported",
            hint="use an engine on this machine: unix:///path/to/docker.sock or tcp://127.0.0.1:PORT",
        )

    @property
    def base_url(self) -> str:
        """The address in the form that the Docker SDK expects."""
        return f"http+unix://{self.path}" if self.path else f"tcp://{self.host}:{self.port}"

    def dial(self) -> socket.socket:
        """Return a new connection, with ``DIAL_TIMEOUT`` set. Raises ``OSError``."""
        if not self.path:
            return socket.create_connection((self.host, self.port), timeout=DIAL_TIMEOUT)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(DIAL_TIMEOUT)
            connection.connect(self.path)
        except BaseException:
            connection.close()
            raise
        return connection


def candidate_endpoints(environ: Mapping[str, str], home: Path) -> tuple[EngineEndpoint, ...]:
    """Return the endpoints to try, in order: only the one that the user configured, or else the default sockets.

    Raises :class:`EngineError` for an unsupported address or a missing context.
    """
    if url := environ.get("DOCKER_HOST"):
        if environ.get("DOCKER_TLS_VERIFY"):
            raise _tls_refused("DOCKER_TLS_VERIFY")
        return (EngineEndpoint.parse(url, "DOCKER_HOST"),)
    config = Path(environ.get("DOCKER_CONFIG") or home / ".docker")
    name = environ.get("DOCKER_CONTEXT") or _current_context(config)
    if name and name != "default":
        return (_context_endpoint(config, name),)
    sockets = [DEFAULT_SOCKET]
    if runtime_dir := environ.get("XDG_RUNTIME_DIR"):
        sockets.append(f"{runtime_dir}/docker.sock")
    return tuple(EngineEndpoint.parse(f"unix://{path}", "the default") for path in sockets)


def current_candidates() -> tuple[EngineEndpoint, ...]:
    """Return the endpoints to try for this process and user."""
    return candidate_endpoints(os.environ, home_directory())


def _current_context(config: Path) -> str:
    settings = _read_json(config / "config.json")
    name = settings.get("currentContext", "") if isinstance(settings, dict) else ""
    return name if isinstance(name, str) else ""


def _context_endpoint(config: Path, name: str) -> EngineEndpoint:
    source = f"Docker context {name!r}"
    meta = _read_json(config / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest() / "meta.json")
    try:
        endpoint = meta["Endpoints"]["docker"]
        url = endpoint["Host"]
    except (KeyError, TypeError):
        raise EngineError(
            f"the {source} does not exist or has no engine",
            code="engine-context-missing",
            hint="see 'docker context ls'; choose one with 'docker context use NAME', or set DOCKER_HOST",
        ) from None
    if (config / "contexts" / "tls" / hashlib.sha256(name.encode()).hexdigest() / "docker").is_dir():
        raise _tls_refused(source)
    return EngineEndpoint.parse(str(url), source)


def _tls_refused(source: str) -> EngineError:
    return EngineError(
        f"{source} requires TLS, which is not supported",
        code="engine-endpoint-unsupported",
        hint="use an engine on this machine through its socket, because sandboxes mount directories of this host",
    )


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
