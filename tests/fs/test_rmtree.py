"""A whole tree is removed, whatever it contains, but only if SecureBench created its directory."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bounds import processor_seconds
from securebench.errors import StorageError
from securebench.fs.rmtree import (
    MARKER,
    make_fresh_directory,
    make_private_directory,
    remove_private_directory,
    remove_tree,
)
from securebench.testing.attacks import trees
from selected import small_trap, variants
from workspaces.users import as_ordinary_user, open_directory

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SECONDS = 10.0


@pytest.mark.parametrize("name", variants(trees.TRAPS, small_trap))
def test_every_trap_is_removed(workspace: Path, host_canary: Path, name: str) -> None:
    """H08, H11, G13: each hostile tree is removed in bounded time. The targets of its links are not."""
    trees.TRAPS[name].build(workspace)
    with processor_seconds(MAX_SECONDS):
        remove_tree(workspace)
    assert not os.path.lexists(workspace)


@pytest.mark.parametrize("name", ["locked_directory", "locked_workspace", "unwritable_directory", "deep_tree"])
def test_an_ordinary_user_removes_their_own(name: str) -> None:
    """H11: an ordinary user can remove a very deep tree, and directories to which they removed their own rights."""
    with open_directory() as root:

        def build_and_remove() -> None:
            make_private_directory(root / "workspaces")
            make_fresh_directory(root / "workspaces/task")
            trees.TRAPS[name].build(root / "workspaces/task")
            remove_tree(root / "workspaces/task")
            assert [path.name for path in (root / "workspaces").iterdir()] == [MARKER]

        as_ordinary_user(build_and_remove)


def test_links_are_removed_and_not_followed(workspace: Path, host_canary: Path) -> None:
    """H01, H02: a link to a file or directory of the host is removed, and its target is not."""
    (workspace / "file").symlink_to(host_canary)
    (workspace / "directory").symlink_to(host_canary.parent)
    (workspace / "inner").mkdir()
    (workspace / "inner/directory").symlink_to(host_canary.parent)
    remove_tree(workspace)
    assert host_canary.exists()


def test_few_descriptors_are_enough(workspace: Path) -> None:
    """H08: a deep tree is removed with fewer than 40 additional open files."""
    trees.TRAPS["deep_tree"].build(workspace)
    before = _open_descriptors()
    peak = _peak_descriptors(lambda: remove_tree(workspace))
    assert before < peak < before + 40


def test_nothing_to_remove_is_no_error(workspace: Path) -> None:
    """Removing a workspace that does not exist is no error."""
    remove_tree(workspace / "absent")
    remove_tree(workspace / "absent/below")


def test_a_workspace_replaced_by_a_link_is_left_alone(workspace: Path, host_canary: Path) -> None:
    """H12: if a workspace was replaced by a link, neither the link nor its target is removed."""
    workspace.rmdir()
    workspace.symlink_to(host_canary.parent)
    with pytest.raises(StorageError, match="is not a directory") as refused:
        remove_tree(workspace)
    assert refused.value.code == "workspace-foreign"
    assert workspace.is_symlink()
    workspace.unlink()


def test_workspaces_replaced_by_a_link_are_left_alone(workspace: Path, tmp_path: Path) -> None:
    """H12: if the directory above a workspace was replaced by a link, nothing is removed."""
    workspace.parent.rename(tmp_path / "moved")
    workspace.parent.symlink_to(tmp_path / "moved")
    with pytest.raises(StorageError):
        remove_tree(workspace)
    assert (tmp_path / "moved/task").is_dir()
    workspace.parent.unlink()
    (tmp_path / "moved").rename(workspace.parent)


def test_only_what_lies_in_a_marked_directory_is_removed(tmp_path: Path) -> None:
    """H12: a directory that SecureBench did not create is not removed, even if a caller passes a wrong path."""
    (tmp_path / "home/precious").mkdir(parents=True)
    for path in (tmp_path / "home", tmp_path / "home/precious"):
        with pytest.raises(StorageError) as refused:
            remove_tree(path)
        assert refused.value.code == "workspace-foreign"
    assert (tmp_path / "home/precious").is_dir()


def test_a_link_is_no_marker(tmp_path: Path) -> None:
    """H12: a link to a file does not count as the marker of a directory."""
    (tmp_path / "home/precious").mkdir(parents=True)
    (tmp_path / "real").write_text("marker")
    (tmp_path / "home" / MARKER).symlink_to(tmp_path / "real")
    with pytest.raises(StorageError):
        remove_tree(tmp_path / "home/precious")


@pytest.mark.parametrize("where", ["mounted", "."])
@pytest.mark.parametrize("kind", ["tmpfs", "bind"])
def test_a_mount_is_not_entered(workspace: Path, host_canary: Path, kind: str, where: str) -> None:
    """H12: a mount at or below a workspace keeps its content, even if it is a bind mount of the same file system."""
    if os.getuid() != 0:
        pytest.skip("only root mounts")
    mounted = workspace / where
    mounted.mkdir(exist_ok=True)
    options = ["-t", "tmpfs", "none"] if kind == "tmpfs" else ["--bind", str(host_canary.parent)]
    subprocess.run(["mount", *options, str(mounted)], check=True)
    try:
        if kind == "tmpfs":
            (mounted / "precious").write_text("content")
        with pytest.raises(StorageError, match="Device or resource busy") as refused:
            remove_tree(workspace)
        assert refused.value.code == "workspace-stuck"
        assert list(mounted.iterdir())
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


def test_an_immutable_file_is_named(workspace: Path) -> None:
    """H11: if not even root can remove a file, the error names the file and says what to do."""
    if os.getuid() != 0 or shutil.which("chattr") is None:
        pytest.skip("only root, with chattr, makes a file immutable")
    (workspace / "stuck").write_text("content")
    subprocess.run(["chattr", "+i", str(workspace / "stuck")], check=True)
    try:
        with pytest.raises(StorageError, match="cannot remove 'stuck'") as refused:
            remove_tree(workspace)
    finally:
        subprocess.run(["chattr", "-i", str(workspace / "stuck")], check=True)
    assert refused.value.code == "workspace-stuck"
    assert "chattr -i" in refused.value.hint


def test_a_private_directory_is_for_its_owner_alone(tmp_path: Path) -> None:
    """H06: a private directory has mode 0700: other users must not reach files of an agent, such as set-id files."""
    make_private_directory(tmp_path / "run/workspaces")
    assert stat.S_IMODE((tmp_path / "run/workspaces").stat().st_mode) == 0o700


def test_a_private_directory_is_made_once_by_many_threads(tmp_path: Path) -> None:
    """Threads that create the same private directory at once all succeed."""
    errors: list[Exception] = []

    def make(number: int) -> None:
        try:
            make_private_directory(tmp_path / "workspaces")
            make_fresh_directory(tmp_path / "workspaces" / str(number))
        except StorageError as error:
            errors.append(error)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.parametrize("kind", ["full", "file", "link"])
def test_a_directory_of_somebody_else_is_not_adopted(tmp_path: Path, kind: str) -> None:
    """H12: a private directory is not made from a directory with content but no marker, from a file or from a link."""
    path = tmp_path / "workspaces"
    if kind == "full":
        path.mkdir()
        (path / "photos").mkdir()
    elif kind == "file":
        path.write_text("content")
    else:
        (tmp_path / "elsewhere").mkdir()
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError) as refused:
        make_private_directory(path)
    assert refused.value.code == "workspace-foreign"


def test_a_fresh_directory_holds_nothing_of_before(workspace: Path) -> None:
    """F11: a new workspace is empty and closed to other users, even if an old one existed."""
    (workspace / "notes").write_text("from the last run")
    workspace.chmod(0o777)
    make_fresh_directory(workspace)
    assert list(workspace.iterdir()) == []
    assert stat.S_IMODE(workspace.stat().st_mode) == 0o700


def test_a_disk_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    """L07: an error of the operating system becomes a storage error that names the path."""
    (tmp_path / "file").write_text("content")
    with pytest.raises(StorageError, match=r"cannot read or write .*/file/workspaces"):
        make_private_directory(tmp_path / "file/workspaces")


def _open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _peak_descriptors(action: Callable[[], None]) -> int:
    """Return the largest number of descriptors that were open at once while ``action`` ran in another thread."""
    worker = threading.Thread(target=action)
    worker.start()
    peak = 0
    while worker.is_alive():
        peak = max(peak, _open_descriptors())
    worker.join()
    return peak


def test_a_private_directory_is_removed_with_its_marker_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker is removed after all other content is gone and synced.

    After a power failure, a directory with content but no marker would be refused.
    """
    place = tmp_path / "scratch"
    make_private_directory(place)
    make_fresh_directory(place / "task")
    there: list[list[str]] = []
    monkeypatch.setattr(os, "fsync", lambda _: there.append(sorted(path.name for path in place.iterdir())))
    remove_private_directory(place)
    assert there == [[MARKER]]
    assert not place.exists()
    remove_private_directory(place)


def test_a_directory_of_somebody_else_is_not_removed(tmp_path: Path) -> None:
    """A directory without the marker is refused, and its content stays."""
    (tmp_path / "scratch/inner").mkdir(parents=True)
    with pytest.raises(StorageError, match="did not create it"):
        remove_private_directory(tmp_path / "scratch")
    assert (tmp_path / "scratch/inner").is_dir()
