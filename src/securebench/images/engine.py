"""The connection to a Docker Engine: one client, the API version it speaks, and what its errors mean.

Everything that asks the engine for something does it inside :meth:`Engine.doing`, so that trouble anywhere becomes one
of three types: the engine is gone (:class:`EngineError`), its disk is full (:class:`DiskFullError`), or it refused
(:class:`InfrastructureError`, or what the caller says a missing thing means).
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import docker
import docker.errors
import requests
import urllib3.exceptions

from securebench.errors import DiskFullError, EngineError, InfrastructureError
from securebench.images.endpoint import current_candidates

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping, Sequence

    from securebench.images.endpoint import Endpoint

OLDEST_API = (1, 41)
"""Docker Engine 20.10. Requests are written for it; a newer engine is asked to speak it too, while it can."""

CALL_TIMEOUT = 60.0
"""Seconds that a call may take which is not meant to wait: more means that the engine hangs."""

_CONNECTIONS = 64
"""Connections kept open: every running sandbox waits on one of its own."""

_HEADER_LIMIT = 64 * 1024


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answered. Shared by threads. ``version`` is its own, ``api`` what is spoken with it."""

    client: docker.APIClient
    endpoint: Endpoint
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
            docker.errors.DockerException,
            OSError,
        ) as error:
            raise EngineError(
                f"the engine at {self.endpoint.url} went away or hangs: it did not {what} ({error})",
                hint="start it again, then go on with --resume",
            ) from error

    def hijack(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[socket.socket, bytes]:
        """POST to ``path`` (below the API version) and take its connection over, as attach and exec start want.

        Returns the non-blocking connection and the first bytes of the stream. The SDK's own way loses bytes that came
        in one packet with the header. Raises as :meth:`doing` does.
        """
        with self.doing(f"open a stream on {path}"):
            connection = self.endpoint.dial()
            try:
                connection.settimeout(CALL_TIMEOUT)
                connection.sendall(_upgrade_request(f"/v{self.api}{path}", json.dumps(body or {}).encode()))
                head, rest = _read_header(connection)
            except BaseException:
                connection.close()
                raise
        status = int(head.split(b" ", 2)[1])
        if status not in {HTTPStatus.SWITCHING_PROTOCOLS, HTTPStatus.OK}:
            connection.close()
            raise refusal(f"open a stream on {path}", f"{status} {rest.decode(errors='replace').strip()}")
        connection.setblocking(False)
        return connection, rest

    def close(self) -> None:
        """Let go of the connections."""
        self.client.close()


def connect(endpoints: Sequence[Endpoint] | None = None) -> Engine:
    """Return the engine that answers first, where one is expected on this machine.

    Raises :class:`EngineError` that lists what was tried: ``engine-unavailable``, ``engine-permission``,
    ``engine-too-old``, ``engine-endpoint-unsupported`` or ``engine-context-missing``.
    """
    troubles: list[tuple[Endpoint, Exception]] = []
    for endpoint in current_candidates() if endpoints is None else endpoints:
        try:
            endpoint.dial().close()
            return _negotiated(endpoint)
        except (OSError, docker.errors.DockerException, requests.RequestException) as error:
            troubles.append((endpoint, error))
    raise _unavailable(troubles)


def _negotiated(endpoint: Endpoint) -> Engine:
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


def _client(endpoint: Endpoint, version: tuple[int, ...]) -> docker.APIClient:
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


def _unavailable(troubles: Sequence[tuple[Endpoint, Exception]]) -> EngineError:
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
            hint="make room where the engine keeps its data (see 'docker system df'), then go on with --resume",
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


def _read_header(connection: socket.socket) -> tuple[bytes, bytes]:
    received = bytearray()
    while b"\r\n\r\n" not in received:
        data = connection.recv(_HEADER_LIMIT)
        if not data or len(received) > _HEADER_LIMIT:
            raise ConnectionError("the connection ended before an answer")
        received += data
    head, _, rest = bytes(received).partition(b"\r\n\r\n")
    return head, rest
