"""A client on the host for requests of the run itself. They pass through a relay, as those of agents do.

The relay serves a Unix socket in a directory that only this user can enter. With a port instead, any local user could
connect and spend the tester's money.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import tempfile
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from securebench.errors import EgressError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.egress.gateway import EgressSession
    from securebench.egress.model import EgressReport

MAX_ANSWER: Final = 8 * 1024 * 1024
"""Maximum bytes of an answer. A longer answer counts as incomplete."""

_POLL_SECONDS: Final = 0.5
_DEATH_SECONDS: Final = 2.0
"""Seconds to wait, after a connection broke, for the news that the gateway has exited."""


class RelayAnswer(NamedTuple):
    """The answer to a request. The status is 0 if the answer is missing or incomplete."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class RelayClient:
    """Sends requests through the relay of ``session``, and owns the session. ``poll`` is called during each wait.

    ``timeout`` (seconds) must be longer than the relay's own timeouts. Raises :class:`EgressError` if the gateway
    exits.
    """

    def __init__(self, session: EgressSession, poll: Callable[[], None], timeout: float) -> None:
        self._session, self._poll, self._timeout = session, poll, timeout
        self._dead = threading.Event()
        self._directory = tempfile.TemporaryDirectory(prefix="securebench-")
        self._descriptor = os.open(self._directory.name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._path = f"/proc/self/fd/{self._descriptor}/relay"  # the directory's own path may be too long for a socket
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self._path)
        listener.listen()
        session.on_death(self._dead.set)
        session.forwarded_ports[0].serve(listener)

    def post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> RelayAnswer:
        """Send a JSON body to ``/v1`` followed by ``path``, and return the answer."""
        connection = http.client.HTTPConnection("relay")
        try:
            connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.sock.settimeout(self._timeout)
            connection.sock.connect(self._path)
            given = {"Content-Type": "application/json", **headers}
            connection.request("POST", f"/v1{path}", json.dumps(body).encode(), given)
            while not select.select([connection.sock], [], [], _POLL_SECONDS)[0]:
                self._poll()
            response = connection.getresponse()
            data = response.read(MAX_ANSWER + 1)
            if len(data) > MAX_ANSWER or response.length:  # a body that is shorter than announced raises no error
                return RelayAnswer(0, {}, b"")
            return RelayAnswer(response.status, {name.lower(): text for name, text in response.getheaders()}, data)
        except (OSError, ValueError, http.client.HTTPException):
            # If the gateway has exited, its connections end before the run notices it.
            if self._dead.wait(_DEATH_SECONDS):
                self._session.close()  # raises the error that says why
            return RelayAnswer(0, {}, b"")
        finally:
            connection.close()

    def close(self) -> EgressReport | None:
        """Close the session, and return its report; ``None`` if the session has failed. Never raises."""
        with suppress(OSError):
            os.close(self._descriptor)
        self._directory.cleanup()
        try:
            return self._session.close()
        except EgressError:
            return None
