"""The id maps of a sandbox's user namespace: which user of the host each user of a sandbox is.

For root, id ``c`` in a sandbox is ``SHIFT + c`` on the host. These ids own the unpacked images and nothing else. One id
is the same inside and outside: the sandbox's own user, unless that is root. So files that it writes to a directory of
the host have the expected owner.

An ordinary user can map only their own id and their subordinate ids. The user's own id is that of the sandbox's own
user, whatever its id inside. Without subordinate ids, that is the only user in the sandbox.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from securebench.images.store.ids import COUNT, SHIFT

IdMap: TypeAlias = list[dict[str, int]]
"""An ``uidMappings`` or ``gidMappings`` of an OCI configuration, sorted by the id inside."""


@dataclass(frozen=True, slots=True)
class HostIds:
    """The ids that sandboxes can be mapped to, as seen by the process that starts them.

    ``uids`` and ``gids`` are the numbers of consecutive ids that start at ``first``. ``own`` is the uid and gid of a
    sandbox's own user; ``None`` if they are the same outside as inside.
    """

    first: int
    uids: int
    gids: int
    own: int | None

    @classmethod
    def of_root(cls) -> HostIds:
        """Return the ids for root."""
        return cls(SHIFT, COUNT, COUNT, None)

    @classmethod
    def of_namespace(cls, uid_map: str, gid_map: str) -> HostIds:
        """Return the ids for an ordinary user, from ``/proc/PID/uid_map`` and ``gid_map`` of their user namespace.

        In that namespace, id 0 is the user's own id, and ids from 1 on are the subordinate ids.
        """
        return cls(1, _length(uid_map), _length(gid_map), 0)


def identity_map(user: tuple[int, int], available: HostIds) -> tuple[IdMap, IdMap]:
    """Return the maps of users and of groups for a sandbox whose own user is ``user`` (uid, gid)."""
    uid, gid = user
    return _map(uid, available.uids, available), _map(gid, available.gids, available)


def outside(id_map: IdMap, inside: int) -> int:
    """Return the id on the host of the id ``inside``, which must be in ``id_map``."""
    entry = next(e for e in id_map if e["containerID"] <= inside < e["containerID"] + e["size"])
    return entry["hostID"] + inside - entry["containerID"]


def _map(own: int, count: int, available: HostIds) -> IdMap:
    """Map ``own``, and as many ids below and above it as are available, in order."""
    hole = available.own is None  # the id in root's range that is not used, because the same id is mapped to itself
    outside = (own or available.first) if available.own is None else available.own
    below = min(own, count, COUNT)
    above = min(count - below - hole, COUNT - own - 1)
    entries = [
        _entry(0, available.first, below),
        _entry(own, outside, 1),
        _entry(own + 1, available.first + below + hole, above),
    ]
    return [entry for entry in entries if entry["size"] > 0]


def _entry(inside: int, outside: int, size: int) -> dict[str, int]:
    return {"containerID": inside, "hostID": outside, "size": size}


def _length(id_map: str) -> int:
    """Return the number of consecutive mapped ids that start at 1."""
    following = 1
    for first, _, size in sorted(tuple(map(int, line.split())) for line in id_map.splitlines()):
        if first == following:
            following += size
    return following - 1
