"""What a process sees of its sandbox: files of the kernel, as text, read into what they say.

The files are shown one after the other, in the order of :data:`FILES`. Those that a sandbox does not have are left out.
"""

from __future__ import annotations

import re
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

FILES: Final = (
    *("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"),
    *("/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max"),
    *("/proc/net/dev", "/proc/self/uid_map", "/proc/mounts", "/proc/self/limits", "/proc/self/status"),
)

SOCKET_FILES: Final = tuple(
    f"/proc/net/{name}" for name in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6", "packet", "unix", "route")
)
"""What shows who can be spoken to in a network namespace. Those of IPv6 are not there where it is off."""

_NUMBER: Final = re.compile(r"\d+|max")
_INTERFACE: Final = re.compile(r"\s*(\S+):(?:\s*\d+){8,}\s*")
_RANGE: Final = re.compile(r"\s*(\d+)\s+(\d+)\s+(\d+)\s*")
_MOUNT: Final = re.compile(r"\S+ (\S+) (\S+) (\S+) \d+ \d+")
_LIMIT: Final = re.compile(r"(Max .+?)\s{2,}(\S+)\s+(\S+)(\s+\S+)?\s*")
_SOCKET: Final = re.compile(r"\s*\d+: ([0-9A-F]{8}|[0-9A-F]{32}):[0-9A-F]{4} .*")
_LISTENING: Final = re.compile(r"\s*\d+: ([0-9A-F]{8}):([0-9A-F]{4}) 0{8}:0{4} 0A \S+ \S+ \S+\s+\d+\s+\d+ (\d+)( .*)?")
_ADDRESSLESS: Final = re.compile(r"[0-9a-f]{16}:? .*")
_ROUTE: Final = re.compile(r"[^\s:]+(\s+[0-9A-F]{8}){2}\s.*")
_FIELD: Final = re.compile(r"([A-Za-z_]+):\s*(.*?)\s*")


@dataclass(frozen=True, slots=True)
class Mounted:
    """A file system: its kind, and its options (``size=4k`` or ``ro``)."""

    kind: str
    options: frozenset[str]


@dataclass(frozen=True, slots=True)
class View:
    """What a process sees.

    ``cgroup`` are the limits of memory and processes, where cgroups are shown. ``uid_map`` is (inside, outside, count)
    a range. ``mounts`` are by target, the last one where several lie upon each other. ``limits`` are the hard ones, by
    the kernel's name. ``status`` is the process's own, as text.
    """

    cgroup: tuple[str, ...]
    interfaces: tuple[str, ...]
    uid_map: tuple[tuple[int, int, int], ...]
    mounts: Mapping[str, Mounted]
    limits: Mapping[str, str]
    status: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> View:
        """Read the files, shown one after the other. What is not understood is not seen."""
        before, _, status = text.partition("Name:")
        lines = before.splitlines()
        return cls(
            cgroup=tuple(line for line in lines if _NUMBER.fullmatch(line)),
            interfaces=tuple(found[1] for found in map(_INTERFACE.fullmatch, lines) if found),
            uid_map=tuple((int(f[1]), int(f[2]), int(f[3])) for f in map(_RANGE.fullmatch, lines) if f),
            mounts={f[1]: Mounted(f[2], frozenset(f[3].split(","))) for f in map(_MOUNT.fullmatch, lines) if f},
            limits={found[1]: found[3] for found in map(_LIMIT.fullmatch, lines) if found},
            status={found[1]: found[2] for found in map(_FIELD.fullmatch, status.splitlines()) if found},
        )


@dataclass(frozen=True, slots=True)
class Sockets:
    """Who can be spoken to in a network namespace.

    ``listening`` are sockets of TCP over IPv4 that wait for connections: address, port, and inode. ``others`` are
    sockets of any kind beside them, and ``routes`` ways to elsewhere, in the kernel's words.
    """

    listening: tuple[tuple[tuple[str, int], int], ...]
    others: tuple[str, ...]
    routes: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Sockets:
        """Read :data:`SOCKET_FILES`, shown one after the other."""
        lines = text.splitlines()
        listening = {line: match for line in lines if (match := _LISTENING.fullmatch(line))}
        sockets = [line for line in lines if _SOCKET.fullmatch(line) or _ADDRESSLESS.fullmatch(line)]
        return cls(
            listening=tuple(map(_listening, listening.values())),
            others=tuple(line.strip() for line in sockets if line not in listening),
            routes=tuple(line.strip() for line in lines if _ROUTE.fullmatch(line)),
        )


def _listening(match: re.Match[str]) -> tuple[tuple[str, int], int]:
    address = socket.inet_ntoa(int(match[1], 16).to_bytes(4, sys.byteorder))
    return (address, int(match[2], 16)), int(match[3])
