"""What a driver is, and what it can enforce: a closed list of names, for records, ``doctor`` and the conformance."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ENFORCEABLE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "network": "a network namespace with nothing but loopback",
        "capabilities": "no capabilities, and no way to gain any",
        "no-new-privileges": "no program gives more privileges than its caller has",
        "seccomp": "system calls are filtered",
        "user-namespace": "no user of a sandbox is one that matters on the host",
        "read-only-root": "the root file system cannot be written",
        "memory": "a limit of memory for the sandbox as a whole",
        "pids": "a limit of processes for the sandbox as a whole",
        "cpu": "a limit of processor time for the sandbox as a whole",
        "tmpfs": "a limit of size for what is written in memory",
        "rlimits": "limits of open files, file sizes and core dumps",
        "file-owners": "files of the image keep their owners",
        "groups": "no group of the runner's user is carried into a sandbox",
    }
)
"""Each name, and what a sandbox has where it is enforced."""


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """What a record says of the driver: its name, the runtime beneath it, their versions, and what they hold to.

    ``enforced`` and ``weaker`` are names out of :data:`ENFORCEABLE`. With ``foreign_files``, what root of a sandbox
    leaves in a mounted directory may belong to a user of the host whose files this process can neither read nor remove:
    it has to be given back first (``harnesses/ownership.py``).
    """

    name: str
    runtime: str = ""
    version: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    enforced: tuple[str, ...] = ()
    weaker: tuple[str, ...] = ()
    foreign_files: bool = False
