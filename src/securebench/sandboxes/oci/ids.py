"""Which user of the host each user of a sandbox is: the id maps of its user namespace.

As root, id ``c`` of a sandbox is ``SHIFT + c`` of the host, who owns the unpacked images and nothing else. One id is
the same inside and outside: the sandbox's own user, unless that is root, so that what it writes into a directory of
the host belongs to whom the host expects.

An ordinary user can give a sandbox himself, and the subordinate ids that he was given. He is the sandbox's own user,
whoever that is inside. Without subordinate ids a sandbox has that one user, and no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from securebench.images.store.ids import COUNT, SHIFT

IdMap: TypeAlias = list[dict[str, int]]
"""An ``uidMappings`` or ``gidMappings`` of an OCI configuration, sorted by the id inside."""


@dataclass(frozen=True, slots=True)
class HostIds:
    """What there is to map to, as the process sees it that starts the sandboxes.

    ``uids`` and ``gids`` are how many ids lie in a row from ``first`` on. ``own`` is the id, of both kinds, that a
    sandbox's own user is; ``None`` if he is the same outside as inside.
    """

    first: int
    uids: int
    gids: int
    own: int | None

    @classmethod
    def of_root(cls) -> HostIds:
        """Return what root has."""
        return cls(SHIFT, COUNT, COUNT, None)

    @classmethod
    def of_namespace(cls, uid_map: str, gid_map: str) -> HostIds:
        """Return what an ordinary user has, from ``/proc/PID/uid_map`` and ``gid_map`` of his user namespace.

        Id 0 of that namespace is he himself, and those from 1 on are his subordinate ids.
        """
        return cls(1, _length(uid_map), _length(gid_map), 0)


def identity_map(user: tuple[int, int], available: HostIds) -> tuple[IdMap, IdMap]:
    """Return the maps of users and of groups for a sandbox whose own user is ``user`` (uid, gid)."""
    uid, gid = user
    return _map(uid, available.uids, available), _map(gid, available.gids, available)


def outside(id_map: IdMap, inside: int) -> int:
    """Return which id of the host ``inside`` is, which ``id_map`` has."""
    entry = next(e for e in id_map if e["containerID"] <= inside < e["containerID"] + e["size"])
    return entry["hostID"] + inside - entry["containerID"]


def _map(own: int, count: int, available: HostIds) -> IdMap:
    """Map ``own`` first, then the ids below and above it in order, as many as there are."""
    hole = available.own is None  # in root's range, where the id would lie that is the same inside and outside
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
    """Return how many ids from 1 on are mapped without a gap."""
    following = 1
    for first, _, size in sorted(tuple(map(int, line.split())) for line in id_map.splitlines()):
        if first == following:
            following += size
    return following - 1
