"""The run directory: its permissions, and the errors and hints if it cannot be used."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from securebench.errors import ConfigError, StorageError
from securebench.fs.durable import storage_errors
from securebench.tester_run.planning.directory import make_directory, steady_umask
from workspaces.users import as_ordinary_user

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=[0o000, 0o022, 0o027, 0o077, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Set the umask for a test, and yield it."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_a_run_directory_is_its_owners_to_write(umask: int, tmp_path: Path) -> None:
    """Only the owner may write to a new run directory. The umask may restrict other users further, not the owner."""
    make_directory(tmp_path / "run")
    mode = (tmp_path / "run").stat().st_mode & 0o777
    assert mode == (0o777 & ~umask & ~0o022) | 0o700
    with steady_umask():
        (tmp_path / "run/file").touch()
        assert (tmp_path / "run/file").stat().st_mode & 0o777 == 0o644
    assert os.umask(umask) == umask


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """A directory that this user may not read, write or create causes a ``ConfigError`` about --output-dir."""
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_mode & 0o055 != 0o055:
            path.chmod(0o755)
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "theirs").mkdir(mode=0o755)

    def make() -> None:
        for place in ("closed/x", "theirs/x", "theirs", "closed"):
            with pytest.raises(ConfigError) as raised:
                make_directory(tmp_path / place)
            assert raised.value.code == "output-dir-unusable"

    as_ordinary_user(make)


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.EROFS, "write access"),
        (errno.EACCES, "give this user"),
        (errno.ENOSPC, "free some space"),
        (errno.EIO, "dmesg"),
    ],
)
def test_the_hint_fits_the_error(tmp_path: Path, number: int, hint: str) -> None:
    """The hint depends on the error: for a read-only file system, for example, it does not suggest freeing space."""
    with pytest.raises(StorageError) as raised, storage_errors(tmp_path):
        raise OSError(number, os.strerror(number))
    assert hint in raised.value.hint
    assert "--resume" in raised.value.hint
