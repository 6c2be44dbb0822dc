"""The HTTP/1.1 proxy of a sandbox: it connects only to the allowed domains.

Each request is checked on its own, by host name. The proxy resolves the name, checks every address, and connects only
to a checked address. A tunnel must start with a TLS ClientHello for the same name. Plain HTTP requests and responses
are parsed and written again with h11.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import h11

from securebench.egress.http_streams import PIECE, HttpPeer, close
from securebench.egress.proxy.answers import BAD_GATEWAY, alert, answer, refuse
from securebench.egress.proxy.client_hello import HelloChecker, HelloError
from securebench.egress.proxy.decisions import Decision, ProxyAttempt, Reason
from securebench.egress.proxy.domains import AllowedDomains
from securebench.egress.proxy.request import UnreadableError, end_to_end, forwarded, judge, read
from securebench.egress.proxy.resolution import Dialer, ProxyRequestError
from securebench.egress.proxy.tunnel import LimitError, TunnelMeter, stop, tunnel, write

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from securebench.egress.proxy.decisions import Ledger
    from securebench.egress.proxy.resolution import Streams
    from securebench.egress.rules import ProxyRules

_BROKEN: Final = (OSError, EOFError, h11.ProtocolError)
_OK: Final = 200


async def exchange(client: HttpPeer, server: HttpPeer, head: h11.Request, meter: TunnelMeter) -> None:
    """Send ``head`` and the client's body to the server, and the server's response to the client.

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


class Proxy:
    """One task's proxy. It belongs to one event loop. ``ledger`` records each decision."""

    def __init__(self, domains: Iterable[str], ledger: Ledger, rules: ProxyRules) -> None:
        """Allow ``domains``. Raises :class:`~securebench.egress.proxy.domains.HostError` if one is invalid."""
        self._allowed = AllowedDomains(domains)
        self._ledger = ledger
        self._dialer = Dialer(rules, ledger.caps)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection from the sandbox, then close it. Raises only ``CancelledError``."""
        client = HttpPeer(h11.SERVER, reader, writer)
        try:
            with suppress(*_BROKEN):
                while await self._serve_one(client):
                    client.connection.start_next_cycle()
        finally:
            await client.close()

    async def _serve_one(self, client: HttpPeer) -> bool:
        """Serve one request, and return whether another may follow on the same connection."""
        try:
            async with asyncio.timeout(self._ledger.caps.head_seconds):
                request = await client.next_event()
        except h11.RemoteProtocolError:
            await self._refuse(client, ProxyAttempt("http"), ProxyRequestError(Reason.REQUEST_INVALID))
            return False
        return isinstance(request, h11.Request) and await self._judge(client, request)

    async def _judge(self, client: HttpPeer, request: h11.Request) -> bool:
        attempt = ProxyAttempt("http")
        try:
            wanted = read(request)
            attempt = wanted.attempt
            judge(wanted, request, self._allowed)
            address, outside = await self._dialer.dial(attempt.host, attempt.port)
        except ProxyRequestError as error:
            await self._refuse(client, error.attempt if isinstance(error, UnreadableError) else attempt, error)
            return False
        try:
            if attempt.kind == "connect":
                return await self._tunnel(client, attempt, address, outside)
            head = h11.Request(method=request.method, target=wanted.target, headers=forwarded(wanted, request))
            return await self._forward(client, (attempt, head), address, outside)
        finally:
            await close(outside[1])

    async def _refuse(self, client: HttpPeer, attempt: ProxyAttempt, error: ProxyRequestError) -> None:
        self._ledger.decide(attempt, error.decision, error.reason, error.address)
        await refuse(client, attempt, error)

    async def _forward(
        self, client: HttpPeer, request: tuple[ProxyAttempt, h11.Request], address: str, outside: Streams
    ) -> bool:
        attempt, head = request
        server = HttpPeer(h11.CLIENT, *outside)
        await self._metered(attempt, address, lambda meter: exchange(client, server, head, meter))
        if client.connection.our_state is h11.SEND_RESPONSE:
            await answer(client, BAD_GATEWAY, "the host did not send a valid response, or a limit was reached")
        return client.connection.our_state is client.connection.their_state is h11.DONE

    async def _tunnel(self, client: HttpPeer, attempt: ProxyAttempt, address: str, outside: Streams) -> bool:
        await client.next_event()  # the end of the request: it has no body
        await client.send(h11.Response(status_code=_OK, headers=[]))
        checker = HelloChecker(attempt.host)
        try:
            hello = await self._hello(client, checker)
        except ProxyRequestError as error:
            self._ledger.decide(attempt, error.decision, error.reason, address)
            await alert(client)
            return False

        async def carry(meter: TunnelMeter) -> None:
            meter.sent(len(hello))
            await write(outside[1], hello)
            await tunnel((client.reader, client.writer), outside, meter, checker)

        await self._metered(attempt, address, carry)
        return False

    async def _hello(self, client: HttpPeer, checker: HelloChecker) -> bytes:
        """Return the client's first data once it is a ClientHello for the right host.

        Raises :class:`ProxyRequestError`.
        """
        data, _ = client.connection.trailing_data
        try:
            async with asyncio.timeout(self._ledger.caps.head_seconds):
                while not (hello := checker.feed(data)):
                    data = await client.reader.read(PIECE)
                    if not data:
                        raise ProxyRequestError(Reason.BROKEN, Decision.FAILED)
        except HelloError as error:
            raise ProxyRequestError(error.reason) from error
        except TimeoutError as error:
            raise ProxyRequestError(Reason.TLS_REQUIRED) from error
        return hello

    async def _metered(
        self, attempt: ProxyAttempt, address: str, work: Callable[[TunnelMeter], Coroutine[None, None, None]]
    ) -> None:
        """Log that a request is allowed, run ``work`` for it, and log how the connection ended."""
        self._ledger.decide(attempt, Decision.ALLOWED, Reason.ALLOWED, address)
        meter = TunnelMeter(self._ledger)
        reason = Reason.SESSION_CLOSED  # the reason if ``work`` is cancelled
        try:
            await meter.watch(work(meter))
            reason = Reason.DONE
        except (LimitError, HelloError) as error:
            reason = error.reason
        except _BROKEN:
            reason = Reason.BROKEN
        finally:
            self._ledger.close(attempt, reason, meter.usage, meter.seconds)
