"""Build directories: a failed build leaves nothing, and the next build removes what a killed one left.

Each build has a token, which labels what it creates in an engine. Clearing a token removes these things.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from fake_programs import only_these_programs
from securebench.errors import ImageError
from securebench.images.build.directory import builds_directory, open_build_directory

if TYPE_CHECKING:
    from pathlib import Path

KILLED_BUILD = """
import sys, time
from securebench.images.build.directory import open_build_directory
with open_build_directory(lambda token: None) as workshop:
    (workshop.directory / "half").mkdir()
    (workshop.directory / "half" / "image").write_text("x")
    print(workshop.token, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _own_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def _start_build() -> tuple[subprocess.Popen[str], str]:
    build = subprocess.Popen([sys.executable, "-c", KILLED_BUILD], stdout=subprocess.PIPE, text=True)
    assert build.stdout is not None
    return build, build.stdout.readline().strip()


def test_a_finished_build_leaves_no_directory() -> None:
    """After a build, its directory and the files in it are gone, and its token was cleared once."""
    cleared: list[str] = []
    with open_build_directory(cleared.append) as build_directory:
        (build_directory.directory / "file").write_text("x")
        assert cleared == []
    assert cleared == [build_directory.token]
    assert list(builds_directory().iterdir()) == []


def test_a_failed_build_leaves_no_directory() -> None:
    """L25: if a build is interrupted by Ctrl-C, its token is cleared and its directory is removed."""
    cleared: list[str] = []
    with pytest.raises(KeyboardInterrupt), open_build_directory(cleared.append):
        raise KeyboardInterrupt
    assert len(cleared) == 1
    assert list(builds_directory().iterdir()) == []


def test_a_directory_is_removed_even_when_the_engine_cannot_be_asked() -> None:
    """L25: if clearing the token fails because the engine is gone, the build directory is still removed."""

    def engine_is_gone(_token: str) -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"), open_build_directory(engine_is_gone):
        pass
    assert list(builds_directory().iterdir()) == []


def test_a_killed_build_is_cleared_by_the_next() -> None:
    """L25: after SIGKILL the next build clears the dead one's token and removes its directory."""
    build, token = _start_build()
    os.kill(build.pid, signal.SIGKILL)
    build.communicate()
    assert [path.name for path in builds_directory().iterdir()] == [token]
    cleared: list[str] = []
    with open_build_directory(cleared.append) as build_directory:
        assert cleared == [token]
        assert [path.name for path in builds_directory().iterdir()] == [build_directory.token]


def test_a_build_that_still_runs_is_left_alone() -> None:
    """L25: two builds at once do not clear each other."""
    build, token = _start_build()
    try:
        cleared: list[str] = []
        with open_build_directory(cleared.append):
            assert cleared == []
            assert (builds_directory() / token / "half" / "image").exists()
        assert (builds_directory() / token).exists()
    finally:
        build.kill()
        build.communicate()


def test_package_tools_that_run_as_other_users_may_enter() -> None:
    """Other users can enter the build directory but not write to it, whatever the umask."""
    before = os.umask(0o077)
    try:
        with open_build_directory(lambda _token: None) as build_directory:
            assert build_directory.directory.stat().st_mode & 0o777 == 0o711
            assert build_directory.directory.parent.stat().st_mode & 0o777 == 0o711
    finally:
        os.umask(before)


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_place_prepared_by_someone_else_is_refused(tmp_path: Path, kind: str) -> None:
    """A symbolic link or a file in place of the directory of all builds is refused, and nothing is built there."""
    target = tmp_path / "elsewhere"
    target.mkdir()
    if kind == "link":
        builds_directory().symlink_to(target)
    else:
        builds_directory().write_text("")
    with pytest.raises(ImageError) as caught, open_build_directory(lambda _token: None):
        pass
    assert caught.value.code == "build-directory-unsafe"
    assert list(target.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to someone else")
def test_a_directory_of_another_user_is_refused() -> None:
    """The directory of all builds is refused if it belongs to another user."""
    builds_directory().mkdir()
    os.chown(builds_directory(), 65534, 65534)
    with pytest.raises(ImageError, match="is not a directory of this user"), open_build_directory(lambda _token: None):
        pass


def test_files_of_subordinate_users_are_removed_in_their_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L25: files that this user cannot remove, because subordinate ids own them, are removed in a user namespace."""
    programs = only_these_programs(tmp_path, monkeypatch)
    programs.add("mmdebstrap")
    monkeypatch.setattr(shutil, "rmtree", lambda _directory, **_options: None)
    with open_build_directory(lambda _token: None) as build_directory:
        (build_directory.directory / "root").mkdir()
    assert programs.called() == [f"mmdebstrap --unshare-helper rm -rf {build_directory.directory}/root"]
