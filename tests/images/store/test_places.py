"""The image store's directories have exact modes and belong to this user. Disk errors have fitting hints."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from securebench.errors import DiskFullError, ImageError
from securebench.images.store.places import DIRECTORY_VARIABLE, StorePaths, explaining

if TYPE_CHECKING:
    from pathlib import Path


def test_directories_have_their_modes_whatever_the_umask(tmp_path: Path) -> None:
    """Each directory of the store gets its exact mode, whatever the umask, even if it existed with another mode."""
    places = StorePaths(tmp_path / "a" / "top")
    modes = {places.top: 0o711, places.trees: 0o710, places.blobs: 0o700, places.locks: 0o700, places.work: 0o700}
    before = os.umask(0o077)
    try:
        places.make()
        places.trees.chmod(0o700)
        places.make()
    finally:
        os.umask(before)
    assert {path: path.stat().st_mode & 0o777 for path in modes} == modes


@pytest.mark.parametrize("place", ["link", "file", "foreign"])
def test_a_place_of_another_user_is_refused(tmp_path: Path, place: str) -> None:
    """A store is refused if it is a link, a file, or a directory of another user, who could replace its content."""
    top = tmp_path / "top"
    if place == "link":
        (tmp_path / "elsewhere").mkdir()
        top.symlink_to(tmp_path / "elsewhere")
    elif place == "file":
        top.touch()
    elif os.geteuid() == 0:
        top.mkdir()
        os.chown(top, 12345, 12345)
    else:
        pytest.skip("only root can give a directory away")
    with pytest.raises(ImageError) as caught:
        StorePaths(top).make()
    assert caught.value.code == "image-store-unusable"
    assert DIRECTORY_VARIABLE in caught.value.hint
    assert not (top / "work").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_has_its_own_error(tmp_path: Path, number: int) -> None:
    """A full disk or an exhausted quota has its own error, which says how to free space."""
    with pytest.raises(DiskFullError, match="has no room") as caught, explaining(tmp_path):
        raise OSError(number, os.strerror(number))
    assert "images prune" in caught.value.hint
    assert DIRECTORY_VARIABLE in caught.value.hint


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.EACCES, f"set {DIRECTORY_VARIABLE} to"),
        (errno.EROFS, f"set {DIRECTORY_VARIABLE} to"),
        (errno.EMFILE, "raise the limit of open files"),
        (errno.EIO, "check the disk for errors"),
    ],
)
def test_another_directory_is_suggested_only_if_it_helps(tmp_path: Path, number: int, hint: str) -> None:
    """The hint suggests another directory only if that would avoid the error. Other errors have other hints."""
    with pytest.raises(ImageError, match="cannot be used") as caught, explaining(tmp_path):
        raise OSError(number, os.strerror(number))
    assert caught.value.hint.startswith(hint)
