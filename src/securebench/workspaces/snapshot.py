"""Snapshots: a hostile tree, or one file of it, copied once into something that is safe to keep."""

from __future__ import annotations

import hashlib
import os
import tarfile
from contextlib import closing
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, cast

from securebench.descriptors import printable
from securebench.workspaces.descriptors import Refusal, TreeRefusedError
from securebench.workspaces.tree import EntryKind, TreeLimits, walk, walk_at

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.workspaces.tree import Entry

_TAR_TYPES = {EntryKind.DIRECTORY: tarfile.DIRTYPE, EntryKind.FILE: tarfile.REGTYPE, EntryKind.LINK: tarfile.SYMTYPE}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was written: the sha256 (hex) and size in bytes of the archive, and the number of entries in it."""

    digest: str
    size: int
    entries: int


def snapshot_tree(root: Path, output: IO[bytes], limits: TreeLimits | None = None) -> Snapshot:
    """Write the tree below ``root`` to ``output`` as a tar that depends on names, contents and links alone.

    Modes are 644 or 755; owners, times, extended attributes and capabilities are left behind. The same tree gives the
    same bytes. Raises :class:`TreeRefusedError`, after which ``output`` holds nothing of use.
    """
    hashing = _HashingWriter(output)
    count = 0
    # GNU format: names are raw bytes of any length, and there is one way to write each.
    with tarfile.open(
        fileobj=cast("IO[bytes]", hashing),
        mode="w",
        format=tarfile.GNU_FORMAT,
        encoding="utf-8",
        errors="surrogateescape",
    ) as archive:
        for entry in walk(root, limits):
            _add(archive, entry)
            count += 1
    return Snapshot(hashing.digest.hexdigest(), hashing.size, count)


def read_file(root: Path, relative: str, limit: int) -> bytes:
    """Return the content of the regular file ``relative`` (POSIX) below ``root``: at most ``limit`` bytes.

    No link is followed on the way, nor at the end. Raises :class:`TreeRefusedError`: missing, unsafe or too large.
    """
    with closing(walk_at(root, relative, TreeLimits(total_bytes=limit))) as entries:
        entry = next(entries)
        if entry.kind is not EntryKind.FILE:
            raise TreeRefusedError(Refusal.UNSAFE, f"{printable(os.fsencode(relative))}: is a directory")
        return b"".join(entry.chunks())


def _add(archive: tarfile.TarFile, entry: Entry) -> None:
    member = tarfile.TarInfo(entry.path.decode("utf-8", "surrogateescape"))
    member.type = _TAR_TYPES[entry.kind]
    member.mode = 0o755 if entry.executable or entry.kind is EntryKind.DIRECTORY else 0o644
    member.linkname = entry.target.decode("utf-8", "surrogateescape")
    member.size = entry.size
    if entry.kind is not EntryKind.FILE:
        archive.addfile(member)
        return
    with open(entry.descriptor, "rb", closefd=False) as content:
        archive.addfile(member, content)


class _HashingWriter:
    """Passes bytes on, and hashes and counts them."""

    def __init__(self, output: IO[bytes]) -> None:
        self._output = output
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        return self._output.write(data)

    def tell(self) -> int:
        return self.size
