"""Paths lead to the files that a process inside the root would find, and never to a file of the host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from securebench.fs.resolve import opened_inside


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Return the root of an image with one library. A file of the host, called ``secret``, is next to the root."""
    (tmp_path / "secret").write_text("the host's")
    root = tmp_path / "root"
    (root / "usr/lib64").mkdir(parents=True)
    (root / "usr/lib64/library").write_text("the image's")
    return root


def content(image: Path, path: str) -> str | None:
    """Return the content of a file of the image, or ``None`` if there is no such file."""
    with opened_inside(image, path) as descriptor:
        return None if descriptor is None else os.pread(descriptor, 100, 0).decode()


def test_links_are_followed_inside_the_image(image: Path) -> None:
    """Absolute links start at the image's root, relative links at their directory. '..' never leads above the root."""
    (image / "lib64").symlink_to("usr/lib64")
    (image / "usr/absolute").symlink_to("/lib64/library")
    (image / "usr/up").symlink_to("../../../../lib64/./library")
    for path in ("/usr/lib64/library", "/lib64/library", "/usr/absolute", "/usr/up", "//usr/../lib64/library"):
        assert content(image, path) == "the image's", path


@pytest.mark.parametrize("target", ["{host}", "../secret", "../../../../../{host}", "/proc/self/root/{host}"])
def test_no_link_leads_to_the_host(image: Path, target: str) -> None:
    """A link to a path that exists only on the host leads to no file."""
    (image / "link").symlink_to(target.format(host=image.parent / "secret"))
    assert content(image, "/link") is None


def test_what_is_no_file_is_not_there(image: Path) -> None:
    """Directories, FIFOs, loops of links, paths below a file and missing paths are not found."""
    os.mkfifo(image / "pipe")
    (image / "loop").symlink_to("loop")
    (image / "circle").symlink_to("usr/../circle")
    for path in ("/usr", "/pipe", "/loop", "/circle", "/usr/lib64/library/x", "/nothing", "/"):
        assert content(image, path) is None, path


def test_as_many_links_are_followed_as_the_kernel_follows(image: Path) -> None:
    """A path may have 40 links, the kernel's limit, and lead through many levels of directories."""
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
    """No descriptor stays open, even if a path cannot be followed to its end."""
    (image / "loop").symlink_to("usr/lib64/../../loop")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in ("/usr/lib64/library", "/loop", "/nothing/there"):
        content(image, path)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
