"""Snapshots: copy an untrusted tree, or one file of it, once into a safe form."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from securebench.fs.safe_open import TreeRefusal, TreeRefusedError
from securebench.fs.tar_writer import TarWriter
from securebench.fs.walk import WORKSPACE, EntryKind, TreeLimits, walk, walk_at
from securebench.printable import printable_name

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The sha256 (hex) and size in bytes of a written archive, and its number of entries."""

    digest: str
    size: int
    entries: int


def snapshot_tree(root: Path, output: IO[bytes], limits: TreeLimits | None = None) -> Snapshot:
    """Write the tree below ``root`` to ``output`` as a tar that depends only on names, contents, links and modes.

    Links are data and never followed. Set-id bits, owners, times, extended attributes and capabilities are dropped. The
    same tree gives the same bytes. Raises :class:`TreeRefusedError`; ``output`` is then incomplete.
    """
    count = 0
    with TarWriter(output) as archive:
        for entry in walk(root, limits, WORKSPACE):
            count += 1
            if entry.kind is EntryKind.FILE:
                archive.file(entry.path, entry.size, entry.chunks(), entry.mode)
            elif entry.kind is EntryKind.LINK:
                archive.link(entry.path, entry.target)
            else:
                archive.directory(entry.path, entry.mode)
    return Snapshot(archive.digest, archive.size, count)


def read_file(root: Path, relative: str, limit: int) -> bytes:
    """Return the content of the regular file at the POSIX path ``relative`` below ``root``.

    No link is followed. Raises :class:`TreeRefusedError` if the file is missing, unsafe or larger than ``limit`` bytes.
    """
    with closing(walk_at(root, relative, TreeLimits(total_bytes=limit))) as entries:
        entry = next(entries)
        if entry.kind is not EntryKind.FILE:
            raise TreeRefusedError(TreeRefusal.UNSAFE, f"{printable_name(os.fsencode(relative))}: is a directory")
        return b"".join(entry.chunks())
