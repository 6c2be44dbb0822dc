"""The directories of an image store, which are private to this user."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import ImageError
from securebench.fs.durable import write_whole
from securebench.fs.home import in_closed_home
from securebench.fs.locks import locked
from securebench.fs.user_store import UserStore
from securebench.images.layout import INDEX_FILE, LAYOUT, LAYOUT_FILE, encoded
from securebench.images.store.ids import tree_shift

if TYPE_CHECKING:
    from pathlib import Path

DIRECTORY_VARIABLE: Final = "SECUREBENCH_IMAGES"
_PRIVATE: Final = 0o700
_TRAVERSABLE: Final = 0o711
_TREES: Final = 0o710
"""The group is that of a sandbox's root, which may enter the trees. No other user of the host may."""

IMAGES: Final = UserStore(
    directory="images",
    variable=DIRECTORY_VARIABLE,
    name="the image store",
    prune="'securebench images prune --budget 10G' removes the least recently used images",
    error=ImageError,
    code="image-store-unusable",
)
default_directory = IMAGES.default_directory
explaining = IMAGES.explaining
disk_full = IMAGES.disk_full


@dataclass(frozen=True, slots=True)
class StorePaths:
    """The paths of one store, an OCI image layout with ``trees``, ``locks`` and ``work`` beside it."""

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
        """A file for each unpacked image: its lock, its last use and its size."""
        return self.top / "locks"

    @property
    def work(self) -> Path:
        """Unfinished work. The process that uses a directory locks it."""
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
        """The lock for changing the index, for creating and clearing work directories, and for removing images."""
        return self.locks / "store"

    def exist(self) -> bool:
        """Return whether there is a store. Raises :class:`ImageError` (``image-store-unusable``) if that is unknown.

        A home directory that this user cannot enter counts as having none.
        """
        if in_closed_home(self.top):
            return False
        with explaining(self.top):
            return self.index.is_file()

    def make(self) -> None:
        """Create the store if it does not exist. Raises :class:`ImageError` (``image-store-unusable``)."""
        private = (self.top / "blobs", self.blobs, self.locks, self.work)
        IMAGES.make(self.top, {self.top: _TRAVERSABLE, **dict.fromkeys(private, _PRIVATE), self.trees: _TREES})
        with explaining(self.top):
            if (shift := tree_shift()) and self.trees.stat().st_gid != shift:
                os.chown(self.trees, 0, shift)
            if not (self.top / LAYOUT_FILE).exists():
                with locked(self.store_lock):  # another process may be writing the same file
                    write_whole(self.top / LAYOUT_FILE, encoded(LAYOUT))
