"""The changes of an exited container in one directory, from the upper directory of its overlay.

The changes are on a file system in memory, which an open descriptor keeps alive even after it is unmounted. So the
container's directory can be removed at once. The changes are freed when the last descriptor is closed.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from securebench.sandboxes.oci.wire import ProcessReport

CHANGED, UNCHANGED, REPLACED = "changed", "unchanged", "replaced"

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_changes(report: ProcessReport, upper: str, path: str, opaque: str) -> tuple[ProcessReport, int]:
    """Open the directory ``path`` below ``upper``. Return ``report`` with the outcome, and a descriptor or -1.

    The directory is opened component by component, without following links. ``opaque`` is the name of the extended
    attribute that marks a directory as opaque: this directory and all directories below it hide the image's entries.
    """
    descriptor, whole = -1, False
    for part in (upper, *filter(None, path.split("/"))):
        try:
            below = os.open(part, _OPEN, dir_fd=None if descriptor < 0 else descriptor)
        except FileNotFoundError as error:
            if descriptor < 0:  # the overlay itself is gone
                return replace(report, collected=str(error)), -1
            return replace(report, collected=REPLACED if whole else UNCHANGED), -1
        except NotADirectoryError:  # a link, a file, or the marker of a removed entry
            return replace(report, collected=REPLACED), -1
        except OSError as error:  # such as too many open files
            return replace(report, collected=str(error)), -1
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        descriptor = below
        whole = whole or _is_opaque(descriptor, opaque)
    _let_owner_in(descriptor)
    return replace(report, collected=CHANGED, opaque=opaque, whole=whole), descriptor


def _let_owner_in(descriptor: int) -> None:
    """Give the owner all permissions on a directory. Root can read it without them, but other owners cannot."""
    mode = os.fstat(descriptor).st_mode
    if ~mode & stat.S_IRWXU:
        os.fchmod(descriptor, stat.S_IMODE(mode) | stat.S_IRWXU)


def _is_opaque(descriptor: int, attribute: str) -> bool:
    with suppress(OSError):  # the directory does not have the attribute
        return os.getxattr(descriptor, attribute) == b"y"
    return False
