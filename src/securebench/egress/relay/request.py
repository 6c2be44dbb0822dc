"""Read an agent's requests strictly and within limits, so that the provider cannot interpret them differently."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import h11

from securebench.egress.relay.refusals import RefusedError, RelayRefusal
from securebench.strict_input.json_text import UnfitJsonError, decode_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from securebench.egress.http_streams import HttpPeer
    from securebench.egress.relay.providers.base import Header, Object

MAX_BODY_BYTES: Final = 32 * 1024 * 1024
"""Maximum size of a body: the limit of the Messages API."""

MAX_HELD_BYTES: Final = 2 * MAX_BODY_BYTES
"""Maximum total size of the bodies in a relay's memory, so that one agent cannot exhaust the gateway's memory."""

DRAIN_SECONDS: Final = 5.0
"""Timeout for reading the rest of a refused request. The connection is local."""

MAX_VALUES: Final = 200_000
"""Maximum JSON values in one body. A session that fills a context of a million tokens has tens of thousands."""

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A JSON string, possibly unterminated at the end of the data. A match starts at every opening quotation
mark, so that a scan takes linear time."""

_MARKS: Final = (b",", b"[", b"{")
_PLAIN_JSON: Final = re.compile(rb"application/json(?: *; *charset=utf-8)?", re.IGNORECASE)


def check_framing(headers: Collection[Header]) -> None:
    """Check the headers that describe the body. Raises :class:`RefusedError`."""
    given = dict(headers)
    if b"transfer-encoding" in given and b"content-length" in given:
        raise RefusedError(RelayRefusal.MALFORMED, "the request has both Content-Length and Transfer-Encoding")
    if given.get(b"content-encoding", b"identity").lower() != b"identity":
        raise RefusedError(RelayRefusal.HEADER, "the body is compressed: turn compression off in the agent's settings")
    if not _PLAIN_JSON.fullmatch(given.get(b"content-type", b"").strip()):
        raise RefusedError(
            RelayRefusal.HEADER, "the Content-Type must be application/json, optionally with charset=utf-8"
        )
    if int(given.get(b"content-length", b"0")) > MAX_BODY_BYTES:
        raise _too_large()


class Bodies:
    """Limits the memory of all request bodies in a relay."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._held = 0

    @asynccontextmanager
    async def read(self, agent: HttpPeer) -> AsyncIterator[bytes]:
        """Yield the body of the current request. It counts towards the memory limit until the ``with`` block ends.

        Raises :class:`RefusedError`, ``h11.RemoteProtocolError``, and ``OSError`` (including ``TimeoutError``).
        """
        data = bytearray()
        try:
            async with asyncio.timeout(self._seconds):
                await _invite(agent)
                async for piece in agent.body():
                    self._held += len(piece)
                    data += piece
                    self._bound(len(data))
            yield bytes(data)
        finally:
            self._held -= len(data)

    def _bound(self, length: int) -> None:
        if length > MAX_BODY_BYTES or self._held > MAX_HELD_BYTES:
            raise RefusedError(
                RelayRefusal.TOO_LARGE,
                f"the body has more than {MAX_BODY_BYTES} bytes, or the bodies of all requests in progress exceed "
                f"{MAX_HELD_BYTES} bytes",
            )


async def drain(agent: HttpPeer) -> None:
    """Read and discard the rest of a request, within limits. Raises only ``CancelledError``."""
    left = MAX_BODY_BYTES
    with suppress(OSError, h11.RemoteProtocolError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while _is_sending(agent) and left > 0:
                event = await agent.next_event()
                left -= len(event.data) if isinstance(event, h11.Data) else 0


def decode(data: bytes) -> Object:
    """Return the JSON object in a body. Raises :class:`RefusedError`."""
    if _too_many(data):
        raise RefusedError(RelayRefusal.TOO_LARGE, f"the body contains more than {MAX_VALUES} values")
    try:
        value, _ = decode_json(data.decode("utf-8"), MAX_VALUES)
    except UnicodeDecodeError:
        raise RefusedError(RelayRefusal.JSON, "the body is not UTF-8") from None
    except UnfitJsonError as error:
        raise RefusedError(RelayRefusal.JSON, f"the body is not strict JSON: {error}") from None
    if not isinstance(value, dict):
        raise RefusedError(RelayRefusal.JSON, "the body is not a JSON object")
    return value


def encode(body: Object) -> bytes:
    """Serialize a checked body again, so that the provider parses exactly what was checked."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _too_large() -> RefusedError:
    return RefusedError(RelayRefusal.TOO_LARGE, f"the body has more than {MAX_BODY_BYTES} bytes")


async def _invite(agent: HttpPeer) -> None:
    """Send ``100 Continue`` if the client waits for it before it sends the body."""
    if agent.connection.they_are_waiting_for_100_continue:
        await agent.send(h11.InformationalResponse(status_code=100, headers=[]))


def _is_sending(agent: HttpPeer) -> bool:
    connection = agent.connection
    return connection.their_state is h11.SEND_BODY and not connection.they_are_waiting_for_100_continue


def _too_many(data: bytes) -> bool:
    """Estimate from strings and separators whether ``data`` has too many values to parse in limited memory."""
    if sum(data.count(mark) for mark in _MARKS) <= MAX_VALUES:
        return False
    found = end = 0
    for text in _STRING.finditer(data):
        found += 1 + sum(data.count(mark, end, text.start()) for mark in _MARKS)
        end = text.end()
        if found > 2 * MAX_VALUES:
            return True
    return found + sum(data.count(mark, end) for mark in _MARKS) > 2 * MAX_VALUES
