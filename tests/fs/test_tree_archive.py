"""Trees are archived with tar and extracted again. Archives that would write outside, or are truncated, are refused."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import ImageError
from securebench.fs.safe_open import TreeRefusal, TreeRefusedError
from securebench.fs.tree_archive import archive, replace_content
from securebench.fs.walk import STATUS, WORKSPACE, EntryKind, TreeLimits, walk

if TYPE_CHECKING:
    from pathlib import Path


def tar(*members: tuple[str, bytes, dict[str, Any]]) -> list[bytes]:
    """Return an archive of ``members``: the name, content and ``TarInfo`` attributes of each."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as writer:
        for name, content, attributes in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in attributes.items():
                setattr(info, key, value)
            writer.addfile(info, io.BytesIO(content))
    return [file.getvalue()]


def link(name: str, target: str) -> tuple[str, bytes, dict[str, Any]]:
    """Return a symbolic link as a member for :func:`tar`."""
    return (name, b"", {"type": tarfile.SYMTYPE, "linkname": target})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with old content, which extraction is to replace."""
    made = tmp_path / "made"
    (made / "old").mkdir(parents=True)
    (made / "old" / "file").touch()
    (made / "file").write_text("old")
    return made


def test_a_tree_comes_back_as_it_was(tmp_path: Path, directory: Path) -> None:
    """An extracted tree has the same names, contents, modes and links. Each archive member has the given owner."""
    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / ("long" * 50)).write_bytes(bytes(range(256)) * 5000)
    (source / os.fsdecode(b"odd \xff\n")).write_text("odd")
    (source / "program").write_text("#!")
    (source / "program").chmod(0o750)
    (source / "link").symlink_to("../../elsewhere")
    pieces = list(archive(source, "workspace", (65534, 2**31)))
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as reader:
        assert {(member.uid, member.gid) for member in reader} == {(65534, 2**31)}
        assert reader.getnames()[0] == "workspace"
    replace_content(directory, pieces)
    shown = [
        [
            (
                entry.path,
                entry.kind,
                entry.mode,
                entry.target,
                b"".join(entry.chunks()) if entry.descriptor >= 0 else b"",
            )
            for entry in walk(root, rules=WORKSPACE)
        ]
        for root in (source, directory)
    ]
    assert shown[0] == shown[1]


def test_a_file_is_an_archive_too(tmp_path: Path) -> None:
    """The archive of a file has one member, which has the given name."""
    (tmp_path / "check.py").write_text("pass")
    with tarfile.open(fileobj=io.BytesIO(b"".join(archive(tmp_path / "check.py", "x.py", (0, 0))))) as reader:
        (member,) = reader.getmembers()
        assert (member.name, member.size, member.isreg()) == ("x.py", 4, True)


@pytest.mark.parametrize("path", ["top/../../out", "top/x/../../../out", "../out", "top/./x", "top//x"])
def test_a_path_that_leads_elsewhere_is_refused(directory: Path, path: str) -> None:
    """A path with ``..``, ``.`` or an empty component is refused, and nothing is written outside the directory."""
    with pytest.raises(ImageError, match="outside the archived directory"):
        replace_content(directory, tar(("top/fine", b"", {}), (path, b"x", {})))
    assert not (directory.parent / "out").exists()


@pytest.mark.parametrize("target", ["..", "/tmp", "."])
def test_no_link_is_followed(directory: Path, target: str) -> None:
    """A member whose path leads through a link is refused."""
    with pytest.raises((ImageError, OSError)):
        replace_content(directory, tar(link("top/link", target), ("top/link/out", b"x", {})))
    assert sorted(path.name for path in directory.parent.iterdir()) == ["made"]


def test_a_part_of_an_archive_is_refused(directory: Path) -> None:
    """An archive that ends early, for example because a connection broke, is refused."""
    (whole,) = tar(("top/one", b"1" * 2000, {}), ("top/two", b"2", {}))
    for size in (0, 512, 1500, 2560, 3072):
        with pytest.raises(ImageError):
            replace_content(directory, [whole[:size]])


def test_a_path_twice_is_refused(directory: Path) -> None:
    """An archive with two members of the same path is refused."""
    with pytest.raises(ImageError, match="contradict"):
        replace_content(directory, tar(("top/x", b"1", {}), ("top/x", b"2", {})))


def test_other_names_of_a_file_share_it(directory: Path) -> None:
    """A hard link has the inode of its target: a file, a link or a FIFO. A hard link to a missing file is refused."""
    hard: dict[str, Any] = {"type": tarfile.LNKTYPE, "linkname": "top/a/file"}
    originals = [("top/a/file", b"text", {}), link("top/a/file", "x"), ("top/a/file", b"", {"type": tarfile.FIFOTYPE})]
    for original, is_kind in zip(originals, (stat.S_ISREG, stat.S_ISLNK, stat.S_ISFIFO), strict=True):
        replace_content(directory, tar(original, ("top/b", b"", hard)))
        status = (directory / "b").lstat()
        assert is_kind(status.st_mode)
        assert os.path.samestat(status, (directory / "a" / "file").lstat())
    with pytest.raises(ImageError):
        replace_content(directory, tar(("top/b", b"", hard)))


def test_set_id_bits_are_dropped_and_devices_never_made(directory: Path) -> None:
    """Set-id bits are dropped. FIFOs and devices become FIFOs, so that the next reader refuses the directory."""
    kinds = (tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE)
    members: list[tuple[str, bytes, dict[str, Any]]] = [(f"top/{kind!r}", b"", {"type": kind}) for kind in kinds]
    replace_content(directory, tar(("top/suid", b"x", {"mode": 0o6755}), *members))
    entries = list(walk(directory, rules=STATUS))
    assert [entry.status.st_mode & 0o7000 for entry in entries] == [0] * 4
    specials = [entry for entry in entries if entry.kind is EntryKind.SPECIAL]
    assert [stat.S_ISFIFO(entry.status.st_mode) for entry in specials] == [True] * 3
    with pytest.raises(TreeRefusedError):
        list(walk(directory, rules=WORKSPACE))


@pytest.mark.parametrize(
    ("limits", "members"),
    [
        (TreeLimits(total_bytes=1000), [("top/big", b"x" * 1001, {})]),
        (TreeLimits(entries=3), [(f"top/{number}", b"", {}) for number in range(9)]),
        (TreeLimits(depth=4), [("top" + "/d" * 9 + "/x", b"", {})]),
        (TreeLimits(name_bytes=40), [("top/" + "n" * 41, b"", {})]),
        (TreeLimits(path_bytes=40), [("top/aaaaaaaaa/bbbbbbbbb/" + "c" * 21, b"", {})]),
    ],
)
def test_a_tree_above_the_limits_is_refused_by_who_reads_it(
    directory: Path, limits: TreeLimits, members: list[tuple[str, bytes, dict[str, Any]]]
) -> None:
    """A tree above the limits is written only in part. That part exceeds them, too, so that its reader refuses it."""
    replace_content(directory, tar(("top/first", b"x", {}), *members), limits)
    with pytest.raises(TreeRefusedError) as refused:
        list(walk(directory, limits, WORKSPACE))
    assert refused.value.refusal is TreeRefusal.TOO_LARGE
    assert (directory / "first").exists()
    assert not (directory / members[-1][0].removeprefix("top/")).exists()
    assert sum(path.stat().st_blocks for path in directory.rglob("*")) * 512 < 100_000
