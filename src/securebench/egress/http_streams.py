"""HTTP/1.1 over asyncio streams: one end of one connection, with h11 deciding what is well-formed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import h11

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAX_HEAD_BYTES: Final = 64 * 1024
"""What the first line and the headers of a message may hold together."""

CLOSE_SECONDS: Final = 2.0
"""How long the other end may take for what it was sent last."""

PIECE: Final = 64 * 1024
"""What is read at once."""

Event = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


class HttpPeer:
    """One end of a connection. ``role`` is ours: ``h11.SERVER`` or ``h11.CLIENT``. Not thread safe."""

    def __init__(
        self, role: type[h11.CLIENT | h11.SERVER], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.connection = h11.Connection(role, max_incomplete_event_size=MAX_HEAD_BYTES)

    async def next_event(self) -> Event:
        """Return the next event of the other end. Raises ``h11.RemoteProtocolError`` and ``OSError``."""
        while (event := self.connection.next_event()) is h11.NEED_DATA:
            self.connection.receive_data(await self.reader.read(PIECE))
        return event

    async def send(self, event: h11.Event) -> None:
        """Send one event, and wait while the other end is slower. Raises ``h11.LocalProtocolError``, ``OSError``."""
        if data := self.connection.send(event):
            self.writer.write(data)
            await self.writer.drain()

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the message's body, to its end."""
        while isinstance(event := await self.next_event(), h11.Data):
            yield bytes(event.data)

    async def close(self) -> None:
        """Close the connection. Whatever the other end does not take in a few seconds is given up."""
        await close(self.writer)


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection, which takes at most :data:`CLOSE_SECONDS`. Raises nothing but cancellation."""
    writer.close()
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        pass
    finally:
        writer.transport.abort()
