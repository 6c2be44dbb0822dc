"""Making and removing the directories that agents write in.

A directory is removed only where it lies directly in one that :func:`make_private_directory` made, which its marker
shows: whatever a workspace was replaced by between two runs, nothing outside the run directory is ever deleted.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from securebench.errors import StorageError
from securebench.fs.rmtree import remove_entry
from securebench.fs.safe_open import OPEN_DIRECTORY, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MARKER = ".securebench"
"""The file that marks a directory whose subdirectories may be removed."""

_MARKER_TEXT = b"SecureBench made this directory, and removes what lies in it.\n"


def make_private_directory(path: Path) -> None:
    """Make ``path`` (and its parents), readable by this user alone, to hold directories that may be removed.

    Idempotent and safe from several threads. An existing directory must be empty or carry the marker. Raises
    :class:`StorageError`: ``workspace-foreign`` if it is somebody else's, ``storage-failed`` if it cannot be made.
    """
    with _storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        if path.is_symlink() or not path.is_dir():
            raise _foreign(path, "is not a directory")
        # The marker is written before anything else: a directory with content and no marker is not ours. It is looked
        # for again after the content, as another thread may have just made both; and first, as listing takes long.
        if not _is_marked(path) and any(path.iterdir()) and not _is_marked(path):
            raise _foreign(path, f"holds files, but no {MARKER}")
        path.chmod(0o700)
        if not _is_marked(path):
            (path / MARKER).write_bytes(_MARKER_TEXT)


def make_fresh_directory(path: Path, owner: tuple[int, int] | None = None) -> None:
    """Make ``path`` an empty directory, mode 0700, of ``owner`` (uid, gid); what was there is removed.

    Raises as :func:`remove_tree` does.
    """
    remove_tree(path)
    with _storing(path):
        path.mkdir(mode=0o700)
        if owner is not None:
            os.chown(path, *owner, follow_symlinks=False)


def remove_tree(path: Path) -> None:
    """Remove the directory ``path`` and everything in it; where there is none, do nothing.

    Raises :class:`StorageError`: ``workspace-foreign`` if it is not a directory of ours, ``workspace-stuck`` if
    something in it cannot be removed.
    """
    if not os.path.lexists(path):
        return
    with _storing(path), opened(path.parent, OPEN_DIRECTORY) as parent:
        status = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            raise _foreign(path, "is not a directory")
        if not _is_marked(path.parent):
            raise _foreign(path, f"lies in a directory without a {MARKER}")
        remove_entry(parent, path.name)


def _is_marked(path: Path) -> bool:
    return (path / MARKER).is_file() and not (path / MARKER).is_symlink()


def _foreign(path: Path, problem: str) -> StorageError:
    return StorageError(
        f"{path} {problem}; SecureBench did not make it, and leaves it alone",
        code="workspace-foreign",
        hint="move it away, or choose another run.output_dir",
    )


@contextmanager
def _storing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
