"""The connection to a Docker Engine: a client, the negotiated API version, and the meaning of its errors.

After :func:`connect`, every request to the engine is made inside :meth:`Engine.doing`, which turns any error into one
of three types: the engine is unavailable (:class:`EngineError`), its disk is full (:class:`DiskFullError`), or it
rejected the request (:class:`InfrastructureError`, or the type that the caller chooses for a missing object).
"""

from __future__ import annotations

import http.client
import json
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

import docker
import docker.errors
import requests
import urllib3.exceptions

from securebench.engine.endpoint import current_candidates
from securebench.errors import DiskFullError, EngineError, InfrastructureError
from securebench.faults import FaultPoint, reached

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping, Sequence

    from securebench.engine.endpoint import EngineEndpoint

OLDEST_API = (1, 41)
"""The API version of Docker Engine 20.10. Requests use it with every engine that still supports it."""

CALL_TIMEOUT = 60.0
"""The time limit in seconds of calls that are not expected to wait. A longer call means that the engine hangs."""

_CONNECTIONS = 64
"""The size of the connection pool: every running sandbox waits on its own connection."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A connection to a running engine. Threads may share it. ``api`` is the negotiated API version."""

    client: docker.APIClient
    endpoint: EngineEndpoint
    version: str
    api: str

    @contextmanager
    def doing(
        self, what: str, *, missing: type[InfrastructureError] = InfrastructureError, hint: str = ""
    ) -> Iterator[None]:
        """Turn errors of requests in this block into SecureBench errors with "could not {what}" in the message.

        A 404 raises ``missing`` with ``hint``, because only the caller knows what is missing.
        """
        try:
            reached(FaultPoint.ENGINE_REQUEST, what)
            yield
        except docker.errors.NotFound as error:
            raise missing(f"the engine could not {what}: {_explanation(error)}", hint=hint) from error
        except docker.errors.APIError as error:
            raise refusal(what, _explanation(error)) from error
        except (
            requests.RequestException,
            urllib3.exceptions.HTTPError,
            http.client.HTTPException,
            docker.errors.DockerException,
            OSError,
        ) as error:
            raise EngineError(
                f"the engine at {self.endpoint.url} does not respond: could not {what} ({error})",
                hint="restart the engine, then continue with --resume",
            ) from error

    def hijack(self, path: str, body: Mapping[str, Any] | None = None) -> socket.socket:
        """POST to ``path``, given without the API version, and take over the connection.

        The calls ``attach`` and ``exec/start`` need this. Returns the non-blocking connection, from which the whole
        stream can be read. The SDK's own method loses data that arrives in one packet with the header. Raises the
        errors of :meth:`doing`.
        """
        what = f"open a stream on {path}"
        with self.doing(what):
            connection = self.endpoint.dial()
            try:
                connection.settimeout(CALL_TIMEOUT)
                connection.sendall(_upgrade_request(f"/v{self.api}{path}", json.dumps(body or {}).encode()))
                refused = _refused(connection)
            except BaseException:
                connection.close()
                raise
        if refused is not None:
            connection.close()
            raise refusal(what, refused)
        connection.setblocking(False)
        return connection

    def close(self) -> None:
        """Close the connections."""
        self.client.close()


def connect(endpoints: Sequence[EngineEndpoint] | None = None) -> Engine:
    """Connect to the first engine that responds at ``endpoints``, by default those of :func:`current_candidates`.

    Raises :class:`EngineError` (``engine-unavailable``, ``engine-permission``, ``engine-too-old``,
    ``engine-endpoint-unsupported``, ``engine-context-missing``). The message of ``engine-unavailable`` or
    ``engine-permission`` lists all attempts.
    """
    failures: list[tuple[EngineEndpoint, Exception]] = []
    for endpoint in current_candidates() if endpoints is None else endpoints:
        try:
            endpoint.dial().close()
            return _negotiated(endpoint)
        except (OSError, docker.errors.DockerException, requests.RequestException) as error:
            failures.append((endpoint, error))
    raise _unavailable(failures)


def _negotiated(endpoint: EngineEndpoint) -> Engine:
    client = _client(endpoint, OLDEST_API)
    answer = client.version(api_version=False)
    newest, oldest = _version(answer["ApiVersion"]), _version(answer.get("MinAPIVersion") or "1.12")
    if newest < OLDEST_API:
        client.close()
        raise EngineError(
            f"the engine at {endpoint.url} is too old: version {answer.get('Version')}, API {answer['ApiVersion']}",
            code="engine-too-old",
            hint="upgrade it to Docker Engine 20.10 (API 1.41) or later",
        )
    api = max(OLDEST_API, oldest)
    if api != OLDEST_API:
        client.close()
        client = _client(endpoint, api)
    return Engine(client, endpoint, str(answer.get("Version", "")), ".".join(map(str, api)))


def _client(endpoint: EngineEndpoint, version: tuple[int, ...]) -> docker.APIClient:
    client = docker.APIClient(
        base_url=endpoint.base_url,
        version=".".join(map(str, version)),
        timeout=int(CALL_TIMEOUT),
        max_pool_size=_CONNECTIONS,
    )
    client.trust_env = False  # proxies in the user's environment are not for the engine
    return client


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _unavailable(failures: Sequence[tuple[EngineEndpoint, Exception]]) -> EngineError:
    tried = "; ".join(f"{endpoint.url} ({endpoint.source}): {error}" for endpoint, error in failures)
    if any(isinstance(error, PermissionError) for _, error in failures):
        return EngineError(
            f"a Docker Engine is running, but this user may not use it (tried {tried})",
            code="engine-permission",
            hint="join the engine's group ('sudo usermod -aG docker $USER') and log in again; or run as root",
        )
    return EngineError(
        f"no Docker Engine is running (tried {tried})",
        hint="install Docker Engine (Debian, Ubuntu: 'apt-get install docker.io') and start it "
        "('systemctl start docker', or 'dockerd' as root), or set DOCKER_HOST",
    )


def _explanation(error: docker.errors.APIError) -> str:
    return str(error.explanation or error).strip()


def refusal(what: str, explanation: str, kind: type[InfrastructureError] = InfrastructureError) -> InfrastructureError:
    """Return the error for a rejected request: :class:`DiskFullError` if the disk is full, otherwise ``kind``."""
    # The engine reports a full disk as a plain 500: only its text shows the cause.
    if "no space left on device" in explanation.lower():
        return DiskFullError(
            f"the engine could not {what}: {explanation}",
            hint="free space in the engine's data directory (see 'docker system df'), then continue with --resume",
        )
    return kind(f"the engine could not {what}: {explanation}")


def _upgrade_request(target: str, body: bytes) -> bytes:
    lines = (
        f"POST {target} HTTP/1.1",
        "Host: localhost",
        "Connection: Upgrade",
        "Upgrade: tcp",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*lines, "", "")).encode("ascii") + body


class _Unbuffered:
    """Makes ``http.client`` read without a buffer, so that it reads no byte of the stream that follows the header."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def makefile(self, mode: Literal["rb"]) -> socket.SocketIO:
        return self._connection.makefile(mode, buffering=0)


def _refused(connection: socket.socket) -> str | None:
    """Read the response header. Return the engine's error, or ``None`` if the stream begins."""
    response = http.client.HTTPResponse(_Unbuffered(connection), method="POST")  # type: ignore[arg-type]  # it only calls makefile()
    response.begin()
    if not response.headers:  # http.client accepts a connection that ends within the header
        raise ConnectionError("the connection ended before the response")
    if response.status in {HTTPStatus.SWITCHING_PROTOCOLS, HTTPStatus.OK}:
        return None
    try:
        text = response.read()
    except http.client.IncompleteRead as error:
        text = error.partial
    return f"{response.status} {text.decode(errors='replace').strip()}"
