"""The names of driver features, and the names of restrictions that drivers enforce. No driver can add a name."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
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
        "rlimits": "limits on open files, file sizes and core dumps",
        "file-owners": "correct owners of image files",
        "groups": "dropping your supplementary groups",
    }
)
"""Each restriction and its description, which follows 'not enforced:' in messages."""


def in_words(names: Iterable[str]) -> str:
    """Return the descriptions of restrictions, separated by commas. ``names`` are keys of :data:`ENFORCEABLE`."""
    return ", ".join(ENFORCEABLE[name] for name in names)


class DriverFeature(StrEnum):
    """A feature that a driver may lack (``DriverInfo.lacks``), for example if its sandboxes run on another machine."""

    HOST_MOUNTS = "host-mounts"
    """Sandboxes share directories with this host. Drivers without this feature copy files into and out of volumes."""
    FORWARDED_PORTS = "forwarded-ports"
    """A listening socket inside a sandbox is passed to this process. Without this feature, agents have no egress."""
    IMAGE_TREE = "image-tree"
    """The files of an image are in a directory of this host, and changes to them can be collected."""


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """A driver as records describe it: its name, runtime, version (of the engine or runtime), and what it enforces.

    ``enforced`` and ``weaker`` are names from :data:`ENFORCEABLE`: the restrictions that are enforced, and those that
    are not. With ``foreign_files``, files that root in a sandbox creates in a mounted directory may belong to a host
    user whose files this process can neither read nor remove. Their ownership must be taken back first
    (``harnesses/ownership.py``). ``lacks`` are the features that the driver does not have. SecureBench replaces missing
    features where it can. A run that needs a missing feature without a replacement stops before its first task.
    """

    name: str
    runtime: str = ""
    version: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    enforced: tuple[str, ...] = ()
    weaker: tuple[str, ...] = ()
    foreign_files: bool = False
    lacks: tuple[DriverFeature, ...] = ()
