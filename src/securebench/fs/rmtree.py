"""Removing untrusted directory trees, and creating the directories in which they may be removed.

A removal works with descriptors, follows no link and enters no mount. However large the tree is, the number of open
files is fixed, and a removal remembers only the directories on the path to the current one. :func:`remove_tree` refuses
to remove a directory unless :func:`make_private_directory` has marked its parent. So a resumed run never deletes a
directory that SecureBench did not create, even if a workspace was replaced meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.errors import StorageError
from securebench.faults import FaultPoint, reached
from securebench.fs.durable import storage_errors, sync_directory
from securebench.fs.safe_open import OPEN_DIRECTORY, opened
from securebench.printable import printable_name

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKER = ".securebench"
"""The file that marks a directory whose subdirectories may be removed."""

_MARKER_TEXT = b"SecureBench created this directory, and removes its content.\n"
_OPEN_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def make_private_directory(path: Path) -> None:
    """Create the directory ``path`` (and its parents), in which :func:`remove_tree` may remove directories.

    Only this user can read it. Idempotent and safe from several threads. If ``path`` exists, it must be a directory
    that is empty or has the marker.

    Raises :class:`StorageError`: ``workspace-foreign`` if ``path`` is anything else, ``storage-failed`` if it cannot
    be created.
    """
    with storage_errors(path):
        reached(FaultPoint.TREE_MAKE, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        if path.is_symlink() or not path.is_dir():
            raise _foreign(path, "is not a directory")
        # The marker is written first, so a directory with content but no marker is foreign. The check before the
        # listing avoids a long listing. The check after it is for the case that another thread has just added marker
        # and content.
        if not _is_marked(path) and any(path.iterdir()) and not _is_marked(path):
            raise _foreign(path, f"contains files but no {MARKER}")
        path.chmod(0o700)
        if not _is_marked(path):
            (path / MARKER).write_bytes(_MARKER_TEXT)
            sync_directory(path)  # even after a crash, there must be no content without the marker


def remove_private_directory(path: Path) -> None:
    """Remove a directory that :func:`make_private_directory` created, and the directories in it.

    Do nothing if ``path`` is missing. Raises the errors of :func:`remove_tree`, for example ``workspace-foreign`` if
    ``path`` itself contains a file other than the marker.
    """
    with storage_errors(path):
        if not path.is_dir():
            return
        for inner in [inner for inner in path.iterdir() if inner.name != MARKER]:
            remove_tree(inner)
        sync_directory(path)  # even after a crash, the marker must be the last entry to disappear
        (path / MARKER).unlink(missing_ok=True)
        path.rmdir()


def make_fresh_directory(path: Path, owner: tuple[int, int] | None = None) -> None:
    """Replace ``path`` with an empty directory, mode 0700, that belongs to ``owner`` (uid, gid).

    Raises the errors of :func:`remove_tree`.
    """
    remove_tree(path)
    with storage_errors(path):
        reached(FaultPoint.TREE_MAKE, path)
        path.mkdir(mode=0o700)
        if owner is not None:
            os.chown(path, *owner, follow_symlinks=False)


def remove_tree(path: Path) -> None:
    """Remove the directory ``path`` and everything in it. It may be missing.

    Raises :class:`StorageError`: ``workspace-foreign`` if SecureBench did not create it, ``workspace-stuck`` if
    something in it cannot be removed, ``storage-failed`` for other errors of the file system.
    """
    if not os.path.lexists(path):
        return
    with storage_errors(path), opened(path.parent, OPEN_DIRECTORY) as parent:
        reached(FaultPoint.TREE_REMOVE, path)
        status = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            raise _foreign(path, "is not a directory")
        if not _is_marked(path.parent):
            raise _foreign(path, f"is in a directory without a {MARKER}")
        remove_entry(parent, path.name)


def clear_directory(path: Path) -> None:
    """Remove everything in the directory ``path``, but not the directory. Raises the errors of :func:`remove_entry`."""
    with opened(path, OPEN_DIRECTORY) as descriptor:
        for name in os.listdir(descriptor):  # noqa: PTH208 - of a descriptor
            remove_entry(descriptor, name)


def _is_marked(path: Path) -> bool:
    return (path / MARKER).is_file() and not (path / MARKER).is_symlink()


def _foreign(path: Path, problem: str) -> StorageError:
    return StorageError(
        f"{path} {problem}; SecureBench did not create it and will not change it",
        code="workspace-foreign",
        hint="move it away, or choose another 'run.output_dir'",
    )


def remove_entry(parent: int, name: str | bytes) -> None:
    """Remove the file or directory ``name``, and everything in it, from the directory ``parent`` (a descriptor).

    If ``name`` does not exist, nothing happens. Raises :class:`StorageError` (``workspace-stuck``) if ``name`` or
    something in it cannot be removed. Raises ``OSError`` for other errors, such as a directory moved meanwhile.
    """
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            _Removal().run(parent, os.fsdecode(name))
        else:
            with _stuck(os.fsdecode(name)):
                os.unlink(name, dir_fd=parent)


class _Removal:
    """One removal. It holds one directory open, and remembers the names and inodes of the directories above it.

    A directory is entered only after ``rmdir`` failed with ENOTEMPTY. For a mount point, ``rmdir`` fails with EBUSY
    instead, so nothing below a mount is ever removed.
    """

    def run(self, parent: int, name: str) -> None:
        """Remove the directory ``name`` of ``parent``."""
        if self._remove_directory(parent, name):
            return
        here = self._enter(parent, name)
        way: list[tuple[str, tuple[int, int]]] = [(name, _identity(parent))]
        try:
            while way:
                inner = self._clear(here)
                if inner is not None:
                    way.append((inner, _identity(here)))
                    here = self._replace(here, self._enter(here, inner))
                    continue
                name, above = way.pop()
                here = self._replace(here, self._leave(here, above))
                self._remove_directory(here, name)
        finally:
            os.close(here)

    def _clear(self, here: int) -> str | None:
        """Remove files and empty directories. Stop at a directory with content and return its name, if there is one."""
        with os.scandir(here) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    with _stuck(entry.name):
                        os.unlink(entry.name, dir_fd=here)
                elif not self._remove_directory(here, entry.name):
                    return entry.name
        return None

    def _enter(self, here: int, name: str) -> int:
        """Open the directory ``name``. Give its owner all rights first: an agent may have removed them."""
        with _stuck(name), opened(name, _OPEN_PATH, here) as found:
            status = os.fstat(found)
            if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
                Path(f"/proc/self/fd/{found}").chmod(0o700)  # fchmod fails for an O_PATH descriptor
            return os.open(".", OPEN_DIRECTORY, dir_fd=found)

    @staticmethod
    def _leave(here: int, above: tuple[int, int]) -> int:
        """Open the parent directory. Raise ``OSError`` if its identity is not ``above``: the tree was moved."""
        descriptor = os.open("..", OPEN_DIRECTORY, dir_fd=here)
        if _identity(descriptor) != above:
            os.close(descriptor)
            raise OSError(errno.EBUSY, "a directory of the tree was moved during the removal")
        return descriptor

    @staticmethod
    def _replace(old: int, new: int) -> int:
        os.close(old)
        return new

    @staticmethod
    def _remove_directory(here: int, name: str) -> bool:
        """Remove the directory ``name`` if it is empty. Return whether it was."""
        with _stuck(name):
            try:
                os.rmdir(name, dir_fd=here)
            except OSError as error:
                if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
                    return False
                raise
        return True


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


@contextmanager
def _stuck(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot remove {printable_name(os.fsencode(name))!r}: {error.strerror or error}",
            code="workspace-stuck",
            hint="look for an immutable attribute (lsattr) or a mount; remove that (chattr -i, umount), then run again",
        ) from error
