"""Files of an image, found as a process in it would find them, and never one of the host's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from securebench.agents.image_files import image_file


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
    with image_file(image, path) as descriptor:
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


def test_a_way_without_end_is_given_up(image: Path) -> None:
    """Links that lead to links, and directories in directories."""
    for number in range(60):
        (image / f"l{number}").symlink_to(f"l{number + 1}")
    (image / "l60").write_text("far")
    assert content(image, "/l0") is None
    assert content(image, "/l30") == "far"
    deep = image / ("d/" * 70)
    deep.mkdir(parents=True)
    (deep / "file").write_text("deep")
    assert content(image, "/" + "d/" * 70 + "file") is None


def test_nothing_stays_open(image: Path) -> None:
    """Also where the search ends in the middle."""
    (image / "loop").symlink_to("usr/lib64/../../loop")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in ("/usr/lib64/library", "/loop", "/nothing/there"):
        content(image, path)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
