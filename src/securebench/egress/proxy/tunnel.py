"""Copy bytes in both directions between two connections, within limits."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from securebench.egress.proxy.decisions import Reason, TunnelUsage

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from securebench.egress.proxy.client_hello import HelloChecker
    from securebench.egress.proxy.decisions import Ledger
    from securebench.egress.proxy.resolution import Streams

_PIECE: Final = 64 * 1024


class LimitError(Exception):
    """A connection exceeded a limit. ``reason`` says which."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class TunnelMeter:
    """Measures one allowed connection and enforces its limits."""

    def __init__(self, ledger: Ledger) -> None:
        self.usage = TunnelUsage()
        self._ledger = ledger
        self._started = self._moved = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the connection was allowed."""
        return time.monotonic() - self._started

    def sent(self, count: int) -> None:
        """Count bytes that leave the sandbox. Raises :class:`LimitError`."""
        self.usage.up += count
        self._count(count)

    def received(self, count: int) -> None:
        """Count bytes that enter the sandbox. Raises :class:`LimitError`."""
        self.usage.down += count
        self._count(count)

    async def watch(self, work: Coroutine[None, None, None]) -> None:
        """Run ``work`` to its end. Raises :class:`LimitError` when a time limit is reached."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait((task,), timeout=self._seconds_left())
            task.result()
        finally:
            await stop(task)

    def _seconds_left(self) -> float:
        """Return the seconds until the next time limit. Raises :class:`LimitError` if one was reached."""
        caps = self._ledger.caps
        now = time.monotonic()
        left = self._started + caps.connection_seconds - now
        quiet = self._moved + caps.idle_seconds - now
        if left <= 0 or quiet <= 0:
            raise LimitError(Reason.TIME_LIMIT if left <= 0 else Reason.IDLE)
        return min(left, quiet)

    def _count(self, count: int) -> None:
        self._moved = time.monotonic()
        enough = self._ledger.spend(count)
        if not enough or self.usage.total > self._ledger.caps.connection_bytes:
            raise LimitError(Reason.BYTE_LIMIT)


async def tunnel(inside: Streams, outside: Streams, meter: TunnelMeter, checker: HelloChecker) -> None:
    """Copy bytes until both sides have closed or one fails.

    The data that ``checker`` has already accepted was forwarded by the caller. Raises :class:`LimitError`,
    ``HelloError`` and ``OSError``.
    """

    async def up() -> None:
        while piece := await inside[0].read(_PIECE):
            meter.sent(len(piece))
            await write(outside[1], checker.feed(piece))
        _end(outside[1])

    async def down() -> None:
        while piece := await outside[0].read(_PIECE):
            meter.received(len(piece))
            await write(inside[1], piece)
        _end(inside[1])

    directions = asyncio.ensure_future(up()), asyncio.ensure_future(down())
    try:
        await asyncio.gather(*directions)
    finally:
        await stop(*directions)


async def stop(*tasks: asyncio.Future[None]) -> None:
    """Cancel ``tasks`` and wait for them. Their results and exceptions are discarded."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def write(writer: asyncio.StreamWriter, piece: bytes) -> None:
    """Send ``piece``, with flow control. Raises ``OSError``."""
    writer.write(piece)
    await writer.drain()


def _end(writer: asyncio.StreamWriter) -> None:
    """Close the sending side, if it is still open."""
    with suppress(OSError):
        writer.write_eof()
