"""The protocol between a driver and its supervisor.

Both import this module. It uses only the standard library.

The protocol uses :mod:`~securebench.ipc.frames` on three kinds of channel:

* The control channel of the supervisor. Its first frame contains the supervisor's settings. The supervisor answers with
  a report about the machine. Each later frame starts a process (a container, or a command in a container) or mounts a
  file system (:data:`BOUNDED`). Such a frame has no content, only descriptors: a channel for the new process or file
  system, the request (:func:`write_request`) and, for a process, three standard streams.
* The channel of a process. The supervisor sends reports. The last one says how the process ended. Then the supervisor
  closes the channel. For a container with forwarded ports, the listening sockets are reported before the runtime starts
  (:data:`FORWARDED_PORTS`). If there are changes to collect, the last report has a descriptor of their directory. The
  driver sends :data:`KILL`, or how many seconds the process may still run (:data:`LIMIT`). If the driver closes
  the channel, this has the same effect as :data:`KILL`.
* The channel of a file system. See :data:`BOUNDED`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

KILL: Final = "kill"
"""The key of a frame with which a driver ends the whole sandbox of a process."""

LIMIT: Final = "limit"
"""The key of a new time limit, in seconds, in a frame of the driver.

The time begins when the supervisor reads the frame, or at the start of the process if that is later.
"""

FORWARDED_PORTS: Final = "forwarded_ports"
"""The key of a report that carries the descriptors of listening sockets. The value is the number of sockets."""

REPORT_DESCRIPTORS: Final = 8
"""The maximum number of descriptors in one report."""

BOUNDED: Final = "bounded"
"""The key of a request to mount a file system in memory. The value is the mount point, a directory.

In the supervisor's answer, the value of the key is an error message. If the file system is mounted, the message is
empty, and the answer carries a descriptor of the file system. When the driver closes its side of the channel, the
supervisor unmounts the file system and closes the other side.
"""

_BYTES_PER_INODE: Final = 4096
_LEAST_INODES: Final = 1024

START_DESCRIPTORS: Final = 5
"""The number of descriptors in a frame that starts a process: its channel, the request and three streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSettings:
    """The settings of a supervisor, which it receives once.

    ``run`` is its directory, ``group`` the name of its cgroups, and ``owner`` the id of the owner of image files.
    ``sealed`` is the path of a runtime to run from a copy in memory, or ``None``. The other settings are true under
    these conditions:

    * ``inner_groups``: the runtime creates its own cgroups within those of a container, in every hierarchy.
    * ``unreadable``: the programs that are mounted in sandboxes belong to ``owner``, and are executable but not
      readable.
    * ``locks_root``: root file systems are mounted ``nosuid`` and ``nodev``.
    * ``pooled``: cgroups are created before they are needed.
    """

    run: str
    group: str
    inner_groups: bool = False
    owner: int = 0
    unreadable: bool = False
    locks_root: bool = False
    sealed: str | None = None
    pooled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReport:
    """How a process ended. If it could not be started, ``failed`` is the reason.

    ``unsafe`` is true if the reason is an unsafe mount source. ``exit`` is the exit code of the process or its runtime.
    ``started`` is true if the runtime started the process, and ``log`` is the runtime's log. ``lost`` is the reason if
    the machine, and not the sandbox, caused the exit. Otherwise it is empty.

    For a container whose changes are collected, ``collected`` is ``changed``, ``unchanged``, ``replaced`` or an error
    message. ``opaque`` is the name of an extended attribute. A directory with this attribute hides the image's entries.
    ``whole`` is true if the collected directory or one above it has this attribute.
    """

    failed: str = ""
    unsafe: bool = False
    exit: int = 0
    timed_out: bool = False
    out_of_memory: bool = False
    killed: bool = False
    started: bool = False
    lost: str = ""
    log: str = ""
    collected: str = ""
    opaque: str = ""
    whole: bool = False


def write_request(request: Mapping[str, Any], document: bytes) -> int:
    """Write ``request`` and ``document`` to a file in memory, and return its descriptor. Raises ``OSError``.

    The supervisor copies ``document`` to a path given in ``request`` without parsing it. Both are in a file and not in
    the frame, because with long commands or many mounts they would exceed the maximum size of a packet.
    """
    descriptor = os.memfd_create("request", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(json.dumps(request).encode("ascii") + b"\0" + document)
    return descriptor


def read_request(descriptor: int) -> tuple[dict[str, Any], bytes]:
    """Return the request and the document in a file that :func:`write_request` wrote."""
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        file.seek(0)  # the position is shared with the writer
        request, _, document = file.read().partition(b"\0")
    return json.loads(request), document


def tmpfs_bounds(size: int) -> tuple[str, str]:
    """Return two mount options for a tmpfs of ``size`` bytes: the limits for its content and for its number of files.

    One file is allowed for each 4 KiB of ``size``, but at least 1,024 files. The number is limited because even an
    empty file uses about 1 KiB of kernel memory.
    """
    return f"size={size}", f"nr_inodes={max(_LEAST_INODES, size // _BYTES_PER_INODE)}"
