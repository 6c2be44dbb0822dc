"""The two system calls for namespaces that Python 3.11 does not have."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(kinds: int) -> None:
    """Move this process into new namespaces of these ``kinds``. Raises ``OSError``."""
    _check(_libc.unshare(kinds))


def setns(descriptor: int, kind: int) -> None:
    """Move this process into an existing namespace. Raises ``OSError``."""
    _check(_libc.setns(descriptor, kind))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
