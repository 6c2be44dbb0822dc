"""Files are found as a process inside the root would find them, and never one of the host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from securebench.fs.resolve import opened_inside


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Give an image with one library, beside a file of the host that no image has."""
    (tmp_path / "secret").write_text("the host's")
    root = tmp_path / "root"
    (root / "usr/lib64").mkdir(parents=True)
    (root / "usr/lib64/library").write_text("the image's")
    return root


def content(image: Path, path: str) -> str | None:
    """Return what a file of the image holds."""
    with opened_inside(image, path) as descriptor:
        return None if descriptor is None else os.pread(descriptor, 100, 0).decode()


def test_links_are_followed_inside_the_image(image: Path) -> None:
    """Absolute ones from its root, relative ones from where they are, and '..' never above it."""
    (image / "lib64").symlink_to("usr/lib64")
    (image / "usr/absolute").symlink_to("/lib64/library")
    (image / "usr/up").symlink_to("../../../../lib64/./library")
    for path in ("/usr/lib64/library", "/lib64/library", "/usr/absolute", "/usr/up", "//usr/../lib64/library"):
        assert content(image, path) == "the image's", path


@pytest.mark.parametrize("target", ["{host}", "../secret", "../../../../../{host}", "/proc/self/root/{host}"])
def test_no_link_leads_to_the_host(image: Path, target: str) -> None:
    """What lies there for the host is not there for the image."""
    (image / "link").symlink_to(target.format(host=image.parent / "secret"))
    assert content(image, "/link") is None


def test_what_is_no_file_is_not_there(image: Path) -> None:
    """A directory, a pipe that would block, a loop, a device's stand-in, a file used as a directory, nothing."""
    os.mkfifo(image / "pipe")
    (image / "loop").symlink_to("loop")
    (image / "circle").symlink_to("usr/../circle")
    for path in ("/usr", "/pipe", "/loop", "/circle", "/usr/lib64/library/x", "/nothing", "/"):
        assert content(image, path) is None, path


def test_as_many_links_are_followed_as_the_kernel_follows(image: Path) -> None:
    """However deep a directory is, it is found with a fixed number of open files."""
    for number in range(60):
        (image / f"l{number}").symlink_to(f"l{number + 1}")
    (image / "l60").write_text("far")
    assert content(image, "/l0") is None
    assert content(image, "/l20") == "far"
    assert content(image, "/l19") is None
    for number in range(21):
        (image / f"d{number}").symlink_to(f"d{number + 1}" if number < 20 else "usr")
        (image / f"usr/f{number}").symlink_to(f"../d1/f{number + 1}" if number < 20 else "lib64/library")
    assert content(image, "/d1/f20") == "the image's"
    assert content(image, "/d1/f19") is None
    deep = image / ("d/" * 70)
    deep.mkdir(parents=True)
    (deep / "file").write_text("deep")
    assert content(image, "/" + "d/" * 70 + "file") == "deep"


def test_nothing_stays_open(image: Path) -> None:
    """Also where the search ends in the middle."""
    (image / "loop").symlink_to("usr/lib64/../../loop")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in ("/usr/lib64/library", "/loop", "/nothing/there"):
        content(image, path)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
