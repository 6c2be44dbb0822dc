"""The connection to a Docker Engine: one client, the API version it speaks, and what its errors mean.

Everything that asks the engine for something does it inside :meth:`Engine.doing`, so that trouble anywhere becomes one
of three types: the engine is gone (:class:`EngineError`), its disk is full (:class:`DiskFullError`), or it refused
(:class:`InfrastructureError`, or what the caller says a missing thing means).
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

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping, Sequence

    from securebench.engine.endpoint import EngineEndpoint

OLDEST_API = (1, 41)
"""Docker Engine 20.10. Requests are written for it; a newer engine is asked to speak it too, while it can."""

CALL_TIMEOUT = 60.0
"""Seconds that a call may take which is not meant to wait: more means that the engine hangs."""

_CONNECTIONS = 64
"""Connections kept open: every running sandbox waits on one of its own."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answered. Shared by threads. ``version`` is its own, ``api`` what is spoken with it."""

    client: docker.APIClient
    endpoint: EngineEndpoint
    version: str
    api: str

    @contextmanager
    def doing(
        self, what: str, *, missing: type[InfrastructureError] = InfrastructureError, hint: str = ""
    ) -> Iterator[None]:
        """Give errors in this block their types: ``what`` is done, as in "the engine could not {what}".

        A 404 raises ``missing`` with ``hint``: what is not there is the caller's to know.
        """
        try:
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
                f"the engine at {self.endpoint.url} went away or hangs: it did not {what} ({error})",
                hint="start it again, then continue with --resume",
            ) from error

    def hijack(self, path: str, body: Mapping[str, Any] | None = None) -> socket.socket:
        """POST to ``path`` (below the API version) and take its connection over, as attach and exec start want.

        Returns the non-blocking connection, with the whole stream still to be read: the SDK's own way loses what comes
        in one packet with the header. Raises as :meth:`doing` does.
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
        """Let go of the connections."""
        self.client.close()


def connect(endpoints: Sequence[EngineEndpoint] | None = None) -> Engine:
    """Return the engine that answers first, where one is expected on this machine.

    Raises :class:`EngineError` that lists what was tried: ``engine-unavailable``, ``engine-permission``,
    ``engine-too-old``, ``engine-endpoint-unsupported`` or ``engine-context-missing``.
    """
    troubles: list[tuple[EngineEndpoint, Exception]] = []
    for endpoint in current_candidates() if endpoints is None else endpoints:
        try:
            endpoint.dial().close()
            return _negotiated(endpoint)
        except (OSError, docker.errors.DockerException, requests.RequestException) as error:
            troubles.append((endpoint, error))
    raise _unavailable(troubles)


def _negotiated(endpoint: EngineEndpoint) -> Engine:
    client = _client(endpoint, OLDEST_API)
    answer = client.version(api_version=False)
    newest, oldest = _version(answer["ApiVersion"]), _version(answer.get("MinAPIVersion") or "1.12")
    if newest < OLDEST_API:
        client.close()
        raise EngineError(
            f"the engine at {endpoint.url} is {answer.get('Version')}, which speaks API {answer['ApiVersion']}",
            code="engine-too-old",
            hint="Docker Engine 20.10 (API 1.41) or later is needed: upgrade it",
        )
    spoken = max(OLDEST_API, oldest)
    if spoken != OLDEST_API:
        client.close()
        client = _client(endpoint, spoken)
    return Engine(client, endpoint, str(answer.get("Version", "")), ".".join(map(str, spoken)))


def _client(endpoint: EngineEndpoint, version: tuple[int, ...]) -> docker.APIClient:
    client = docker.APIClient(
        base_url=endpoint.base_url,
        version=".".join(map(str, version)),
        timeout=int(CALL_TIMEOUT),
        max_pool_size=_CONNECTIONS,
    )
    client.trust_env = False  # a proxy of the user's environment is not for the engine
    return client


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _unavailable(troubles: Sequence[tuple[EngineEndpoint, Exception]]) -> EngineError:
    tried = "; ".join(f"{endpoint.url} ({endpoint.source}): {error}" for endpoint, error in troubles)
    if any(isinstance(error, PermissionError) for _, error in troubles):
        return EngineError(
            f"a Docker Engine is there, but this user may not use it. Tried {tried}",
            code="engine-permission",
            hint="add yourself to its group ('sudo usermod -aG docker $USER') and log in again, or run as root",
        )
    return EngineError(
        f"no Docker Engine answers. Tried {tried}",
        hint="install Docker Engine (Debian, Ubuntu: 'apt-get install docker.io') and start it "
        "('systemctl start docker', or 'dockerd' as root), or point DOCKER_HOST at one",
    )


def _explanation(error: docker.errors.APIError) -> str:
    return str(error.explanation or error).strip()


def refusal(what: str, explanation: str, kind: type[InfrastructureError] = InfrastructureError) -> InfrastructureError:
    """Return the error for an engine that says ``explanation``: ``kind``, unless its disk is full."""
    # The engine reports a full disk as a plain 500: its text is all there is to know it by.
    if "no space left on device" in explanation.lower():
        return DiskFullError(
            f"the engine could not {what}: {explanation}",
            hint="make room where the engine keeps its data (see 'docker system df'), then continue with --resume",
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
    """Lets ``http.client`` read a header and not one byte more."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def makefile(self, mode: Literal["rb"]) -> socket.SocketIO:
        return self._connection.makefile(mode, buffering=0)


def _refused(connection: socket.socket) -> str | None:
    """Read the answer's header. Return what the engine says if it refuses, or ``None`` if the stream begins here."""
    response = http.client.HTTPResponse(_Unbuffered(connection), method="POST")  # type: ignore[arg-type]  # so it says
    response.begin()
    if not response.headers:  # http.client takes a connection that ends in its header for an answer
        raise ConnectionError("the connection ended before an answer")
    if response.status in {HTTPStatus.SWITCHING_PROTOCOLS, HTTPStatus.OK}:
        return None
    try:
        text = response.read()
    except http.client.IncompleteRead as error:
        text = error.partial
    return f"{response.status} {text.decode(errors='replace').strip()}"
