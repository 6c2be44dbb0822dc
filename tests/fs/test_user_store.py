"""Shared data is in directories of this user, with the modes that were asked for."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from securebench.errors import DiskFullError, ImageError
from securebench.fs.user_store import UserStore

if TYPE_CHECKING:
    from pathlib import Path

STORE = UserStore(
    directory="things", variable="THINGS", name="the store", prune="remove some", error=ImageError, code="store-odd"
)


def test_directories_have_their_modes_whatever_the_umask(tmp_path: Path) -> None:
    """Also those that exist."""
    top = tmp_path / "a" / "top"
    modes = {top: 0o711, top / "open": 0o755, top / "closed": 0o700}
    before = os.umask(0o077)
    try:
        STORE.make(top, modes)
        (top / "open").chmod(0o700)
        STORE.make(top, modes)
    finally:
        os.umask(before)
    assert {path: path.stat().st_mode & 0o777 for path in modes} == modes


@pytest.mark.parametrize("place", ["link", "file", "foreign"])
def test_a_place_of_somebody_else_is_refused(tmp_path: Path, place: str) -> None:
    """Its owner could replace anything in it, and a link may lead anywhere."""
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
        STORE.make(top, {top / "inner": 0o700})
    assert caught.value.code == "store-odd"
    assert "THINGS" in caught.value.hint
    assert not (top / "inner").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_has_its_own_error(tmp_path: Path, number: int) -> None:
    """It says how to free space."""
    with pytest.raises(DiskFullError, match="has no room") as caught, STORE.explaining(tmp_path):
        raise OSError(number, os.strerror(number))
    assert caught.value.hint.startswith("remove some; or set THINGS")
