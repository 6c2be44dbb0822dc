"""Error responses of the proxy to programs in a sandbox: one line without secrets.

A response says why the request was refused. It does not list the allowed domains.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import h11

from securebench.egress.http_streams import PIECE
from securebench.egress.proxy.decisions import Decision, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.egress.http_streams import HttpPeer
    from securebench.egress.proxy.decisions import ProxyAttempt
    from securebench.egress.proxy.resolution import ProxyRequestError

BAD_GATEWAY: Final = 502

_BAD_REQUEST: Final = 400
_FORBIDDEN: Final = 403
_LINGER_SECONDS: Final = 1.0
_LINGER_BYTES: Final = 1024 * 1024
_ALERT: Final = bytes((21, 3, 3, 0, 2, 2, 49))
"""A TLS record with the fatal alert ``access_denied``."""

_TEXTS: Final[Mapping[Reason, str]] = {
    Reason.REQUEST_INVALID: "invalid proxy request",
    Reason.SCHEME_REFUSED: "unsupported scheme: use http://, or https:// through CONNECT",
    Reason.HOST_INVALID: "invalid host name",
    Reason.HOST_IS_ADDRESS: "IP addresses are not allowed: use a host name",
    Reason.HOST_MISMATCH: "the Host header does not name the host and port of the URL",
    Reason.PORT_REFUSED: "port not allowed: use port 443 (CONNECT) or port 80 (http://)",
    Reason.DOMAIN_NOT_ALLOWED: "{host} is not in allowed_domains of the tester's configuration",
    Reason.UPGRADE_REFUSED: "protocol upgrades are not allowed",
    Reason.ADDRESS_REFUSED: "the host name resolves to an address that is not public, or that belongs to this machine",
    Reason.UNRESOLVED: "the host name could not be resolved",
    Reason.UNREACHABLE: "the host could not be reached",
}


async def refuse(client: HttpPeer, attempt: ProxyAttempt, error: ProxyRequestError) -> None:
    """Send ``client`` the error response for ``error``. Raises ``OSError``."""
    text = _TEXTS.get(error.reason, "{host} cannot be reached").format(host=attempt.host)
    await answer(client, _status(error), f"{error.decision}: {text}")


async def answer(client: HttpPeer, status: int, text: str) -> None:
    """Send a one-line response. The caller must then close the connection. Raises ``OSError``."""
    body = f"securebench: {text}\n".encode("ascii")
    headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(body))), ("Connection", "close")]
    for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
        await client.send(event)
    await linger(client)


async def alert(client: HttpPeer) -> None:
    """Send a TLS alert into a refused tunnel. The caller must then close the connection. Raises ``OSError``."""
    client.writer.write(_ALERT)
    await linger(client)


async def linger(client: HttpPeer) -> None:
    """Close the sending side and discard incoming data: otherwise a TCP reset could destroy the unread response."""
    discarded = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            await client.writer.drain()
            client.writer.write_eof()
            while discarded < _LINGER_BYTES and (piece := await client.reader.read(PIECE)):
                discarded += len(piece)


def _status(error: ProxyRequestError) -> int:
    if error.reason is Reason.REQUEST_INVALID:
        return _BAD_REQUEST
    return BAD_GATEWAY if error.decision is Decision.FAILED else _FORBIDDEN
