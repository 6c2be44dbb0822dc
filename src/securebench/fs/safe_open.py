"""Opening what somebody else wrote: by descriptor, through no link, in no way that could block."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""``O_NONBLOCK``: opening a FIFO returns at once instead of waiting for a writer."""

_SHOWN_LENGTH = 160


def printable(name: bytes) -> str:
    """Return ``name`` for people: control, direction and invalid characters escaped, and clipped."""
    text = name.decode("utf-8", "backslashreplace")
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return shown if len(shown) <= _SHOWN_LENGTH else shown[:_SHOWN_LENGTH] + "..."


@contextmanager
def opened(path: str | bytes | Path, flags: int, directory: int | None = None) -> Iterator[int]:
    """Open ``path`` (below the descriptor ``directory``) and close it at the end."""
    descriptor = os.open(path, flags, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
