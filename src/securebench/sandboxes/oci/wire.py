"""The protocol between a driver and its supervisor. Both sides import this, so it needs the standard library alone.

All of it is :mod:`~securebench.ipc.frames`, on two kinds of channel:

* The control channel of the supervisor. Its first frame holds the supervisor's settings, which the supervisor answers
  with what it found. Each frame after that starts a process: a container, or a command in one. The frame is empty, and
  its descriptors are the process's own channel, the request (:func:`write_request`) and three standard streams.
* The channel of a process. The supervisor sends reports, and closes it when the process and its children have ended. A
  container with forwarded ports reports their listening sockets before its runtime starts (:data:`FORWARDED_PORTS`).
  The last report brings a descriptor of what the container changed, if that is collected. The driver sends
  :data:`KILL`, or how many seconds the process may still run (:data:`LIMIT`). Closing the channel kills as well.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

KILL: Final = "kill"
"""The key of a driver's frame that ends the whole sandbox of a process."""

LIMIT: Final = "limit"
"""The key of a driver's frame with a new time limit, in seconds from now."""

FORWARDED_PORTS: Final = "forwarded_ports"
"""The key of a report with listening sockets. Its value is their number."""

REPORT_DESCRIPTORS: Final = 8
"""The most descriptors that come with one report."""

BOUNDED: Final = "bounded"
"""The key of a request for a file system in memory over a directory, and of its answer, which has its descriptor.

It stays mounted until the driver closes its side of the channel; then the supervisor closes its own.
"""

_BYTES_PER_INODE: Final = 4096
_LEAST_INODES: Final = 1024

START_DESCRIPTORS: Final = 5
"""How many descriptors start a process: its channel, the request and three streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSettings:
    """The settings of a supervisor, which it receives once.

    ``run`` is its directory, ``group`` the name of its cgroups.

    * ``inner_groups``: the runtime creates its own groups within those of a container, in every hierarchy.
    * ``owner`` is the host's id of a sandbox's root.
    * ``unreadable``: the programs mounted in sandboxes belong to ``owner``, and can be executed there but not read.
    * ``locks_root``: root file systems are mounted without devices and set-id programs.
    * ``sealed`` is the path of a runtime that should be run from a copy.
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
    """How a process ended. ``failed`` is why it could not be started, ``unsafe`` that a mount's source is to blame.

    ``exit`` is its exit code or that of its runtime, ``started`` whether the runtime started it, ``log`` what the
    runtime logged. ``lost`` is why its end says nothing about what ran in it. For a container whose changes are
    collected, ``collected`` is the outcome, ``opaque`` the extended attribute of a directory that hides the image's
    entries, and ``whole`` whether the collected directory or one above it has that attribute.
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
    """Return the descriptor of a file in memory that holds both. Raises ``OSError``.

    The supervisor writes ``document`` to where ``request`` says, without reading it. They are not sent in the frame
    because they grow with the command and the mounts of a sandbox, beyond what a packet can hold.
    """
    descriptor = os.memfd_create("request", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(json.dumps(request).encode("ascii") + b"\0" + document)
    return descriptor


def read_request(descriptor: int) -> tuple[dict[str, Any], bytes]:
    """Return the request and the document in a file of :func:`write_request`."""
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        file.seek(0)  # the position is shared with the writer
        request, _, document = file.read().partition(b"\0")
    return json.loads(request), document


def tmpfs_bounds(size: int) -> tuple[str, str]:
    """Return the options that limit a tmpfs to ``size`` bytes of content, and its number of files.

    The maximum number of empty files needs about a quarter of ``size`` in kernel memory, which nothing else limits
    without a cgroup.
    """
    return f"size={size}", f"nr_inodes={max(_LEAST_INODES, size // _BYTES_PER_INODE)}"
