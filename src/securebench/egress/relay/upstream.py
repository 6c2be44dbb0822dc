"""Connections to one provider."""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401 - names are looked up with it, by a process that by then may read no Python files
import re
import ssl
from functools import lru_cache
from time import monotonic
from typing import Final
from urllib.parse import urlsplit

import h11

from securebench.egress.http_streams import PIECE, HttpPeer
from securebench.errors import EgressError

IDLE_SECONDS: Final = 10.0
"""How long a connection is kept for the next request. Servers close theirs after a minute or more, and a request that
meets a closing connection is lost: it may not be repeated, since its answer may have been paid for."""

MAX_IDLE: Final = 8
"""Connections that are kept at once: agents that work beside each other."""

_PATH: Final = re.compile(r"[!-~]*")
_PORTS: Final = {"http": 80, "https": 443}


class Upstream:
    """Where a provider is found: the host of ``base_url``, and no other. TLS is verified with the system's authorities.

    ``authority`` is one more authority, in PEM. Raises :class:`EgressError` for a URL or an authority that is none.
    """

    def __init__(self, base_url: str, authority: str | None = None, connect_seconds: float = 30.0) -> None:
        self._connect_seconds = connect_seconds
        try:
            parts = urlsplit(base_url)
            self._host, self._port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
            self._tls = _tls(authority) if parts.scheme == "https" else None
            if not self._host or not _PATH.fullmatch(parts.path) or parts.query or parts.fragment:
                raise ValueError("it is more, or less, than a host and a path")  # noqa: TRY301 - as urlsplit does
        except (KeyError, ValueError, OSError) as error:
            raise EgressError(f"the provider's base URL or authority cannot be used: {error!r}") from None
        self.path = parts.path.rstrip("/")
        """The path of the base URL, with no slash at its end."""
        self.authority = parts.netloc.rpartition("@")[2].encode("ascii", "replace")
        """Host and port, as a request names them."""
        self._idle: list[tuple[float, HttpPeer]] = []

    async def take(self) -> HttpPeer:
        """Return a connection: one that was given back, or a new one. Raises ``OSError`` and its ``TimeoutError``."""
        while self._idle:
            since, peer = self._idle.pop()
            if monotonic() - since < IDLE_SECONDS and not peer.reader.at_eof():
                return peer
            drop(peer)
        async with asyncio.timeout(self._connect_seconds):
            return await self._connect()

    def give_back(self, peer: HttpPeer) -> None:
        """Keep a connection whose answer was read to its end, and close any other."""
        connection = peer.connection
        if connection.our_state is connection.their_state is h11.DONE and len(self._idle) < MAX_IDLE:
            connection.start_next_cycle()
            self._idle.append((monotonic(), peer))
        else:
            drop(peer)

    def close(self) -> None:
        """Close the connections that are kept. Idempotent."""
        while self._idle:
            drop(self._idle.pop()[1])

    async def _connect(self) -> HttpPeer:
        name = self._host if self._tls else None
        try:
            reader, writer = await asyncio.open_connection(
                self._host, self._port, ssl=self._tls, server_hostname=name, limit=PIECE
            )
        except UnicodeError:
            raise OSError("the provider's host name is not valid") from None
        return HttpPeer(h11.CLIENT, reader, writer)


def drop(peer: HttpPeer) -> None:
    """Close a connection of which nothing more is wanted, at once: a good-bye over TLS takes a server's time."""
    peer.writer.transport.abort()


@lru_cache(maxsize=8)
def _tls(authority: str | None) -> ssl.SSLContext:
    """Return how certificates are verified. Kept, since reading the system's authorities takes tens of milliseconds."""
    context = ssl.create_default_context()
    if authority is not None:
        context.load_verify_locations(cadata=authority)
    context.set_alpn_protocols(["http/1.1"])
    return context
