"""Bytes both ways between two connections, within bounds."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from securebench.egress.proxy.decisions import Reason, TunnelUsage

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from securebench.egress.proxy.client_hello import Introduction
    from securebench.egress.proxy.decisions import Ledger
    from securebench.egress.proxy.resolution import Streams

_PIECE: Final = 64 * 1024


class LimitError(Exception):
    """A bound cuts a connection. ``reason`` says which."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class TunnelMeter:
    """The bounds of one connection that was allowed, and what it used of them."""

    def __init__(self, ledger: Ledger) -> None:
        self.usage = TunnelUsage()
        self._ledger = ledger
        self._started = self._moved = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long it lasted so far."""
        return time.monotonic() - self._started

    def sent(self, count: int) -> None:
        """Count bytes out of the sandbox. Raises :class:`LimitError`."""
        self.usage.up += count
        self._count(count)

    def received(self, count: int) -> None:
        """Count bytes into the sandbox. Raises :class:`LimitError`."""
        self.usage.down += count
        self._count(count)

    async def watch(self, work: Coroutine[None, None, None]) -> None:
        """Do ``work`` until it is done, or a time is over: :class:`LimitError`."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait((task,), timeout=self._patience())
            task.result()
        finally:
            await stop(task)

    def _patience(self) -> float:
        """Return the seconds until a time may be over."""
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


async def tunnel(inside: Streams, outside: Streams, meter: TunnelMeter, introduction: Introduction) -> None:
    """Carry bytes until both sides have ended, or one breaks.

    What the client has said in ``introduction`` so far is carried already. Raises :class:`LimitError`, ``HelloError``
    and ``OSError``.
    """

    async def up() -> None:
        while piece := await inside[0].read(_PIECE):
            meter.sent(len(piece))
            await write(outside[1], introduction.feed(piece))
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
    """End ``tasks``, however they end: what they had to say was heard, or matters no more."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def write(writer: asyncio.StreamWriter, piece: bytes) -> None:
    """Send ``piece``, and wait while the other end is slower. Raises ``OSError``."""
    writer.write(piece)
    await writer.drain()


def _end(writer: asyncio.StreamWriter) -> None:
    """Say that nothing more comes, where that can be said."""
    with suppress(OSError):
        writer.write_eof()
