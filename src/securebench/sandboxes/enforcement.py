"""What a driver is, and what it can enforce: a closed list of names, for records, ``doctor`` and the conformance."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ENFORCEABLE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "network": "network isolation",
        "capabilities": "dropping all capabilities",
        "no-new-privileges": "blocking new privileges",
        "seccomp": "system call filter",
        "user-namespace": "user namespace",
        "read-only-root": "read-only root file system",
        "memory": "memory limit",
        "pids": "process limit",
        "cpu": "CPU limit",
        "tmpfs": "size limit of /tmp",
        "rlimits": "limits of open files, file sizes and core dumps",
        "file-owners": "owners of image files",
        "groups": "dropping your groups",
    }
)
"""Each restriction, and its name for people, which follows 'not enforced:' in messages."""


def in_words(names: Iterable[str]) -> str:
    """Return restrictions, out of :data:`ENFORCEABLE`, as a list for people."""
    return ", ".join(ENFORCEABLE[name] for name in names)


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """What a record says of the driver: its name, the runtime, their versions, and what they enforce.

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
