"""What a driver can enforce: a closed list of names for records, ``doctor`` and the conformance suite."""

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
"""Each restriction and its description, which follows 'not enforced:' in messages."""


def in_words(names: Iterable[str]) -> str:
    """Describe restrictions, names from :data:`ENFORCEABLE`, as a list for people."""
    return ", ".join(ENFORCEABLE[name] for name in names)


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """A driver in records: its name, its runtime, their versions, and what they enforce.

    ``enforced`` and ``weaker`` are names from :data:`ENFORCEABLE`. With ``foreign_files``, files that root of a sandbox
    creates in a mounted directory may belong to a host user whose files this process can neither read nor remove. Their
    ownership must be taken back first (``harnesses/ownership.py``).
    """

    name: str
    runtime: str = ""
    version: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    enforced: tuple[str, ...] = ()
    weaker: tuple[str, ...] = ()
    foreign_files: bool = False
