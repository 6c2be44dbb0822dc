"""Pseudo-terminals: what a program shows on one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def shown_pieces(terminal: int) -> Iterator[bytes]:
    """Yield what is written to a terminal, read from its controlling side, until nobody has the other side open."""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # Linux fails with EIO when the other side is closed
            return
        yield piece


def shown_on(terminal: int) -> str:
    """Return everything that is written to a terminal, read like :func:`shown_pieces`."""
    return b"".join(shown_pieces(terminal)).decode()
