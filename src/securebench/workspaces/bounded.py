"""Directories to which sandboxes write. Their size is limited if the driver supports that."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.fs.rmtree import make_fresh_directory
from securebench.fs.safe_open import TreeRefusedError
from securebench.fs.tree_writer import TreeWriter
from securebench.fs.walk import WORKSPACE, walk
from securebench.sandboxes.base import workspace_user
from securebench.workspaces.filling import copy_entry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver

BOUNDED_SUFFIX: Final = ".bounded"
"""Suffix of the empty mount point for a size-limited directory. The mount point is removed after the unmount."""

_INNER: Final = "files"
_FULL: Final = 64 * 1024
"""A file system with fewer free bytes counts as full, because most programs write more at once."""


@dataclass(frozen=True, slots=True)
class WritableDirectory:
    """A directory to which sandboxes write. ``source``: its path for mounts. ``files``: its path in this process.

    ``bounded``: whether the driver limits its size. If so, the two paths differ.
    """

    source: Path
    files: Path
    bounded: bool = False

    def is_full(self) -> bool:
        """Return whether the limit of bytes or inodes, if any, is used up. Call this after the last write."""
        if not self.bounded:
            return False
        found = os.statvfs(self.files)
        return found.f_bavail * found.f_frsize < _FULL or not found.f_favail


@contextmanager
def writable_directory(driver: SandboxDriver, path: Path, size: int) -> Iterator[WritableDirectory]:
    """Yield a new directory that belongs to :func:`workspace_owner`. Its size is limited if ``driver`` can limit sizes.

    A limited directory holds at most ``size`` bytes and is not at ``path``. It is removed with all its files at the end
    of the block. A directory without a limit is created at ``path`` and is kept. Raises :class:`InfrastructureError`.
    """
    owner = workspace_owner()
    if not driver.bounds_directories:
        make_fresh_directory(path, owner)
        yield WritableDirectory(path, path)
        return
    outer = path.with_name(f"{path.name}{BOUNDED_SUFFIX}")
    make_fresh_directory(outer)
    try:
        with driver.bounded(outer, size) as top:
            # This directory exists only in the mount over ``outer``: without the mount, no sandbox gets it.
            files = top / _INNER
            files.mkdir(mode=0o700)
            if owner is not None:
                os.chown(files, *owner)
            yield WritableDirectory(outer / _INNER, files, bounded=True)
    finally:
        outer.rmdir()


def workspace_owner() -> tuple[int, int] | None:
    """Return the uid and gid for files that sandboxes may change, or ``None`` if this user is not root."""
    return workspace_user() if os.getuid() == 0 else None


def copy_safe_files(source: Path, target: Path) -> None:
    """Copy to the empty directory ``target`` everything in the untrusted tree ``source`` that could be sealed.

    Left out are devices, FIFOs, sockets, entries that their owner may not read, and entries that are too deep or have
    too long a name. The copy ends early if too many entries are left out, or if the tree has too many entries or bytes
    to be sealed. Links are not followed. Raises ``OSError``.
    """
    with suppress(TreeRefusedError), TreeWriter(target, workspace_owner()) as writer:
        for entry in walk(source, None, WORKSPACE):
            copy_entry(entry, writer)
