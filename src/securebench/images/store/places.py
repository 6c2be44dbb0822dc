"""Where an image store keeps what: directories that are this user's alone, and files that are whole or not there."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.errors import DiskFullError, ImageError
from securebench.fs.durable import write_whole
from securebench.fs.home import home_directory, in_closed_home
from securebench.fs.locks import locked
from securebench.images.layout import INDEX_FILE, LAYOUT, LAYOUT_FILE, encoded
from securebench.images.store.ids import tree_shift

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DIRECTORY_VARIABLE: Final = "SECUREBENCH_IMAGES"
_OF_ROOT: Final = Path("/var/lib/securebench")
_PRIVATE: Final = 0o700
_PASSABLE: Final = 0o711
_TREES: Final = 0o710
"""Of the group that root of a sandbox is: it may pass to the trees, nobody else of the host may."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def default_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return where this user's images are: ``SECUREBENCH_IMAGES``, or the usual place for root and for others."""
    return data_directory("images", DIRECTORY_VARIABLE, environ)


def data_directory(name: str, variable: str, environ: Mapping[str, str] | None = None) -> Path:
    """Return where this user keeps data called ``name``: where ``variable`` says, or below the usual place."""
    environ = os.environ if environ is None else environ
    if named := environ.get(variable):
        return Path(named).absolute()
    if os.geteuid() == 0:
        return _OF_ROOT / name
    data = Path(environ.get("XDG_DATA_HOME", ""))
    return (data if data.is_absolute() else home_directory(environ) / ".local/share") / "securebench" / name


@dataclass(frozen=True, slots=True)
class StorePaths:
    """The paths of one store, an OCI image layout with ``trees``, ``locks`` and ``work`` beside it."""

    top: Path

    @property
    def index(self) -> Path:
        """The list of images."""
        return self.top / INDEX_FILE

    @property
    def blobs(self) -> Path:
        """Content, each under its digest."""
        return self.top / "blobs" / "sha256"

    @property
    def trees(self) -> Path:
        """Unpacked images, each under its id."""
        return self.top / "trees"

    @property
    def locks(self) -> Path:
        """A file for each unpacked image: its lock, when it was used, and how large it is."""
        return self.top / "locks"

    @property
    def work(self) -> Path:
        """What is not finished. Each directory is locked by whoever works in it."""
        return self.top / "work"

    def blob(self, digest: str) -> Path:
        """Return where the content of this digest is."""
        return self.blobs / digest.removeprefix("sha256:")

    def tree(self, image_id: str) -> Path:
        """Return where this image is unpacked."""
        return self.trees / image_id.removeprefix("sha256:")

    def lock(self, image_id: str) -> Path:
        """Return the file of an image's lock."""
        return self.locks / image_id.removeprefix("sha256:")

    @property
    def store_lock(self) -> Path:
        """The lock of the index, of who makes and clears work, and of who removes."""
        return self.locks / "store"

    def exist(self) -> bool:
        """Say whether there is a store. Raises :class:`ImageError` (``image-store-unusable``) if that cannot be seen.

        A home that this user cannot enter holds none.
        """
        if in_closed_home(self.top):
            return False
        with explaining(self.top):
            return self.index.is_file()

    def make(self) -> None:
        """Make the store where there is none. Raises :class:`ImageError` (``image-store-unusable``)."""
        with explaining(self.top):
            self.top.mkdir(parents=True, exist_ok=True)
            status = self.top.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                raise _unusable(self.top, "it is not a directory of this user")
            self.top.chmod(_PASSABLE)
            for directory, mode in self._directories().items():
                directory.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
                directory.chmod(mode)
            if (shift := tree_shift()) and self.trees.stat().st_gid != shift:
                os.chown(self.trees, 0, shift)
            if not (self.top / LAYOUT_FILE).exists():
                with locked(self.store_lock):  # another process may do the same, and one at a time may write a file
                    write_whole(self.top / LAYOUT_FILE, encoded(LAYOUT))

    def _directories(self) -> dict[Path, int]:
        private = (self.top / "blobs", self.blobs, self.locks, self.work)
        return dict.fromkeys(private, _PRIVATE) | {self.trees: _TREES}


@contextmanager
def explaining(top: Path) -> Iterator[None]:
    """Give what the kernel refuses in this block its type: a full disk, or a store that cannot be used."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise disk_full(top, str(error.strerror)) from error
        raise _unusable(top, str(error)) from error


def disk_full(top: Path, problem: str) -> DiskFullError:
    """Return the error for a store without room."""
    return DiskFullError(
        f"the image store {top} has no room: {problem}",
        hint="'securebench images prune --budget 10G' removes the images that were not used for longest; "
        f"or set {DIRECTORY_VARIABLE} to a directory with more room",
    )


def _unusable(top: Path, problem: str) -> ImageError:
    return ImageError(
        f"the image store {top} cannot be used: {problem}",
        code="image-store-unusable",
        hint=f"set {DIRECTORY_VARIABLE} to a directory of your own",
    )
