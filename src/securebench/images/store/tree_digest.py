"""Digests of an unpacked tree: a quick one of its metadata, to notice changes, and one of all of its content."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from securebench.fs.safe_open import TreeRefusedError
from securebench.fs.walk import STATUS, UNPACKED, EntryKind, Links, TreeRules, walk

if TYPE_CHECKING:
    from pathlib import Path

_EVERYTHING = TreeRules(links=Links.ANY, everything=True)


def fingerprint(root: Path) -> str:
    """Return the digest (hex) of the metadata of everything below ``root``; empty if that cannot be read.

    It covers inodes and ctimes, which no process without raw disk access can reset, so that an unchanged fingerprint
    means unchanged files. A copy of the tree has another one.
    """
    digest = hashlib.sha256()
    try:
        for entry in walk(root, UNPACKED, STATUS):
            status = entry.status
            times = status.st_mtime_ns, status.st_ctime_ns
            owner = status.st_uid, status.st_gid
            facts = (entry.path, status.st_mode, *owner, status.st_size, status.st_ino, *times, entry.target)
            digest.update(repr(facts).encode())
    except (OSError, TreeRefusedError):
        return ""
    return digest.hexdigest()


def content_digest(root: Path) -> str:
    """Return the digest (hex) of everything below ``root``: names, types, modes, owners, links and all content.

    Empty if that cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for entry in walk(root, UNPACKED, _EVERYTHING):
            status = entry.status
            facts = (entry.path, status.st_mode, status.st_uid, status.st_gid, entry.size, entry.target)
            digest.update(repr(facts).encode())
            if entry.kind is EntryKind.FILE:
                for chunk in entry.chunks():
                    digest.update(chunk)
    except (OSError, TreeRefusedError):
        return ""
    return digest.hexdigest()
