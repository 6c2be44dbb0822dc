"""What a container has changed of one directory, in the upper directory of its overlay, once nothing of it lives.

A descriptor of it keeps the file system in memory that it lies on, also when that is mounted nowhere any more: so
nothing of a cell needs to be kept for who reads it, and with the last reader's process it is gone.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Any

CHANGED, UNCHANGED, REPLACED = "changed", "unchanged", "replaced"

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_changes(upper: str, path: str, opaque: str) -> tuple[dict[str, Any], int]:
    """Return what to report of ``path`` below ``upper``, and the descriptor of that directory, or -1.

    It is opened component by component, and no link is followed. ``opaque`` is the attribute of a directory that shows
    nothing of the image: above the wanted one it means that this is another directory, whatever its name.
    """
    try:
        descriptor = _open_below(upper, path, opaque)
    except FileNotFoundError:
        return {"collected": UNCHANGED}, -1
    except NotADirectoryError:
        return {"collected": REPLACED}, -1
    except OSError as error:  # such as no room for more descriptors
        return {"collected": str(error)}, -1
    return {"collected": CHANGED, "opaque": opaque}, descriptor


def _open_below(upper: str, path: str, opaque: str) -> int:
    """Return its descriptor. Raises ``NotADirectoryError`` where a link, a file or the mark of a removal stands."""
    descriptor = os.open(upper, _OPEN)
    for part in filter(None, path.split("/")):
        try:
            if _is_opaque(descriptor, opaque):
                raise NotADirectoryError(errno.ENOTDIR, "it is in another directory")
            below = os.open(part, _OPEN, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def _is_opaque(descriptor: int, attribute: str) -> bool:
    with suppress(OSError):  # it has none
        return os.getxattr(descriptor, attribute) == b"y"
    return False
