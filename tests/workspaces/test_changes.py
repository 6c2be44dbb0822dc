"""What changed is found by comparison with the image alone, the same from both forms that drivers leave."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from typing import TYPE_CHECKING

import pytest

from image_archives import directory, file, hard_link, special, symlink
from securebench.errors import InfrastructureError
from securebench.fs.safe_open import TreeRefusal, TreeRefusedError
from securebench.fs.walk import TreeLimits
from securebench.patches.model import FileVersion
from securebench.sandboxes.collected import CollectedArchive, CollectedLayer
from securebench.workspaces.changes import read_changes
from securebench.workspaces.image_tree import HostTree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from image_archives import Part
    from securebench.patches.model import Delta

OPAQUE = "user.overlay.opaque"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Give a directory of an image."""
    root = tmp_path / "image"
    (root / "a/deep").mkdir(parents=True)
    (root / ".git").mkdir()
    for name in ("a/one", "a/deep/two", "top", ".git/HEAD"):
        (root / name).write_text(f"{name}\n")
    (root / "link").symlink_to("top")
    return root


@pytest.fixture
def pristine(image: Path) -> Iterator[HostTree]:
    """Give it as a tree."""
    with HostTree(image) as tree:
        yield tree


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    """Give the upper directory of an overlay, where nothing is changed."""
    (tmp_path / "upper").mkdir()
    return tmp_path / "upper"


def _layer(pristine: HostTree, upper: Path, *, whole: bool = False, limits: TreeLimits | None = None) -> Delta:
    descriptor = os.open(upper, os.O_RDONLY)
    try:
        layer = CollectedLayer(descriptor, OPAQUE, whole=whole)
        return read_changes(layer, pristine, *([limits] if limits else [])).delta
    finally:
        os.close(descriptor)


def _archive(pristine: HostTree, *parts: Part, limits: TreeLimits | None = None) -> Delta:
    return read_changes(_collected(*parts), pristine, *([limits] if limits else [])).delta


def _collected(*parts: Part) -> CollectedArchive:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for member, data in (directory("repo"), *parts):
            archive.addfile(member, io.BytesIO(data))
    data = whole.getvalue()
    return CollectedArchive(iter([data[start : start + 700] for start in range(0, len(data), 700)]))


def _white_out(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR, 0)  # which an ordinary user may, too


def _unchanged() -> list[Part]:
    files = [file(f"repo/{name}", f"{name}\n".encode()) for name in ("a/one", "a/deep/two", "top", ".git/HEAD")]
    return [*files, symlink("repo/link", "top")]


class TestLayers:
    """What overlayfs keeps."""

    def test_nothing_is_nothing(self, pristine: HostTree, upper: Path) -> None:
        """An empty layer, and none at all, change nothing."""
        assert _layer(pristine, upper) == {}
        assert read_changes(CollectedLayer(-1), pristine).delta == {}

    def test_a_copy_is_no_change(self, pristine: HostTree, upper: Path) -> None:
        """What was opened for writing, or touched, is in the layer, and unchanged."""
        (upper / "a").mkdir()
        (upper / "a/one").write_text("a/one\n")
        (upper / "a/one").chmod(0o640)
        (upper / "link").symlink_to("top")
        assert _layer(pristine, upper) == {}

    def test_whiteouts_remove(self, pristine: HostTree, upper: Path) -> None:
        """A whiteout of a directory removes every file of it, and one of nothing removes nothing."""
        for name in ("a", "link", "absent", ".git"):
            _white_out(upper / name)
        assert _layer(pristine, upper) == {b"a/one": None, b"a/deep/two": None, b"link": None}

    def test_an_opaque_directory_begins_anew(self, pristine: HostTree, upper: Path) -> None:
        """What an opaque directory does not hold is gone; what it holds as it was, is as it was."""
        (upper / "a").mkdir()
        os.setxattr(upper / "a", OPAQUE, b"y")
        (upper / "a/one").write_text("a/one\n")
        assert _layer(pristine, upper) == {b"a/deep/two": None}

    def test_the_other_attribute_is_data(self, pristine: HostTree, upper: Path) -> None:
        """An attribute that anybody may set makes no directory opaque."""
        (upper / "a").mkdir()
        os.setxattr(upper / "a", "user.x", b"y")
        assert _layer(pristine, upper) == {}

    def test_a_directory_that_is_whole(self, pristine: HostTree, upper: Path) -> None:
        """Where the directory itself is new, what it does not hold is gone, but for version control."""
        (upper / "top").write_text("top\n")
        assert _layer(pristine, upper, whole=True) == {b"a/one": None, b"a/deep/two": None, b"link": None}

    def test_kinds_that_change_places(self, pristine: HostTree, upper: Path) -> None:
        """A file in the place of a directory removes what was in it, and the other way round."""
        (upper / "a").write_text("file")
        (upper / "top").mkdir()
        (upper / "top/inner").write_text("x")
        assert _layer(pristine, upper) == {
            b"a": FileVersion(b"file"),
            b"a/one": None,
            b"a/deep/two": None,
            b"top": None,
            b"top/inner": FileVersion(b"x"),
        }

    def test_links_are_data(self, pristine: HostTree, upper: Path) -> None:
        """C12: a link is kept, wherever it leads, and never followed."""
        (upper / "out").symlink_to("/etc/passwd")
        assert _layer(pristine, upper) == {b"out": FileVersion(b"/etc/passwd", link=True)}


class TestArchives:
    """What an engine gives."""

    def test_as_it_was(self, pristine: HostTree) -> None:
        """An archive of what the image has changes nothing."""
        assert _archive(pristine, *_unchanged()) == {}

    def test_what_is_missing_is_gone(self, pristine: HostTree) -> None:
        """What is not there any more was removed, but for version control."""
        assert _archive(pristine, file("repo/top", b"top\n")) == {b"a/one": None, b"a/deep/two": None, b"link": None}

    def test_a_difference_at_the_end(self, pristine: HostTree, image: Path) -> None:
        """A file of the same size that differs in its last byte is changed, and whole."""
        content = b"x" * 3_000_000
        (image / "large").write_bytes(content)
        assert _archive(pristine, *_unchanged(), file("repo/large", content)) == {}
        delta = _archive(pristine, *_unchanged(), file("repo/large", content[:-1] + b"y"))
        assert delta == {b"large": FileVersion(content[:-1] + b"y")}

    def test_hard_links_are_files(self, pristine: HostTree) -> None:
        """H04: a second name of a file is a file of the same content, changed or not."""
        parts = [file("repo/new", b"new"), hard_link("repo/second", "repo/new"), hard_link("repo/third", "repo/top")]
        delta = _archive(pristine, *_unchanged(), *parts)
        assert delta == {
            b"new": FileVersion(b"new"),
            b"second": FileVersion(b"new"),
            b"third": FileVersion(b"top\n"),
        }

    def test_a_hard_link_to_what_is_not_looked_at(self, pristine: HostTree) -> None:
        """H04: a name of a file in ``.git`` has no content that was seen, and is refused."""
        with pytest.raises(TreeRefusedError, match="second: is a hard link") as refused:
            _archive(pristine, *_unchanged(), hard_link("repo/second", "repo/.git/HEAD"))
        assert refused.value.refusal is TreeRefusal.UNSAFE

    def test_modes_that_the_image_has(self, pristine: HostTree, image: Path) -> None:
        """H06, H11: a set-id or closed file is refused, unless it is as the image has it."""
        (image / "tool").write_text("x")
        (image / "tool").chmod(0o4755)
        assert _archive(pristine, *_unchanged(), file("repo/tool", b"x", mode=0o4755)) == {}
        for mode in (0o4755, 0o2755, 0o000):
            with pytest.raises(TreeRefusedError, match="top: "):
                _archive(pristine, *_unchanged(), file("repo/top", b"top\n", mode=mode))

    def test_offenders_are_named(self, pristine: HostTree) -> None:
        """H05: devices and FIFOs are refused by name, all of them."""
        with pytest.raises(TreeRefusedError) as refused:
            _archive(pristine, special("repo/pipe", tarfile.FIFOTYPE), special("repo/tty", tarfile.CHRTYPE))
        assert refused.value.offenders == ("pipe: is a device or FIFO", "tty: is a device or FIFO")

    @pytest.mark.parametrize("name", ["repo/../x", "repo//x", "repo/./x"])
    def test_names_that_no_engine_gives(self, pristine: HostTree, name: str) -> None:
        """H13: a member whose name leads elsewhere is trouble with the engine, never a change."""
        with pytest.raises(InfrastructureError):
            _archive(pristine, file(name))

    def test_an_archive_that_was_cut_short(self, pristine: HostTree) -> None:
        """L08: half an archive is trouble with the engine, never a candidate in which the rest is gone."""
        whole = b"".join(_collected(*_unchanged()).pieces)
        with pytest.raises(InfrastructureError, match="truncated"):
            read_changes(CollectedArchive(iter([whole[:2000]])), pristine)


class TestBothForms:
    """What holds for a layer holds for an archive."""

    @pytest.mark.parametrize("form", ["layer", "archive"])
    def test_what_is_ignored_is_counted(self, pristine: HostTree, image: Path, upper: Path, form: str) -> None:
        """C25: caches are left out and counted, also what a test run did to one of the image's."""
        (image / "kept/__pycache__").mkdir(parents=True)
        (image / "kept/__pycache__/gone.pyc").write_text("x")
        (image / "kept/__pycache__/x.py").write_text("y")
        names = ("kept/__pycache__/x.py", "new/__pycache__/x.pyc", "new/x.pyc", ".mypy_cache/x/y", ".git/config")
        for name in names:
            (upper / name).parent.mkdir(parents=True, exist_ok=True)
            (upper / name).write_text("x")
        descriptor = os.open(upper, os.O_RDONLY)
        directories = [
            directory(f"repo/{name}") for name in ("kept/__pycache__", "new/__pycache__", ".mypy_cache", ".git")
        ]
        members = [*_unchanged(), *directories, *(file(f"repo/{name}", b"x") for name in names)]
        collected = CollectedLayer(descriptor, OPAQUE) if form == "layer" else _collected(*members)
        changes = read_changes(collected, pristine)
        os.close(descriptor)
        assert changes.delta == {}
        assert changes.ignored == {".git": 1, "__pycache__": 2, "*.pyc": 1, ".mypy_cache": 1}

    @pytest.mark.parametrize("limits", [TreeLimits(entries=1), TreeLimits(total_bytes=11)])
    def test_limits_hold_exactly(self, pristine: HostTree, upper: Path, limits: TreeLimits) -> None:
        """C16, H08: changes at their limits are read; one more file or byte is refused."""
        for name in ("x", "y"):
            (upper / name).write_text("123456")
        parts = [*_unchanged(), *(file(f"repo/{name}", b"123456") for name in ("x", "y"))]
        exact = TreeLimits(entries=2, total_bytes=12)
        assert len(_layer(pristine, upper, limits=exact)) == len(_archive(pristine, *parts, limits=exact)) == 2
        with pytest.raises(TreeRefusedError) as of_layer:
            _layer(pristine, upper, limits=limits)
        with pytest.raises(TreeRefusedError) as of_archive:
            _archive(pristine, *parts, limits=limits)
        assert of_layer.value.refusal is of_archive.value.refusal is TreeRefusal.TOO_LARGE

    def test_a_sparse_file_is_not_read(self, pristine: HostTree, upper: Path) -> None:
        """H07: a file that claims more than may be changed is refused by its size alone."""
        with (upper / "sparse").open("wb") as sparse:
            sparse.truncate(4 * 1024**3)
        with pytest.raises(TreeRefusedError) as refused:
            _layer(pristine, upper)
        assert refused.value.refusal is TreeRefusal.TOO_LARGE
