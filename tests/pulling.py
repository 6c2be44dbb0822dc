"""Downloads of images in tests, with a sink in memory and short timeouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.http.timeouts import Timeouts
from securebench.images.registry import Fetched, Platform, fetch_image

if TYPE_CHECKING:
    from collections.abc import Iterable

AMD64 = Platform("linux", "amd64")
QUICK = Timeouts(connect=2, read=0.3, total=10, attempts=3, pause=0.01, longest_pause=1)


class MemorySink:
    """A sink that keeps blobs in memory. It checks nothing: the code under test must check blobs first."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.begun: list[str] = []

    def has(self, digest: str) -> bool:
        """Return whether the sink has the blob."""
        return digest in self.blobs

    def write(self, digest: str, size: int, pieces: Iterable[bytes]) -> None:
        """Note the start of a blob, and store the blob once all of its pieces have arrived."""
        self.begun.append(digest)
        self.blobs[digest] = b"".join(pieces)


def pull(
    reference: str, sink: MemorySink | None = None, timeouts: Timeouts = QUICK, lines: list[str] | None = None
) -> Fetched:
    """Download an image for ``linux/amd64`` on any machine. Progress messages are appended to ``lines``."""
    messages = [] if lines is None else lines
    return fetch_image(reference, sink or MemorySink(), messages.append, AMD64, timeouts)
