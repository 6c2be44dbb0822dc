"""Read what programs write to pseudo-terminals."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def shown_pieces(terminal: int) -> Iterator[bytes]:
    """Yield what is written to a pseudo-terminal until all programs have closed it.

    ``terminal`` is the descriptor of its controlling side.
    """
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # Linux fails with EIO when the other side is closed
            return
        yield piece


def shown_on(terminal: int) -> str:
    """Return everything that :func:`shown_pieces` yields, as one text."""
    return b"".join(shown_pieces(terminal)).decode()
