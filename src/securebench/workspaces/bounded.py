"""Directories for sandboxes to write to, of bounded size where the driver can bound them."""

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
"""Suffix of the empty mount point for a size-limited directory. It is removed with the mount."""

_INNER: Final = "files"
_FULL: Final = 64 * 1024
"""Free bytes with which a file system counts as full: less than one write of most programs."""


@dataclass(frozen=True, slots=True)
class WritableDirectory:
    """A directory that sandboxes write to. ``source``: for mounts. ``files``: where this process finds its files.

    The two differ if the directory is ``bounded`` by a driver that shows it to its sandboxes only.
    """

    source: Path
    files: Path
    bounded: bool = False

    def is_full(self) -> bool:
        """Whether its files use up its bytes or their number. Meaningful once nothing writes to it any more."""
        if not self.bounded:
            return False
        found = os.statvfs(self.files)
        return found.f_bavail * found.f_frsize < _FULL or not found.f_favail


@contextmanager
def writable_directory(driver: SandboxDriver, path: Path, size: int) -> Iterator[WritableDirectory]:
    """Yield a new directory of at most ``size`` bytes that belongs to :func:`workspace_owner`.

    If ``driver`` cannot bound it, it is ``path``. Else ``path`` is not touched, and the
    directory with all its files is gone at the end. Raises :class:`InfrastructureError`.
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
            # Only in what is mounted over ``outer``: without that, a sandbox cannot be created with the directory.
            files = top / _INNER
            files.mkdir(mode=0o700)
            if owner is not None:
                os.chown(files, *owner)
            yield WritableDirectory(outer / _INNER, files, bounded=True)
    finally:
        outer.rmdir()


def workspace_owner() -> tuple[int, int] | None:
    """Return the user and group for files that sandboxes may change, if this user may choose them."""
    return workspace_user() if os.getuid() == 0 else None


def copy_safe_files(source: Path, target: Path) -> None:
    """Copy what could be sealed of the untrusted tree ``source`` to the empty directory ``target``.

    Devices, FIFOs, sockets and files that their owner may not read are left out, and all that comes after the limits of
    sealing are reached. Links are data. Raises ``OSError``.
    """
    with suppress(TreeRefusedError), TreeWriter(target, workspace_owner()) as writer:
        for entry in walk(source, None, WORKSPACE):
            copy_entry(entry, writer)
