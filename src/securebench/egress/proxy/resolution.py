"""Connect to a host by name: resolve it once, check every address, and connect only to a checked address."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from securebench.egress.proxy.addresses import may_connect, networks
from securebench.egress.proxy.decisions import Decision, Reason

if TYPE_CHECKING:
    from securebench.egress.proxy.addresses import Address
    from securebench.egress.rules import Caps, ProxyRules

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_MAX_TRIED: Final = 4
"""How many addresses of a name are tried in turn."""


class ProxyRequestError(Exception):
    """The proxy refuses a request, or cannot serve it.

    ``decision`` and ``reason`` are for the log. ``address`` is the address concerned, if any.
    """

    def __init__(self, reason: Reason, decision: Decision = Decision.DENIED, address: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.decision = decision
        self.address = address


class Dialer:
    """Connects to hosts by name, for one task."""

    def __init__(self, rules: ProxyRules, caps: Caps) -> None:
        self._rules = rules
        self._caps = caps
        self._trusted = networks(rules.trusted)
        self._lookups = asyncio.Semaphore(caps.lookups)

    async def dial(self, host: str, port: int) -> tuple[str, Streams]:
        """Return an address of ``host`` and a connection to it. Raises :class:`ProxyRequestError`.

        If any address of a name is refused, the name is refused: its DNS zone is not trustworthy.
        """
        addresses = await self._resolve(host)
        for address in addresses:
            if not may_connect(address, self._trusted):
                raise ProxyRequestError(Reason.ADDRESS_REFUSED, address=str(address))
        return await self._connect(addresses, self._rules.ports.get(port, port))

    async def _resolve(self, host: str) -> list[Address]:
        try:
            async with asyncio.timeout(self._caps.resolve_seconds):
                found = self._rules.names.get(host) or await self._look_up(host)
            addresses = list(dict.fromkeys(map(ip_address, found)))
        except (OSError, ValueError, TimeoutError) as error:
            raise ProxyRequestError(Reason.UNRESOLVED, Decision.FAILED) from error
        if not addresses:
            raise ProxyRequestError(Reason.UNRESOLVED, Decision.FAILED)
        return addresses

    async def _look_up(self, host: str) -> list[str]:
        await self._lookups.acquire()
        # The trailing dot disables this machine's search domains. Passing bytes avoids IDNA, which maps confusable
        # names.
        name = f"{host}.".encode("ascii")
        loop = asyncio.get_running_loop()
        lookup = asyncio.ensure_future(loop.getaddrinfo(name, None, type=socket.SOCK_STREAM))
        lookup.add_done_callback(self._looked_up)
        # A running lookup cannot be cancelled. So it counts towards the limit of simultaneous lookups until it ends,
        # even if its caller has given up.
        return [str(place[0]) for *_, place in await asyncio.shield(lookup)]

    def _looked_up(self, lookup: asyncio.Future[Any]) -> None:
        self._lookups.release()
        if not lookup.cancelled():
            lookup.exception()  # retrieve it: asyncio logs exceptions that were never retrieved

    async def _connect(self, addresses: list[Address], port: int) -> tuple[str, Streams]:
        tried = [str(address) for address in addresses[:_MAX_TRIED]]
        for address in tried:
            try:
                # Share the time between the addresses: this machine may have no route to the first one.
                async with asyncio.timeout(self._caps.connect_seconds / len(tried)):
                    return address, await asyncio.open_connection(address, port)
            except (OSError, TimeoutError):
                continue
        raise ProxyRequestError(Reason.UNREACHABLE, Decision.FAILED, tried[0])
