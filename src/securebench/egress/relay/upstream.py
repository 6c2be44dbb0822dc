"""Connections to one provider."""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401 - a DNS lookup imports it later, but a hardened process may be unable to read it
import re
import ssl
from base64 import b64encode
from functools import lru_cache
from time import monotonic
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

import h11

from securebench.egress.http_streams import PIECE, HttpPeer
from securebench.egress.model import Trouble
from securebench.errors import EgressError

IDLE_SECONDS: Final = 10.0
"""Seconds that an idle connection is kept for the next request. Servers close such connections after a minute or more.
A request on a connection that is being closed is lost. It must not be retried, because it may already be billed."""

MAX_IDLE: Final = 8
"""Maximum idle connections, for subagents that work in parallel."""

_PATH: Final = re.compile(r"[!-~]*")
_PORTS: Final = {"http": 80, "https": 443}


class NoAnswerError(Exception):
    """The answer is missing or incomplete. The agent gets ``status`` if it has received no part of the answer."""

    def __init__(self, trouble: Trouble, message: str, status: int = 502) -> None:
        super().__init__(message)
        self.trouble = trouble
        self.message = message
        self.status = status


class Upstream:
    """Connects to the host of ``base_url``, directly or through ``proxy``, and to no other host.

    TLS certificates are verified with the system's CAs, and those in ``ca_bundle`` (PEM text). ``proxy`` is the URL of
    an HTTP proxy, used only for TLS connections. Raises :class:`EgressError` if the base URL or a certificate is
    invalid.
    """

    def __init__(
        self, base_url: str, ca_bundle: str | None = None, connect_seconds: float = 30.0, proxy: str | None = None
    ) -> None:
        self._connect_seconds = connect_seconds
        self._proxy = proxy
        try:
            parts = urlsplit(base_url)
            self._host, self._port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
            self._tls = _tls(ca_bundle) if parts.scheme == "https" else None
            if not self._host or not _PATH.fullmatch(parts.path) or parts.query or parts.fragment:
                raise ValueError("expected a host and a path, without query and fragment")  # noqa: TRY301 - as urlsplit does
        except (KeyError, ValueError, OSError) as error:
            raise EgressError(f"invalid base URL or CA certificate of the provider: {error!r}") from None
        self.path = parts.path.rstrip("/")
        """The path of the base URL, without a trailing slash."""
        self.authority = parts.netloc.rpartition("@")[2].encode("ascii", "replace")
        """Host and port, as in the ``Host`` header."""
        self.url = f"{parts.scheme}://{self.authority.decode()}"
        """The base URL up to the host and port, without a user name."""
        self._idle: list[tuple[float, HttpPeer]] = []

    async def take(self) -> HttpPeer:
        """Return an idle or a new connection.

        Raises ``OSError`` (including ``TimeoutError``), and :class:`NoAnswerError` if the proxy opens no tunnel.
        """
        while self._idle:
            since, peer = self._idle.pop()
            if monotonic() - since < IDLE_SECONDS and not peer.reader.at_eof():
                return peer
            drop(peer)
        async with asyncio.timeout(self._connect_seconds):
            return await self._connect()

    def give_back(self, peer: HttpPeer) -> None:
        """Keep a connection if its answer was read completely and :data:`MAX_IDLE` is not reached, else close it."""
        connection = peer.connection
        if connection.our_state is connection.their_state is h11.DONE and len(self._idle) < MAX_IDLE:
            connection.start_next_cycle()
            self._idle.append((monotonic(), peer))
        else:
            drop(peer)

    def close(self) -> None:
        """Close the idle connections. Idempotent."""
        while self._idle:
            drop(self._idle.pop()[1])

    async def _connect(self) -> HttpPeer:
        try:
            if self._proxy is None or self._tls is None:
                return await _open(self._host, self._port, self._tls)
            return await self._tunnel(self._proxy, self._tls)
        except UnicodeError:
            raise OSError("the host name of the provider or of its proxy is not valid") from None

    async def _tunnel(self, proxy: str, tls: ssl.SSLContext) -> HttpPeer:
        """Connect through a proxy. The proxy sees the provider's host name, but no part of the requests."""
        url = urlsplit(proxy)
        peer = await _open(url.hostname or "", url.port or _PORTS[url.scheme], tls if url.scheme == "https" else None)
        try:
            host = f"[{self._host}]" if ":" in self._host else self._host
            await _request_tunnel(peer, f"{host}:{self._port}", url)
            await peer.writer.start_tls(tls, server_hostname=self._host)
        except BaseException:
            drop(peer)
            raise
        return HttpPeer(h11.CLIENT, peer.reader, peer.writer)


async def _request_tunnel(peer: HttpPeer, target: str, proxy: SplitResult) -> None:
    """Ask a proxy for a connection to ``target``. Raises :class:`NoAnswerError` and ``OSError``."""
    headers = [(b"host", target.encode())]
    if proxy.username is not None:
        login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
        headers.append((b"proxy-authorization", b"Basic " + b64encode(login)))
    await peer.send(h11.Request(method="CONNECT", target=target, headers=headers))
    await peer.send(h11.EndOfMessage())
    try:
        while isinstance(event := await peer.next_event(), h11.InformationalResponse):
            continue
    except h11.RemoteProtocolError:
        raise NoAnswerError(Trouble.UNREACHABLE, "the proxy in HTTPS_PROXY did not answer with HTTP") from None
    status = event.status_code if isinstance(event, h11.Response) else 0
    if not 200 <= status < 300:  # noqa: PLR2004 - a status is its own name
        raise NoAnswerError(Trouble.UNREACHABLE, f"the proxy in HTTPS_PROXY answered {status or 'nothing'}")


async def _open(host: str, port: int, tls: ssl.SSLContext | None) -> HttpPeer:
    name = host if tls else None
    reader, writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname=name, limit=PIECE)
    return HttpPeer(h11.CLIENT, reader, writer)


def drop(peer: HttpPeer) -> None:
    """Abort a connection without a TLS shutdown, which would have to wait for the server."""
    peer.writer.transport.abort()


@lru_cache(maxsize=8)
def _tls(ca_bundle: str | None) -> ssl.SSLContext:
    """Return the TLS context. It is cached because loading the system's CAs takes tens of milliseconds."""
    context = ssl.create_default_context()
    if ca_bundle is not None:
        context.load_verify_locations(cadata=ca_bundle)
    context.set_alpn_protocols(["http/1.1"])
    return context
