"""A key, taken out of whatever passes by."""

from __future__ import annotations

from typing import Final

from securebench.resources import REDACTED

_REDACTED: Final = REDACTED.encode()


class Eraser:
    """Takes one key out of a stream of bytes, also where it is cut in two. No key: nothing is changed.

    A piece is passed on at once, except for an end of it that the key could begin with.
    """

    def __init__(self, key: str | None) -> None:
        self._key = (key or "").encode()
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Return what can be passed on."""
        if not self._key:
            return piece
        data = (self._held + piece).replace(self._key, _REDACTED)
        held = self._begun(data)
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def finish(self) -> bytes:
        """Return the rest."""
        rest, self._held = self._held, b""
        return rest

    def _begun(self, data: bytes) -> int:
        """Return how many bytes at the end of ``data`` the key begins with."""
        longest = min(len(self._key) - 1, len(data))
        return next((size for size in range(longest, 0, -1) if data.endswith(self._key[:size])), 0)


def erased(data: bytes, key: str | None) -> bytes:
    """Return ``data`` without ``key``."""
    eraser = Eraser(key)
    return eraser.feed(data) + eraser.finish()
