"""Parse kernel files that a process reads in its sandbox, for the self-test.

The text contains the files one after the other, in the order of :data:`FILES`. Missing files are left out.
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
"""Files that list the sockets and routes of a network namespace. Without IPv6, the files of IPv6 do not exist."""

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
    """A mounted file system: its type and its options (such as ``size=4k`` or ``ro``)."""

    kind: str
    options: frozenset[str]


@dataclass(frozen=True, slots=True)
class View:
    """A sandbox as one of its processes sees it.

    ``cgroup`` has the values of the memory and process limits, if cgroups are visible. ``uid_map`` has (inside,
    outside, count) for each range. ``mounts`` are by target; if several are stacked, the topmost counts. ``limits`` are
    the hard limits by the kernel's name. ``status`` is from the process's own status file.
    """

    cgroup: tuple[str, ...]
    interfaces: tuple[str, ...]
    uid_map: tuple[tuple[int, int, int], ...]
    mounts: Mapping[str, Mounted]
    limits: Mapping[str, str]
    status: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> View:
        """Parse the concatenated files. Unknown lines are ignored."""
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
    """The sockets and routes of a network namespace.

    ``listening`` has address, port and inode of each listening TCP socket on IPv4. ``others`` are all other sockets, of
    any type, and ``routes`` all routes: the kernel's lines.
    """

    listening: tuple[tuple[tuple[str, int], int], ...]
    others: tuple[str, ...]
    routes: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Sockets:
        """Parse the concatenated :data:`SOCKET_FILES`."""
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
