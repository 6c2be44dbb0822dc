"""Copy a directory of the image into a new workspace, before the task's files are added."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import MaterializationError, StorageError
from securebench.fs.safe_open import TreeRefusal, TreeRefusedError
from securebench.fs.tree_writer import TreeWriter
from securebench.fs.walk import WORKSPACE, EntryKind, TreeLimits, walk_descriptor
from securebench.workspaces.path_policy import DEFAULT_TASK_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.fs.walk import TreeEntry
    from securebench.workspaces.image_tree import HostTree

_RESERVED: Final = (os.fsencode(DEFAULT_TASK_FILE), b"securebench")
"""Paths in a workspace that SecureBench uses."""


@dataclass(slots=True)
class Filled:
    """The number of copied entries (files, directories and links), and the bytes of the files."""

    entries: int = 0
    size: int = 0


def fill(workspace: Path, tree: HostTree, owner: tuple[int, int] | None, limits: TreeLimits | None = None) -> Filled:
    """Copy ``tree`` into the empty directory ``workspace``. The copies belong to ``owner`` (uid, gid).

    Links and modes are kept, except set-id bits; times and owners are not. Directories are made writable for their
    owner. Raises :class:`MaterializationError`: ``target-exists`` if ``tree`` contains a path that SecureBench uses,
    ``image-workdir-unsafe`` for entries that could not be sealed later (a device, a file that its owner may not read),
    ``image-workdir-too-large``; and :class:`StorageError`.
    """
    filled = Filled()
    try:
        with TreeWriter(workspace, owner) as writer:
            for entry in walk_descriptor(tree.root, limits, WORKSPACE):
                if entry.path in _RESERVED:
                    raise MaterializationError(
                        f"the image's working directory contains {entry.path.decode()!r}, a path that SecureBench uses",
                        code="target-exists",
                        hint="remove it from the image",
                    )
                copy_entry(entry, writer)
                filled.entries += 1
                filled.size += entry.size
    except TreeRefusedError as refused:
        raise _unusable(refused) from None
    except OSError as error:
        raise StorageError(f"cannot copy the image's files to {workspace}: {error.strerror or error}") from error
    return filled


def copy_entry(entry: TreeEntry, writer: TreeWriter) -> None:
    """Write a copy of ``entry``, which is a file, a link or a directory. Raises ``OSError``."""
    if entry.kind is EntryKind.FILE:
        writer.copy_file(entry.path, entry.descriptor, entry.size, entry.mode)
    elif entry.kind is EntryKind.LINK:
        writer.make_link(entry.path, entry.target)
    else:
        writer.make_directory(entry.path, entry.mode | stat.S_IRWXU)


def _unusable(refused: TreeRefusedError) -> MaterializationError:
    large = refused.refusal is TreeRefusal.TOO_LARGE
    return MaterializationError(
        f"the image's working directory cannot be copied to a workspace: {refused}",
        code="image-workdir-too-large" if large else "image-workdir-unsafe",
        hint="keep large data elsewhere in the image"
        if large
        else "leave only readable files, directories and links in it",
    )
