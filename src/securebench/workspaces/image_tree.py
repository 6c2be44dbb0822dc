"""A directory of an unpacked image, which is copied to a workspace or compared with a changed repository.

Its content comes from untrusted layers, so it is accessed through descriptors, without following links.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Self

from securebench.errors import MaterializationError
from securebench.fs.safe_open import OPEN_DIRECTORY, OPEN_FILE, TreeRefusedError, open_below, opened
from securebench.fs.walk import STATUS, UNPACKED, EntryKind, walk_descriptor
from securebench.patches.model import FileVersion

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NOT_FOUND = (FileNotFoundError, NotADirectoryError)


class HostTree:
    """The tree below ``directory``, which is a descriptor, or a path whose last component must not be a link.

    A context manager. Not thread safe. Paths are relative bytes without ``.`` and ``..``. Raises ``OSError``.
    """

    def __init__(self, directory: Path | int) -> None:
        self.root = os.dup(directory) if isinstance(directory, int) else os.open(directory, OPEN_DIRECTORY)
        self._parent = b""
        self._descriptor = os.dup(self.root)

    @classmethod
    def of_image(cls, root: Path, directory: str) -> Self:
        """Return the tree at the absolute path ``directory`` in the image unpacked at ``root``.

        Raises :class:`MaterializationError` (``image-workdir-missing``) if ``directory`` does not exist or its path
        contains a symbolic link.
        """
        with opened(root, OPEN_DIRECTORY) as image:
            descriptor = _open_below(image, os.fsencode(directory))
        if descriptor is None:
            raise MaterializationError(
                f"the image has no directory {directory}, or its path contains a symbolic link",
                code="image-workdir-missing",
                hint="set 'environment.workdir' to the real directory, or use another image",
            )
        try:
            return cls(descriptor)
        finally:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptors. Idempotent."""
        for descriptor in (self.root, self._descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self.root = self._descriptor = -1

    def get(self, path: bytes) -> FileVersion | None:
        """Return the file or link at ``path``, or ``None`` for anything else."""
        status = self.status(path)
        if status is None:
            return None
        if stat.S_ISLNK(status.st_mode):
            return FileVersion(os.readlink(_name(path), dir_fd=self._descriptor), link=True)
        if not stat.S_ISREG(status.st_mode):
            return None
        with os.fdopen(self.open_file(path), "rb") as file:
            return FileVersion(file.read(), executable=bool(status.st_mode & stat.S_IXUSR))

    def status(self, path: bytes) -> os.stat_result | None:
        """Return the status of ``path`` without following links, or ``None`` if it does not exist."""
        if not self._enter(path):
            return None
        try:
            return os.stat(_name(path), dir_fd=self._descriptor, follow_symlinks=False)
        except _NOT_FOUND:
            return None

    def open_file(self, path: bytes) -> int:
        """Return a descriptor of the regular file at ``path``.

        Call :meth:`status` with the same path first: it opens the parent directory.
        """
        return os.open(_name(path), OPEN_FILE, dir_fd=self._descriptor)

    def files(self, top: bytes = b"") -> Iterator[bytes]:
        """Yield the path of every file and link at or below ``top``."""
        descriptor = _open_below(self.root, top)
        if descriptor is None:
            if self.status(top) is not None:
                yield top
            return
        prefix = top + b"/" if top else b""
        try:
            for entry in walk_descriptor(descriptor, UNPACKED, STATUS):
                if entry.kind is not EntryKind.DIRECTORY:
                    yield prefix + entry.path
        except TreeRefusedError as refused:  # the image's fault, which must not count as the candidate's failure
            raise OSError(errno.EFBIG, f"the files of the image exceed a limit: {refused}") from None
        finally:
            os.close(descriptor)

    def _enter(self, path: bytes) -> bool:
        """Open the parent directory of ``path``, and keep it open for the next call. Return whether it exists."""
        parent = path.rpartition(b"/")[0]
        if parent == self._parent:
            return True
        descriptor = _open_below(self.root, parent)
        if descriptor is None:
            return False
        os.close(self._descriptor)
        self._descriptor, self._parent = descriptor, parent
        return True


def _open_below(root: int, path: bytes) -> int | None:
    try:
        return open_below(root, filter(None, path.split(b"/")))
    except _NOT_FOUND:
        return None


def _name(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]
