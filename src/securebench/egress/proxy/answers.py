"""How somebody in a sandbox is told that a request is not served: one line, of which nothing is a secret.

The list of what is allowed is not in it: it says what this request would need.
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
    from securebench.egress.proxy.resolution import RefusalError

BAD_GATEWAY: Final = 502

_BAD_REQUEST: Final = 400
_FORBIDDEN: Final = 403
_LINGER_SECONDS: Final = 1.0
_LINGER_BYTES: Final = 1024 * 1024
_ALERT: Final = bytes((21, 3, 3, 0, 2, 2, 49))
"""A record of TLS: the fatal alert ``access_denied``."""

_TEXTS: Final[Mapping[Reason, str]] = {
    Reason.REQUEST_INVALID: "not a request that a proxy understands",
    Reason.SCHEME_REFUSED: "only http:// is served here, and https:// through CONNECT",
    Reason.HOST_INVALID: "that is not the name of a host",
    Reason.HOST_IS_ADDRESS: "hosts are reached by their names, not by addresses",
    Reason.HOST_MISMATCH: "the Host header names another host than the URL",
    Reason.PORT_REFUSED: "only port 443 (CONNECT) and port 80 (http://) can be reached",
    Reason.DOMAIN_NOT_ALLOWED: "{host} would have to be in allowed_domains of the tester's configuration",
    Reason.UPGRADE_REFUSED: "connections cannot be upgraded to another protocol",
    Reason.ADDRESS_REFUSED: "the name leads to an address that is not on the public internet",
    Reason.UNRESOLVED: "the name of the host could not be resolved",
    Reason.UNREACHABLE: "the host could not be reached",
}


async def refuse(client: HttpPeer, attempt: ProxyAttempt, error: RefusalError) -> None:
    """Tell ``client`` that its request is not served. Raises ``OSError``."""
    text = _TEXTS.get(error.reason, "{host} cannot be reached").format(host=attempt.host)
    await answer(client, _status(error), f"{error.decision}: {text}")


async def answer(client: HttpPeer, status: int, text: str) -> None:
    """Answer with a line of our own, after which the connection has to be closed. Raises ``OSError``."""
    body = f"securebench: {text}\n".encode("ascii")
    headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(body))), ("Connection", "close")]
    for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
        await client.send(event)
    await linger(client)


async def alert(client: HttpPeer) -> None:
    """Tell ``client`` in TLS that its tunnel leads nowhere, after which it has to be closed. Raises ``OSError``."""
    client.writer.write(_ALERT)
    await linger(client)


async def linger(client: HttpPeer) -> None:
    """Say that nothing more comes, and take what is still on its way: else the last words might be lost to a reset."""
    taken = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            await client.writer.drain()
            client.writer.write_eof()
            while taken < _LINGER_BYTES and (piece := await client.reader.read(PIECE)):
                taken += len(piece)


def _status(error: RefusalError) -> int:
    if error.reason is Reason.REQUEST_INVALID:
        return _BAD_REQUEST
    return BAD_GATEWAY if error.decision is Decision.FAILED else _FORBIDDEN
