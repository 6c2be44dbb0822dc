"""A user namespace around one runtime, so that the processes of its sandbox are counted apart from all others.

Without cgroups a limit of processes is one of the user's (``RLIMIT_NPROC``). The kernel counts them by namespace, and
holds all that are in a namespace to the limit that its maker had. A runtime that takes on a sandbox's limits before it
makes the namespace is held to them itself: started beside others, it would be to a limit of all sandboxes together.
"""

from __future__ import annotations

import resource
import socket
from contextlib import suppress

from securebench.sandboxes.oci.supervisor.syscalls import CLONE_NEWUSER, unshare

_MAPS = ("uid_map", "gid_map")
_READY = b"r"


class Gate:
    """What a new process enters a namespace of its own through, and what its parent opens it with."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._outside, self._inside = socket.socketpair()

    def enter(self) -> None:
        """Be in the namespace, as who one was, with room for so many processes. Raises ``OSError``."""
        self._outside.close()
        with self._inside:
            unshare(CLONE_NEWUSER)
            self._inside.sendall(_READY)
            if self._inside.recv(1) != _READY:
                raise OSError("its user namespace was not given its users")
        resource.setrlimit(resource.RLIMIT_NPROC, (self._processes, self._processes))

    def open(self, pid: int) -> None:
        """Give the namespace of the new process ``pid`` the users of this one. What fails, that process hears of."""
        self._inside.close()
        with self._outside, suppress(OSError):
            if self._outside.recv(1) != _READY:
                return
            for name in _MAPS:
                with open(f"/proc/self/{name}") as own, open(f"/proc/{pid}/{name}", "w") as given:
                    given.write(_same(own.read()))
            self._outside.sendall(_READY)


def _same(id_map: str) -> str:
    """Return the map that gives each id inside of ``id_map`` to itself."""
    return "\n".join(f"{first} {first} {size}" for first, _, size in map(str.split, id_map.splitlines()))
