"""Tests of filling a new workspace with a copy of the image's directory."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from securebench.errors import MaterializationError
from securebench.fs.walk import TreeLimits
from securebench.workspaces.filling import fill
from securebench.workspaces.image_tree import HostTree

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Return a directory of an image."""
    (tmp_path / "image/a").mkdir(parents=True)
    (tmp_path / "image/a/file").write_bytes(b"content" * 100_000)
    (tmp_path / "image/empty").write_bytes(b"")
    (tmp_path / "image/program").write_text("#!")
    (tmp_path / "image/program").chmod(0o711)
    (tmp_path / "image/link").symlink_to("a/file")
    return tmp_path / "image"


def _fill(image: Path, workspace: Path, limits: TreeLimits | None = None) -> tuple[int, int]:
    with HostTree(image) as tree:
        filled = fill(workspace, tree, (os.getuid(), os.getgid()), limits)
    return filled.entries, filled.size


def test_everything_is_copied(image: Path, workspace: Path) -> None:
    """Files, directories, links and modes are copied. Set-id bits are removed; owners may write their directories."""
    (image / "program").chmod(0o4711)
    (image / "a").chmod(0o2550)
    (image / "empty").chmod(0o600)
    assert _fill(image, workspace) == (5, 700_002)
    assert (workspace / "a/file").read_bytes() == b"content" * 100_000
    assert (workspace / "link").readlink() == image.joinpath("link").readlink()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in workspace.rglob("*")}
    assert modes == {"a": 0o750, "file": 0o644, "link": 0o644, "empty": 0o600, "program": 0o711}


@pytest.mark.parametrize("name", ["task.json", "securebench"])
def test_what_is_the_frameworks_own(image: Path, workspace: Path, name: str) -> None:
    """A13: a directory of the image that contains a path reserved for SecureBench is refused."""
    (image / name).mkdir()
    with pytest.raises(MaterializationError) as refused:
        _fill(image, workspace)
    assert refused.value.code == "target-exists"


def test_what_could_not_be_sealed_again(image: Path, workspace: Path) -> None:
    """H05: a FIFO is refused, because no workspace that contains it could be sealed and every agent would fail."""
    os.mkfifo(image / "pipe")
    with pytest.raises(MaterializationError, match="pipe: is a FIFO") as refused:
        _fill(image, workspace)
    assert refused.value.code == "image-workdir-unsafe"


def test_links_are_copied_wherever_they_lead(image: Path, workspace: Path) -> None:
    """H01: links are copied with their targets unchanged, and are not followed."""
    targets = ("/etc/passwd", "/opt/venv/bin/python3", "../../up", "nowhere", "/proc/self/mem")
    for number, target in enumerate(targets):
        (image / f"out{number}").symlink_to(target)
    _fill(image, workspace)
    assert [str((workspace / f"out{number}").readlink()) for number in range(len(targets))] == list(targets)


def test_what_is_too_large(image: Path, workspace: Path) -> None:
    """H08: a directory of the image that exceeds the limits of a workspace is refused."""
    with pytest.raises(MaterializationError) as refused:
        _fill(image, workspace, TreeLimits(entries=2))
    assert refused.value.code == "image-workdir-too-large"


def test_another_file_system(image: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the kernel cannot copy data between two file systems (``EXDEV``), the files are copied in another way."""

    def refuse(*_: object) -> int:
        raise OSError(18, os.strerror(18))

    monkeypatch.setattr(os, "copy_file_range", refuse)
    assert _fill(image, workspace) == (5, 700_002)
    assert (workspace / "a/file").read_bytes() == b"content" * 100_000
