"""HTTP/1.1 over asyncio streams: one end of a connection. h11 decides what is well-formed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import h11

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAX_HEAD_BYTES: Final = 64 * 1024
"""Maximum size of a message's first line and headers together."""

CLOSE_SECONDS: Final = 2.0
"""Seconds to wait for the peer to receive the last data before a connection is closed."""

PIECE: Final = 64 * 1024
"""Maximum bytes per read."""

Event = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


class HttpPeer:
    """One end of a connection. ``role`` is the local role: ``h11.SERVER`` or ``h11.CLIENT``. Not thread safe."""

    def __init__(
        self, role: type[h11.CLIENT | h11.SERVER], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.connection = h11.Connection(role, max_incomplete_event_size=MAX_HEAD_BYTES)

    async def next_event(self) -> Event:
        """Return the next event from the peer. Raises ``h11.RemoteProtocolError`` and ``OSError``."""
        while (event := self.connection.next_event()) is h11.NEED_DATA:
            self.connection.receive_data(await self.reader.read(PIECE))
        return event

    def arrived(self) -> tuple[bytes, bool]:
        """Return the body data that has already arrived, and whether the body is complete.

        Call this only after :meth:`next_event` has returned data. If what follows is malformed, the next call of
        :meth:`next_event` raises the error.
        """
        pieces: list[bytes] = []
        try:
            while isinstance(event := self.connection.next_event(), h11.Data):
                pieces.append(bytes(event.data))
        except h11.RemoteProtocolError:
            return b"".join(pieces), False
        return b"".join(pieces), isinstance(event, h11.EndOfMessage)

    async def send(self, event: h11.Event) -> None:
        """Send one event, with flow control. Raises ``h11.LocalProtocolError`` and ``OSError``."""
        if data := self.connection.send(event):
            self.writer.write(data)
            await self.writer.drain()

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the message body in pieces."""
        while isinstance(event := await self.next_event(), h11.Data):
            yield bytes(event.data)

    async def close(self) -> None:
        """Close the connection. Data that the peer does not read within a few seconds is discarded."""
        await close(self.writer)


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection within :data:`CLOSE_SECONDS`. Raises only ``CancelledError``."""
    writer.close()
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        pass
    finally:
        writer.transport.abort()
