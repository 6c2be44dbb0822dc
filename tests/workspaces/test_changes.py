"""Changes are found by comparison with the image, and are the same for both forms in which drivers deliver them."""

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
from securebench.fs.walk import TreeEntry, TreeLimits
from securebench.patches.model import FileVersion
from securebench.sandboxes.collected import TRUSTED_OPAQUE, CollectedArchive, CollectedLayer
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
    """Return a directory of an image."""
    root = tmp_path / "image"
    (root / "a/deep").mkdir(parents=True)
    (root / ".git").mkdir()
    for name in ("a/one", "a/deep/two", "top", ".git/HEAD"):
        (root / name).write_text(f"{name}\n")
    (root / "link").symlink_to("top")
    return root


@pytest.fixture
def pristine(image: Path) -> Iterator[HostTree]:
    """Yield the directory of the image as a tree."""
    with HostTree(image) as tree:
        yield tree


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    """Return the upper directory of an overlay without changes."""
    (tmp_path / "upper").mkdir()
    return tmp_path / "upper"


def _layer(
    pristine: HostTree, upper: Path, *, whole: bool = False, opaque: str = OPAQUE, limits: TreeLimits | None = None
) -> Delta:
    descriptor = os.open(upper, os.O_RDONLY)
    try:
        layer = CollectedLayer(descriptor, opaque, whole=whole)
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
    os.mknod(path, stat.S_IFCHR, 0)  # ordinary users may create a whiteout, too


def _unchanged() -> list[Part]:
    files = [file(f"repo/{name}", f"{name}\n".encode()) for name in ("a/one", "a/deep/two", "top", ".git/HEAD")]
    return [*files, symlink("repo/link", "top")]


class TestLayers:
    """Changes in the upper directory of an overlay."""

    def test_nothing_is_nothing(self, pristine: HostTree, upper: Path) -> None:
        """An empty layer and a missing layer have no changes."""
        assert _layer(pristine, upper) == {}
        assert read_changes(CollectedLayer(-1), pristine).delta == {}

    def test_a_copy_is_no_change(self, pristine: HostTree, upper: Path) -> None:
        """Files and links in the layer with the same content as in the image, as after ``touch``, are not changes."""
        (upper / "a").mkdir()
        (upper / "a/one").write_text("a/one\n")
        (upper / "a/one").chmod(0o640)
        (upper / "link").symlink_to("top")
        assert _layer(pristine, upper) == {}

    def test_whiteouts_remove(self, pristine: HostTree, upper: Path) -> None:
        """A whiteout deletes a link, or all files of a directory.

        A whiteout of a missing path or of ``.git`` changes nothing.
        """
        for name in ("a", "link", "absent", ".git"):
            _white_out(upper / name)
        assert _layer(pristine, upper) == {b"a/one": None, b"a/deep/two": None, b"link": None}

    def test_an_opaque_directory_begins_anew(self, pristine: HostTree, upper: Path) -> None:
        """An opaque directory deletes the image's files that it does not contain.

        A file in it with the same content as in the image is not a change.
        """
        (upper / "a").mkdir()
        os.setxattr(upper / "a", OPAQUE, b"y")
        (upper / "a/one").write_text("a/one\n")
        assert _layer(pristine, upper) == {b"a/deep/two": None}

    def test_the_other_attribute_is_data(self, pristine: HostTree, upper: Path) -> None:
        """H17: an attribute other than the one that the layer names does not make a directory opaque.

        This also holds for the name that user namespaces use, which processes in the sandbox can set.
        """
        (upper / "a").mkdir()
        os.setxattr(upper / "a", "user.x", b"y")
        assert _layer(pristine, upper) == {}
        os.setxattr(upper / "a", OPAQUE, b"y")
        assert _layer(pristine, upper, opaque=TRUSTED_OPAQUE) == {}

    def test_a_directory_that_is_whole(self, pristine: HostTree, upper: Path) -> None:
        """If the directory itself was replaced, files that the new one lacks are deleted, except ``.git``."""
        (upper / "top").write_text("top\n")
        assert _layer(pristine, upper, whole=True) == {b"a/one": None, b"a/deep/two": None, b"link": None}

    def test_kinds_that_change_places(self, pristine: HostTree, upper: Path) -> None:
        """A file in place of a directory deletes the directory's files.

        A directory in place of a file deletes the file.
        """
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
        """C12: a link is recorded with its target, wherever it leads, and not followed."""
        (upper / "out").symlink_to("/etc/passwd")
        assert _layer(pristine, upper) == {b"out": FileVersion(b"/etc/passwd", link=True)}


class TestArchives:
    """Changes in an archive from an engine."""

    def test_as_it_was(self, pristine: HostTree) -> None:
        """An archive with the content of the image has no changes."""
        assert _archive(pristine, *_unchanged()) == {}

    def test_what_is_missing_is_gone(self, pristine: HostTree) -> None:
        """Files that are missing from the archive were deleted, except ``.git``."""
        assert _archive(pristine, file("repo/top", b"top\n")) == {b"a/one": None, b"a/deep/two": None, b"link": None}

    def test_a_difference_at_the_end(self, pristine: HostTree, image: Path) -> None:
        """A file that differs only in its last byte is a change, and is recorded completely."""
        content = b"x" * 3_000_000
        (image / "large").write_bytes(content)
        assert _archive(pristine, *_unchanged(), file("repo/large", content)) == {}
        delta = _archive(pristine, *_unchanged(), file("repo/large", content[:-1] + b"y"))
        assert delta == {b"large": FileVersion(content[:-1] + b"y")}

    def test_hard_links_are_files(self, pristine: HostTree) -> None:
        """H04: a hard link is recorded as a file with the content of its target, whether that changed or not."""
        parts = [file("repo/new", b"new"), hard_link("repo/second", "repo/new"), hard_link("repo/third", "repo/top")]
        delta = _archive(pristine, *_unchanged(), *parts)
        assert delta == {
            b"new": FileVersion(b"new"),
            b"second": FileVersion(b"new"),
            b"third": FileVersion(b"top\n"),
        }

    def test_a_hard_link_to_what_is_not_looked_at(self, pristine: HostTree) -> None:
        """H04: a hard link to a file in ``.git``, whose content is not read, is refused."""
        with pytest.raises(TreeRefusedError, match="second: is a hard link") as refused:
            _archive(pristine, *_unchanged(), hard_link("repo/second", "repo/.git/HEAD"))
        assert refused.value.refusal is TreeRefusal.UNSAFE

    def test_modes_that_the_image_has(self, pristine: HostTree, image: Path) -> None:
        """H06, H11: a set-id or unreadable file is refused, unless it has the same mode in the image."""
        (image / "tool").write_text("x")
        (image / "tool").chmod(0o4755)
        assert _archive(pristine, *_unchanged(), file("repo/tool", b"x", mode=0o4755)) == {}
        for mode in (0o4755, 0o2755, 0o000):
            with pytest.raises(TreeRefusedError, match="top: "):
                _archive(pristine, *_unchanged(), file("repo/top", b"top\n", mode=mode))

    def test_offenders_are_named(self, pristine: HostTree) -> None:
        """H05: devices and FIFOs are refused, and the error names all of them."""
        with pytest.raises(TreeRefusedError) as refused:
            _archive(pristine, special("repo/pipe", tarfile.FIFOTYPE), special("repo/tty", tarfile.CHRTYPE))
        assert refused.value.offenders == ("pipe: is a device or FIFO", "tty: is a device or FIFO")

    @pytest.mark.parametrize("name", ["repo/../x", "repo//x", "repo/./x"])
    def test_names_that_no_engine_gives(self, pristine: HostTree, name: str) -> None:
        """H13: a member with an invalid path is an infrastructure error, and never a change."""
        with pytest.raises(InfrastructureError):
            _archive(pristine, file(name))

    def test_an_archive_that_was_cut_short(self, pristine: HostTree) -> None:
        """L08: a truncated archive is an infrastructure error, and the missing files do not count as deleted."""
        whole = b"".join(_collected(*_unchanged()).pieces)
        with pytest.raises(InfrastructureError, match="truncated"):
            read_changes(CollectedArchive(iter([whole[:2000]])), pristine)


class TestBothForms:
    """Rules that apply to layers and to archives."""

    @pytest.mark.parametrize("form", ["layer", "archive"])
    def test_what_is_ignored_is_counted(self, pristine: HostTree, image: Path, upper: Path, form: str) -> None:
        """C25: caches and ``.git`` are left out and counted, even if a cache of the image was changed."""
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
        """C16, H08: changes that reach the limits exactly are read; one more file or byte is refused."""
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

    def test_a_sparse_file_is_not_read(self, pristine: HostTree, upper: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """H07: a sparse file that is larger than the limit for all changes is refused for its size, and is not read."""

        def chunks(entry: TreeEntry) -> Iterator[bytes]:
            return iter(lambda: pytest.fail(f"{entry.path!r} is read"), b"")

        monkeypatch.setattr(TreeEntry, "chunks", chunks)
        with (upper / "sparse").open("wb") as sparse:
            sparse.truncate(4 * 1024**3)
        with pytest.raises(TreeRefusedError) as refused:
            _layer(pristine, upper)
        assert refused.value.refusal is TreeRefusal.TOO_LARGE
