"""TLS ClientHello messages: real ones, and ones made for tests."""

from __future__ import annotations

import ssl
from contextlib import suppress

ENCRYPTED = (0xFE0D, b"\0" * 32)
EARLY_DATA = (42, b"")


def real_hello(name: str) -> bytes:
    """Return the ClientHello that Python's TLS client sends to the server ``name``."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=name)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def sized(body: bytes, width: int = 2) -> bytes:
    """Return the length of ``body`` as a number of ``width`` bytes, followed by ``body``."""
    return len(body).to_bytes(width) + body


def record(body: bytes, kind: int = 22) -> bytes:
    """Return ``body`` as a TLS record."""
    return bytes((kind, 3, 1)) + sized(body)


def server_name(name: bytes) -> tuple[int, bytes]:
    """Return the extension that names the server."""
    return 0, sized(b"\0" + sized(name))


def message(*extensions: tuple[int, bytes]) -> bytes:
    """Return a ClientHello with these extensions, not yet in a TLS record."""
    listed = b"".join(number.to_bytes(2) + sized(body) for number, body in extensions)
    body = b"\3\3" + b"r" * 32 + sized(b"", 1) + sized(b"\x13\x01") + sized(b"\0", 1) + sized(listed)
    return b"\1" + sized(body, 3)


def hello(name: str, *others: tuple[int, bytes]) -> bytes:
    """Return a ClientHello for ``name`` in one record."""
    return record(message(server_name(name.encode()), *others))
