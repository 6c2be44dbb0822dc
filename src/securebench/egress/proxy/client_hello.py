"""Read the server name (SNI) of a TLS ClientHello, in linear time. Anything ambiguous is refused.

The layout is that of RFC 8446, sections 4.1.2 and 5.1; TLS 1.2 has the same one. The server name is defined in
RFC 6066, section 3, and its encrypted form (ECH) in RFC 9849.
"""

from __future__ import annotations

from typing import Final

from securebench.egress.proxy.decisions import Reason

MAX_HELLO: Final = 32 * 1024
"""Maximum bytes of a ClientHello without record headers. The largest in use (with post-quantum keys) have 2 KiB."""

_CHANGE_CIPHER_SPEC: Final = 20
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_RECORD_HEADER: Final = 5
_MESSAGE_HEADER: Final = 4
_CHANGE_LENGTH: Final = 6
_MAX_RECORD: Final = 1 << 14
_MAX_RECORDS: Final = 64
"""Maximum number of records of one message. Some clients use a few records. More records would only cost time."""
_MAJOR_VERSION: Final = 3
_RANDOM: Final = 2 + 32
_SERVER_NAME: Final = 0
_HOST_NAME: Final = 0
_ENCRYPTED: Final = frozenset({0xFE0D, 0xFFCE})
"""Extensions: encrypted ClientHello, and the encrypted SNI of earlier drafts. Both hide the real server name."""
_EARLY_DATA: Final = 42
"""The extension for early data, which is encrypted: a second ClientHello could follow the early data unnoticed."""


class HelloError(ValueError):
    """The data is not a TLS ClientHello that the proxy accepts. ``reason`` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class HelloChecker:
    """Checks what a client sends before its data is encrypted: each ClientHello must name ``host``.

    If the server requests another key (HelloRetryRequest), the client sends a second ClientHello. The second
    ClientHello is checked, too, because the server may use the name in it.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._pending = b""
        self._is_over = False
        self.is_complete = False
        """Whether a complete ClientHello for ``host`` was received."""

    def feed(self, data: bytes) -> bytes:
        """Add data from the client, and return the data that may now be forwarded. Raises :class:`HelloError`."""
        if self._is_over:
            return data
        self._pending += data
        end = 0
        while (following := self._next(end)) > end:
            end = following
        passed, self._pending = self._pending[:end], self._pending[end:]
        return passed

    def _next(self, at: int) -> int:
        """Check the message or record at offset ``at``, and return the offset up to which data may be forwarded."""
        start = self._pending[at : at + _RECORD_HEADER + 1]
        if not self.is_complete or start[:1] == b"":
            return self._hello(at)
        if start[0] == _CHANGE_CIPHER_SPEC:  # TLS 1.3 clients still send it, without a meaning
            return self._change(at)
        is_short = len(start) <= _RECORD_HEADER or start[3:_RECORD_HEADER] == bytes(2)
        if start[0] == _HANDSHAKE and (is_short or start[-1] == _CLIENT_HELLO):
            return self._hello(at)
        # Any other record after a ClientHello ends the checks: all data may be forwarded from now on.
        self._is_over = True
        return len(self._pending)

    def _change(self, at: int) -> int:
        start = self._pending[at + 3 : at + _CHANGE_LENGTH]
        if not bytes((0, 1, 1)).startswith(start):
            raise HelloError(Reason.TLS_REQUIRED)
        return at + _CHANGE_LENGTH if len(self._pending) >= at + _CHANGE_LENGTH else at

    def _hello(self, at: int) -> int:
        if (found := read_hello(self._pending[at:])) is None:
            return at
        name, length = found
        if name != self._host:
            raise HelloError(Reason.SERVER_NAME_MISMATCH)
        self.is_complete = True
        return at + length


def read_hello(data: bytes) -> tuple[str, int] | None:
    """Return the server name in lower case, and the offset in ``data`` at which the message ends.

    ``data`` starts with the message, in records of any size. The result is ``None`` if the message is incomplete.
    Raises :class:`HelloError`.
    """
    joined = b""
    at = 0
    for _ in range(_MAX_RECORDS):
        if (record := _record(data, at)) is None:
            return None
        joined += record
        at += _RECORD_HEADER + len(record)
        if len(joined) >= _MESSAGE_HEADER and len(joined) >= _end(joined):
            break
    # Refuse a message in too many records, and a last record that contains other data too.
    if len(joined) < _MESSAGE_HEADER or len(joined) != _end(joined):
        raise HelloError(Reason.TLS_REQUIRED)
    return _name(_extensions(joined[_MESSAGE_HEADER:])), at


def _record(data: bytes, at: int) -> bytes | None:
    """Return the body of the record at ``at``, or ``None`` if it is incomplete."""
    header = data[at : at + _RECORD_HEADER]
    if header and not bytes((_HANDSHAKE, _MAJOR_VERSION)).startswith(header[:2]):
        raise HelloError(Reason.TLS_REQUIRED)
    if len(header) < _RECORD_HEADER:
        return None
    length = int.from_bytes(header[3:])
    if not 0 < length <= _MAX_RECORD:
        raise HelloError(Reason.TLS_REQUIRED)
    body = data[at + _RECORD_HEADER : at + _RECORD_HEADER + length]
    return body if len(body) == length else None


def _end(joined: bytes) -> int:
    """Return the end of the message according to its header."""
    end = _MESSAGE_HEADER + int.from_bytes(joined[1:_MESSAGE_HEADER])
    if joined[0] != _CLIENT_HELLO or end > MAX_HELLO:
        raise HelloError(Reason.TLS_REQUIRED)
    return end


def _extensions(message: bytes) -> dict[int, bytes]:
    """Return the extensions by number. A duplicate is refused."""
    left = message[_RANDOM:]
    for width in (1, 2, 1):  # session, cipher suites, compression
        _, left = _vector(left, width)
    found: dict[int, bytes] = {}
    left = _only(left) if left else b""
    while left:
        number = int.from_bytes(left[:2])
        body, left = _vector(left[2:], 2)
        if number in found:
            raise HelloError(Reason.TLS_REQUIRED)
        found[number] = body
    return found


def _name(extensions: dict[int, bytes]) -> str:
    """Return the server name. There must be exactly one."""
    if not _ENCRYPTED.isdisjoint(extensions):
        raise HelloError(Reason.SERVER_NAME_ENCRYPTED)
    if _EARLY_DATA in extensions:
        raise HelloError(Reason.EARLY_DATA_REFUSED)
    if _SERVER_NAME not in extensions:
        raise HelloError(Reason.SERVER_NAME_MISSING)
    names = _only(extensions[_SERVER_NAME])
    if names[:1] != bytes((_HOST_NAME,)):
        raise HelloError(Reason.TLS_REQUIRED)
    name = _only(names[1:])
    if not name.isascii():
        raise HelloError(Reason.SERVER_NAME_MISMATCH)
    return name.decode("ascii").lower()


def _vector(data: bytes, width: int) -> tuple[bytes, bytes]:
    """Return the body of the vector at the start of ``data``, and the data after the vector.

    The vector starts with a length field of ``width`` bytes.
    """
    end = width + int.from_bytes(data[:width])
    if len(data) < max(end, width):
        raise HelloError(Reason.TLS_REQUIRED)
    return data[width:end], data[end:]


def _only(data: bytes) -> bytes:
    """Return the body of a vector with a two-byte length. Data after it is refused."""
    body, rest = _vector(data, 2)
    if rest:
        raise HelloError(Reason.TLS_REQUIRED)
    return body
