"""Remove the key from forwarded data."""

from __future__ import annotations

from typing import Final

from securebench.resources import REDACTED

_REDACTED: Final = REDACTED.encode()


class Eraser:
    """Removes a key from a stream of bytes, even if it is split between pieces. Without a key, nothing changes.

    Data is returned at once, except for a suffix that may be the beginning of the key.
    """

    def __init__(self, key: str | None) -> None:
        self._key = (key or "").encode()
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Add a piece, and return the data that can be forwarded."""
        if not self._key:
            return piece
        data = (self._held + piece).replace(self._key, _REDACTED)
        held = self._begun(data)
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def finish(self) -> bytes:
        """Return the remaining data."""
        rest, self._held = self._held, b""
        return rest

    def _begun(self, data: bytes) -> int:
        """Return the length of the longest suffix of ``data`` that is a proper prefix of the key."""
        longest = min(len(self._key) - 1, len(data))
        return next((size for size in range(longest, 0, -1) if data.endswith(self._key[:size])), 0)


def erased(data: bytes, key: str | None) -> bytes:
    """Return ``data`` with ``key`` replaced by the redaction mark."""
    eraser = Eraser(key)
    return eraser.feed(data) + eraser.finish()
