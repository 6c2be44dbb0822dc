"""A user namespace around a runtime, so that the processes of its sandbox are counted separately from all others.

Without cgroups, the only process limit is that of the user (``RLIMIT_NPROC``), which the kernel applies in each user
namespace.
"""

from __future__ import annotations

import resource
import socket
from contextlib import suppress

from securebench.sandboxes.oci.supervisor.syscalls import CLONE_NEWUSER, unshare

_MAPS = ("uid_map", "gid_map")
_READY = b"r"


class Gate:
    """Synchronizes a new process, which enters its own user namespace, with its parent, which writes the id maps."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._outside, self._inside = socket.socketpair()

    def enter(self) -> None:
        """Enter a new namespace with unchanged ids, and limit its processes. Raises ``OSError``."""
        self._outside.close()
        with self._inside:
            unshare(CLONE_NEWUSER)
            self._inside.sendall(_READY)
            if self._inside.recv(1) != _READY:
                raise OSError("the id maps of its user namespace could not be written")
        # In the outer namespace, the kernel counts the processes of all sandboxes together, and applies the limit that
        # this process had when it created its own namespace. So the sandbox's limit must not be set earlier.
        resource.setrlimit(resource.RLIMIT_NPROC, (self._processes, self._processes))

    def open(self, pid: int) -> None:
        """Write the id maps of the process ``pid``. If this fails, :meth:`enter` raises an error in that process."""
        self._inside.close()
        with self._outside, suppress(OSError):
            if self._outside.recv(1) != _READY:
                return
            for name in _MAPS:
                with open(f"/proc/self/{name}") as own, open(f"/proc/{pid}/{name}", "w") as given:
                    given.write(_same(own.read()))
            self._outside.sendall(_READY)


def _same(id_map: str) -> str:
    """Return a map that maps each id inside the namespace of ``id_map`` to itself."""
    return "\n".join(f"{first} {first} {size}" for first, _, size in map(str.split, id_map.splitlines()))
