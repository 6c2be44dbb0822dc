"""What a container has changed of one directory, in the upper directory of its overlay, once nothing of it lives.

A descriptor of it keeps the file system in memory that it lies on, also when that is mounted nowhere any more: so
nothing of a cell needs to be kept for who reads it, and with the last reader's process it is gone.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import Any

CHANGED, UNCHANGED, REPLACED = "changed", "unchanged", "replaced"

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_changes(upper: str, path: str, opaque: str) -> tuple[dict[str, Any], int]:
    """Return what to report of ``path`` below ``upper``, and the descriptor of that directory, or -1.

    It is opened component by component, and no link is followed. ``opaque`` is the attribute of a directory that shows
    nothing of the image, nor does any below it.
    """
    descriptor, whole = -1, False
    for part in (upper, *filter(None, path.split("/"))):
        try:
            below = os.open(part, _OPEN, dir_fd=None if descriptor < 0 else descriptor)
        except FileNotFoundError:
            return {"collected": REPLACED if whole else UNCHANGED}, -1
        except NotADirectoryError:  # a link, a file, or the mark of what was removed
            return {"collected": REPLACED}, -1
        except OSError as error:  # such as no room for more descriptors
            return {"collected": str(error)}, -1
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        descriptor = below
        whole = whole or _is_opaque(descriptor, opaque)
    _let_owner_in(descriptor)
    return {"collected": CHANGED, "opaque": opaque, "whole": whole}, descriptor


def _let_owner_in(descriptor: int) -> None:
    """Let who reads it search it, whatever mode it was left with: what is in it decides, for root and others alike."""
    mode = os.fstat(descriptor).st_mode
    if ~mode & stat.S_IRWXU:
        os.fchmod(descriptor, stat.S_IMODE(mode) | stat.S_IRWXU)


def _is_opaque(descriptor: int, attribute: str) -> bool:
    with suppress(OSError):  # it has none
        return os.getxattr(descriptor, attribute) == b"y"
    return False
