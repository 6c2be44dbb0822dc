"""HTTP/1.1 over asyncio streams: one end of one connection, with h11 deciding what is well-formed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import h11

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAX_HEAD_BYTES: Final = 64 * 1024
"""What the first line and the headers of a message may hold together."""

PIECE: Final = 64 * 1024
"""What is read at once."""

Event = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


class Peer:
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
        """Close the connection. Whatever is still to be sent is given up."""
        self.writer.close()
        with suppress(OSError, asyncio.CancelledError):
            await self.writer.wait_closed()
