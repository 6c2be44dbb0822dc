"""Downloading in tests: a sink in memory, and limits that a test can wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.http.timeouts import Timeouts
from securebench.images.registry import Fetched, Platform, fetch_image

if TYPE_CHECKING:
    from collections.abc import Iterable

AMD64 = Platform("linux", "amd64")
QUICK = Timeouts(connect=2, read=0.3, total=10, attempts=3, pause=0.01, longest_pause=1)


class MemorySink:
    """Keeps blobs, and checks nothing: what is checked must be checked before."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.begun: list[str] = []

    def has(self, digest: str) -> bool:
        """Say whether a blob is there."""
        return digest in self.blobs

    def write(self, digest: str, size: int, pieces: Iterable[bytes]) -> None:
        """Keep a blob once it has all come."""
        self.begun.append(digest)
        self.blobs[digest] = b"".join(pieces)


def pull(
    reference: str, sink: MemorySink | None = None, timeouts: Timeouts = QUICK, lines: list[str] | None = None
) -> Fetched:
    """Download for ``linux/amd64``, whatever machine this is."""
    messages = [] if lines is None else lines
    return fetch_image(reference, sink or MemorySink(), messages.append, AMD64, timeouts)
