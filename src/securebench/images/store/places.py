"""The directories of an image store, which only this user can list or change."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import DiskFullError, ImageError
from securebench.fs.durable import disk_hint, write_whole
from securebench.fs.home import data_directory, in_closed_home
from securebench.fs.locks import locked
from securebench.images.layout import INDEX_FILE, LAYOUT, LAYOUT_FILE, encoded
from securebench.images.store.ids import tree_shift

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

DIRECTORY_VARIABLE: Final = "SECUREBENCH_IMAGES"
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_WRONG_PLACE: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
)
"""The errors that another directory for the store would avoid."""
_PRIVATE: Final = 0o700
_TRAVERSABLE: Final = 0o711
_TREES: Final = 0o710
"""The mode of the directory ``trees``: only its owner and its group may enter it."""


def default_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return the store's directory: the value of :data:`DIRECTORY_VARIABLE`, or the default for this user."""
    return data_directory("images", DIRECTORY_VARIABLE, environ)


@contextmanager
def explaining(top: Path) -> Iterator[None]:
    """Turn each ``OSError`` into :class:`DiskFullError` for a full disk, and into :class:`ImageError` otherwise."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise disk_full(top, str(error.strerror)) from error
        raise _unusable(top, str(error), "" if error.errno in _WRONG_PLACE else disk_hint(error.errno)) from error


def disk_full(top: Path, problem: str) -> DiskFullError:
    """Return the error for a full disk."""
    prune = "'securebench images prune --budget 10G' removes the least recently used images"
    return DiskFullError(
        f"the image store {top} has no room: {problem}",
        hint=f"{prune}; or set {DIRECTORY_VARIABLE} to a directory with more room",
    )


def _unusable(top: Path, problem: str, hint: str = "") -> ImageError:
    return ImageError(
        f"the image store {top} cannot be used: {problem}",
        code="image-store-unusable",
        hint=hint or f"set {DIRECTORY_VARIABLE} to a directory of your own",
    )


@dataclass(frozen=True, slots=True)
class StorePaths:
    """The paths of one store, an OCI image layout with the additional directories ``trees``, ``locks`` and ``work``."""

    top: Path

    @property
    def index(self) -> Path:
        """The index of images."""
        return self.top / INDEX_FILE

    @property
    def blobs(self) -> Path:
        """Blobs, named by digest."""
        return self.top / "blobs" / "sha256"

    @property
    def trees(self) -> Path:
        """Unpacked images, named by id."""
        return self.top / "trees"

    @property
    def locks(self) -> Path:
        """Lock files. The lock file of an unpacked image also records the image's last use, size and fingerprint."""
        return self.top / "locks"

    @property
    def work(self) -> Path:
        """Directories of unfinished work, each locked by the process that uses it."""
        return self.top / "work"

    def blob(self, digest: str) -> Path:
        """Return the path of the blob with this digest."""
        return self.blobs / digest.removeprefix("sha256:")

    def tree(self, image_id: str) -> Path:
        """Return the path of this image's tree."""
        return self.trees / image_id.removeprefix("sha256:")

    def lock(self, image_id: str) -> Path:
        """Return the path of an image's lock file."""
        return self.locks / image_id.removeprefix("sha256:")

    @property
    def store_lock(self) -> Path:
        """The lock for changing the index, removing images, and creating or taking over work directories."""
        return self.locks / "store"

    def exist(self) -> bool:
        """Return whether there is a store. Raises :class:`ImageError` (``image-store-unusable``) if that is unknown.

        A store in a home directory that this user cannot enter counts as missing.
        """
        if in_closed_home(self.top):
            return False
        with explaining(self.top):
            return self.index.is_file()

    def make(self) -> None:
        """Create the store if it does not exist. Each directory gets exactly its mode, whatever the umask is.

        Raises :class:`DiskFullError`, and :class:`ImageError` (``image-store-unusable``), for example if ``top``
        belongs to another user, who could replace anything in it.
        """
        private = (self.top / "blobs", self.blobs, self.locks, self.work)
        with explaining(self.top):
            self.top.mkdir(parents=True, exist_ok=True)
            status = self.top.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                raise _unusable(self.top, "it is not a directory of this user")
            modes = {self.top: _TRAVERSABLE, **dict.fromkeys(private, _PRIVATE), self.trees: _TREES}
            for directory, mode in modes.items():
                directory.mkdir(mode=mode, parents=True, exist_ok=True)
                directory.chmod(mode)
            if (shift := tree_shift()) and self.trees.stat().st_gid != shift:
                os.chown(self.trees, 0, shift)  # the host's group id for root in a sandbox
            if not (self.top / LAYOUT_FILE).exists():
                with locked(self.store_lock):  # another process may write the same file
                    write_whole(self.top / LAYOUT_FILE, encoded(LAYOUT))
