"""A directory of an image is read as it is, without following links."""

from __future__ import annotations

from pathlib import Path

import pytest

from securebench.errors import MaterializationError
from securebench.fs.walk import TreeLimits
from securebench.patches.model import FileVersion
from securebench.workspaces import image_tree
from securebench.workspaces.image_tree import HostTree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root of an unpacked image."""
    (tmp_path / "srv/repo/a").mkdir(parents=True)
    (tmp_path / "srv/repo/a/file").write_text("content")
    (tmp_path / "srv/repo/program").write_text("#!")
    (tmp_path / "srv/repo/program").chmod(0o755)
    (tmp_path / "srv/repo/link").symlink_to("/etc/passwd")
    (tmp_path / "srv/repo/out").symlink_to("/etc")
    (tmp_path / "srv/other").symlink_to("repo")
    return tmp_path


def test_files_and_links(root: Path) -> None:
    """A file has its content and executable bit, a link its target. A directory or missing path gives ``None``."""
    with HostTree.of_image(root, "/srv/repo") as tree:
        assert tree.get(b"a/file") == FileVersion(b"content")
        assert tree.get(b"program") == FileVersion(b"#!", executable=True)
        assert tree.get(b"link") == FileVersion(b"/etc/passwd", link=True)
        assert [tree.get(path) for path in (b"a", b"absent", b"absent/x", b"program/x", b"a/absent")] == [None] * 5
        assert tree.get(b"a/file") == FileVersion(b"content")


def test_no_link_is_followed(root: Path) -> None:
    """H01, H02: links are not followed, so no file is found below a link."""
    with HostTree.of_image(root, "/srv/repo") as tree:
        assert tree.get(b"out/passwd") is None
        assert set(tree.files()) == {b"a/file", b"program", b"link", b"out"}


def test_what_lies_below(root: Path) -> None:
    """For a directory, the paths below it are yielded; for a link, only the link; for a missing path, nothing."""
    with HostTree.of_image(root, "/srv/repo") as tree:
        assert list(tree.files(b"a")) == [b"a/file"]
        assert list(tree.files(b"link")) == [b"link"]
        assert list(tree.files(b"absent")) == []


@pytest.mark.parametrize("directory", ["/absent", "/srv/repo/program", "/srv/other", "/srv/repo/out"])
def test_a_directory_that_the_image_has_not(root: Path, directory: str) -> None:
    """A path is refused if it is missing, is not a directory, or has a link in it."""
    with pytest.raises(MaterializationError) as refused:
        HostTree.of_image(root, directory)
    assert refused.value.code == "image-workdir-missing"


def test_descriptors_are_closed(root: Path) -> None:
    """A closed tree has no open descriptor. Closing it twice is allowed."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    tree = HostTree.of_image(root, "/srv/repo")
    tree.get(b"a/file")
    list(tree.files())
    tree.close()
    tree.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_image_that_is_too_much_is_no_fault_of_a_candidate(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image with too many files raises ``OSError``, an error of the machine, so that the task is not scored."""
    monkeypatch.setattr(image_tree, "UNPACKED", TreeLimits(entries=1))
    with HostTree.of_image(root, "/srv/repo") as tree, pytest.raises(OSError, match="files of the image exceed"):
        list(tree.files())
