"""Forward one plain HTTP request to its server and the response back. h11 frames both again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import h11

from securebench.egress.proxy.request import end_to_end
from securebench.egress.proxy.tunnel import stop

if TYPE_CHECKING:
    from securebench.egress.http_streams import HttpPeer
    from securebench.egress.proxy.tunnel import TunnelMeter


async def exchange(client: HttpPeer, server: HttpPeer, head: h11.Request, meter: TunnelMeter) -> None:
    """Send ``head`` and the client's body to the server, and its response to the client.

    Returns when the response is complete, even if the server did not read the body. Raises ``LimitError``, ``OSError``
    and ``h11.ProtocolError``.
    """
    await server.send(head)
    body = asyncio.ensure_future(_request_body(client, server, meter))
    answer = asyncio.ensure_future(_response(client, server, meter))
    try:
        done, _ = await asyncio.wait((body, answer), return_when=asyncio.FIRST_COMPLETED)
        if body in done:
            body.result()
        await answer
    finally:
        await stop(body, answer)


async def _request_body(client: HttpPeer, server: HttpPeer, meter: TunnelMeter) -> None:
    if client.connection.they_are_waiting_for_100_continue:
        await client.send(h11.InformationalResponse(status_code=100, headers=[]))
    async for piece in client.body():
        meter.sent(len(piece))
        await server.send(h11.Data(data=piece))
    await server.send(h11.EndOfMessage())


async def _response(client: HttpPeer, server: HttpPeer, meter: TunnelMeter) -> None:
    event = await server.next_event()
    while isinstance(event, h11.InformationalResponse):
        event = await server.next_event()
    if not isinstance(event, h11.Response):
        raise h11.RemoteProtocolError("the server closed the connection without a response")
    headers = end_to_end(list(event.headers))
    await client.send(h11.Response(status_code=event.status_code, headers=headers, reason=event.reason))
    async for piece in server.body():
        meter.received(len(piece))
        await client.send(h11.Data(data=piece))
    await client.send(h11.EndOfMessage())
