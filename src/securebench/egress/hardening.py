"""Drop the privileges of the gateway process before it serves untrusted peers."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
from typing import Final

_NOBODY: Final = 65534
_SET_PDEATHSIG: Final = 1
_SET_DUMPABLE: Final = 4
_SET_NO_NEW_PRIVS: Final = 38
_FILES: Final = 65536
_WRITTEN: Final = 64 * 1024
"""Maximum bytes of the process's standard error, the only file that it writes."""


def harden() -> None:
    """Switch from root to ``nobody`` irrevocably, forbid debuggers, and make the process exit with its parent.

    Root in a container or user namespace stays root if it may not change its user. Raises ``OSError``.

    Import every module before this call: ``nobody`` may not be allowed to read the Python installation.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run handles Ctrl-C and then stops this process
    _raise_files()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_WRITTEN, _WRITTEN))
    if os.geteuid() == 0:
        _become_nobody()
    _prctl(_SET_NO_NEW_PRIVS, 1)
    _prctl(_SET_DUMPABLE, 0)
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)  # must be last: a change of the user clears this setting


def _raise_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _become_nobody() -> None:
    try:
        os.setgroups(())
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    except OSError as error:
        # Root in a user namespace or in a container without capabilities may not be allowed to change its user.
        if error.errno not in {errno.EPERM, errno.EINVAL}:
            raise


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
