"""A walk yields files and directories in a fixed order, refuses what its rules do not allow, and has limits."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from securebench.fs.safe_open import TreeRefusal, TreeRefusedError
from securebench.fs.walk import (
    MAX_OFFENDERS,
    STATUS,
    UNPACKED,
    WORKSPACE,
    EntryKind,
    TreeEntry,
    TreeLimits,
    TreeRules,
    walk,
    walk_at,
)
from securebench.printable import printable_name
from workspaces.users import as_ordinary_user, open_directory


def _paths(root: Path, limits: TreeLimits | None = None) -> list[bytes]:
    return [entry.path for entry in walk(root, limits)]


def _refused(root: Path, limits: TreeLimits | None = None, rules: TreeRules | None = None) -> TreeRefusedError:
    with pytest.raises(TreeRefusedError) as refused:
        list(walk(root, limits, rules))
    return refused.value


def _descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_entries_come_parents_first_in_byte_order(tmp_path: Path) -> None:
    """A walk yields parents before children, and names in byte order, whatever the order of the file system."""
    for name in ("b", "a", "Z"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    assert _paths(tmp_path) == [b"Z", b"Z/file", b"a", b"a/file", b"b", b"b/file"]


def test_an_entry_says_what_it_is(tmp_path: Path) -> None:
    """An entry of a link has a target. An entry of a file has a size, an executable bit and content."""
    (tmp_path / "program").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "program").chmod(0o755)
    (tmp_path / "link").symlink_to("program")
    found = {
        entry.path: (entry, b"".join(entry.chunks()) if entry.descriptor >= 0 else b"")
        for entry in walk(tmp_path, rules=WORKSPACE)
    }
    link, _ = found[b"link"]
    program, content = found[b"program"]
    assert (link.kind, link.target) == (EntryKind.LINK, b"program")
    assert (program.kind, program.size, program.executable, content) == (EntryKind.FILE, 10, True, b"#!/bin/sh\n")


def test_descriptors_are_closed_whatever_happens(tmp_path: Path) -> None:
    """No descriptor stays open after a walk that ended, was closed early, or was refused."""
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("content")
    before = _descriptors()
    list(walk(tmp_path))
    walk_left = walk(tmp_path)
    next(walk_left)
    walk_left.close()
    os.mkfifo(tmp_path / "a/b/pipe")
    _refused(tmp_path)
    _refused(tmp_path, TreeLimits(entries=2))
    assert _descriptors() == before


def test_offenders_are_all_named(tmp_path: Path) -> None:
    """The error names all refused entries, up to ``MAX_OFFENDERS``: the walk continues after the first one."""
    os.mkfifo(tmp_path / "a-pipe")
    (tmp_path / "b").write_text("content")
    (tmp_path / "c").symlink_to("/etc/passwd")
    refused = _refused(tmp_path)
    assert refused.refusal is TreeRefusal.UNSAFE
    assert refused.offenders == ("a-pipe: is a FIFO", "c: is a link")


def test_the_list_of_offenders_is_bounded(tmp_path: Path) -> None:
    """A walk stops after ``MAX_OFFENDERS`` refused entries."""
    for number in range(MAX_OFFENDERS * 3):
        (tmp_path / f"{number:03}").symlink_to("/etc/passwd")
    assert len(_refused(tmp_path).offenders) == MAX_OFFENDERS


@pytest.mark.parametrize(
    ("limits", "refusal"),
    [
        pytest.param(TreeLimits(entries=4), TreeRefusal.TOO_LARGE, id="entries"),
        pytest.param(TreeLimits(total_bytes=9), TreeRefusal.TOO_LARGE, id="bytes"),
        pytest.param(TreeLimits(depth=1), TreeRefusal.UNSAFE, id="depth"),
        pytest.param(TreeLimits(name_bytes=4), TreeRefusal.UNSAFE, id="name"),
        pytest.param(TreeLimits(path_bytes=9), TreeRefusal.UNSAFE, id="path"),
    ],
)
def test_each_limit_holds_exactly(tmp_path: Path, limits: TreeLimits, refusal: TreeRefusal) -> None:
    """H08: a tree that exactly reaches the limits is walked. A tree that exceeds one of them is refused."""
    (tmp_path / "one/two").mkdir(parents=True)
    (tmp_path / "one/two/ab").write_bytes(b"12345")
    (tmp_path / "one/two/c").write_bytes(b"12345")
    exact = TreeLimits(entries=4, total_bytes=10, depth=2, name_bytes=3, path_bytes=10)
    assert len(_paths(tmp_path, exact)) == 4
    (tmp_path / "three").mkdir()
    assert _refused(tmp_path, limits).refusal is refusal


def test_a_sparse_file_weighs_what_it_claims(tmp_path: Path) -> None:
    """H07: a sparse file counts with its apparent size."""
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(20 * 1024**3)
    assert _refused(tmp_path).refusal is TreeRefusal.TOO_LARGE


def test_a_link_is_refused_where_links_are(tmp_path: Path) -> None:
    """If the rules allow no links, even a link to a path inside the tree is refused."""
    (tmp_path / "link").symlink_to("file")
    assert _refused(tmp_path, rules=TreeRules()).offenders == ("link: is a link",)


def test_a_device_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    """H05: a device node is recognized by its status and refused. Opening a device can have side effects."""
    if os.getuid() != 0:
        pytest.skip("only root makes device nodes")
    os.mknod(tmp_path / "console", stat.S_IFCHR | 0o666, os.makedev(5, 1))
    assert _refused(tmp_path).offenders == ("console: is a character device",)


def test_a_root_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """H12: a walk whose root is a link is refused. A root that does not exist is reported as missing."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert _refused(tmp_path / "link").refusal is TreeRefusal.UNSAFE
    assert _refused(tmp_path / "absent").refusal is TreeRefusal.MISSING


@pytest.mark.parametrize("mode", [0o000, 0o100, 0o400, 0o077])
def test_who_walks_makes_no_difference(mode: int) -> None:
    """H11: a directory is refused if its mode does not let its owner both read and enter it.

    This holds for root as well as for an ordinary user.
    """
    with open_directory() as root:

        def close_and_walk() -> None:
            (root / "closed").mkdir(exist_ok=True)
            (root / "closed").chmod(mode)
            assert _refused(root).offenders == ("closed: is not readable by its owner",)

        as_ordinary_user(close_and_walk)
        close_and_walk()
        (root / "closed").chmod(0o700)


def test_a_file_that_grows_or_shrinks_is_refused(tmp_path: Path) -> None:
    """Reading a file fails if its size has changed since its entry was created."""
    for size in (4, 6):
        (tmp_path / "file").write_bytes(bytes(size))
        status = (tmp_path / "file").stat()
        (tmp_path / "file").write_bytes(b"12345")
        descriptor = os.open(tmp_path / "file", os.O_RDONLY)
        entry = TreeEntry(path=b"file", kind=EntryKind.FILE, status=status, descriptor=descriptor)
        with pytest.raises(TreeRefusedError, match="changed while it was read"):
            list(entry.chunks())
        os.close(descriptor)


class TestWalkAt:
    """Tests of ``walk_at``, which walks one file or directory of a tree."""

    def test_a_file_is_one_entry(self, tmp_path: Path) -> None:
        """For the path of a file, the only entry is that file, and its path is its last name."""
        (tmp_path / "a/b").mkdir(parents=True)
        (tmp_path / "a/b/file").write_text("content")
        (entry,) = walk_at(tmp_path, "a/b/file")
        assert (entry.path, entry.size) == (b"file", 7)

    def test_a_directory_comes_with_what_is_in_it(self, tmp_path: Path) -> None:
        """For the path of a directory, the first entry is the directory, and its content follows."""
        (tmp_path / "a/b/c").mkdir(parents=True)
        assert [entry.path for entry in walk_at(tmp_path, "a/b")] == [b"b", b"b/c"]

    @pytest.mark.parametrize("path", ["link/file", "real/link", "link"])
    def test_no_link_is_followed(self, tmp_path: Path, path: str) -> None:
        """A link is refused, whether it is a parent or the last component of the path."""
        (tmp_path / "real").mkdir()
        (tmp_path / "real/file").write_text("content")
        (tmp_path / "real/link").symlink_to("file")
        (tmp_path / "link").symlink_to("real")
        with pytest.raises(TreeRefusedError) as refused:
            list(walk_at(tmp_path, path))
        assert refused.value.refusal is TreeRefusal.UNSAFE

    @pytest.mark.parametrize("path", ["absent", "absent/file", "real/absent"])
    def test_what_is_not_there_is_missing(self, tmp_path: Path, path: str) -> None:
        """A path of which any component does not exist is reported as missing, not as unsafe."""
        (tmp_path / "real").mkdir()
        with pytest.raises(TreeRefusedError) as refused:
            list(walk_at(tmp_path, path))
        assert refused.value.refusal is TreeRefusal.MISSING


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"plain.txt", "plain.txt"),
        (b"a\nb", "a\\nb"),
        (b"\x1b[31mred", "\\x1b[31mred"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("\u202egnp.exe".encode(), "\\u202egnp.exe"),
        ("größe".encode(), "größe"),
        (b"x" * 4000, "x" * 160 + "..."),
    ],
)
def test_names_are_shown_harmless(name: bytes, shown: str) -> None:
    """H09: a name in a message cannot move the cursor, reverse the text direction, break a line or fill a screen."""
    assert printable_name(name) == shown


class TestStatus:
    """Tests of the rules ``STATUS``, with which a walk yields entries of all kinds and opens no file."""

    def test_every_kind_is_yielded(self, tmp_path: Path) -> None:
        """Special files, unreadable files, files with set-id bits and links are yielded without a descriptor."""
        os.mkfifo(tmp_path / "fifo")
        (tmp_path / "closed").touch(0o000)
        (tmp_path / "setuid").touch()
        (tmp_path / "setuid").chmod(0o4755)
        (tmp_path / "link").symlink_to("/nowhere")
        (tmp_path / "directory").mkdir()
        found = {entry.path: entry for entry in walk(tmp_path, UNPACKED, STATUS)}
        assert {path: entry.kind for path, entry in found.items()} == {
            b"fifo": EntryKind.SPECIAL,
            b"closed": EntryKind.FILE,
            b"setuid": EntryKind.FILE,
            b"link": EntryKind.LINK,
            b"directory": EntryKind.DIRECTORY,
        }
        assert found[b"link"].target == b"/nowhere"
        assert stat.S_IMODE(found[b"setuid"].status.st_mode) == 0o4755
        assert {entry.descriptor for entry in found.values()} == {-1}

    def test_its_limits_hold(self, tmp_path: Path) -> None:
        """With ``STATUS``, the limits of entries and depth still apply."""
        (tmp_path / "a/b/c").mkdir(parents=True)
        assert _refused(tmp_path, TreeLimits(entries=2), STATUS).refusal is TreeRefusal.TOO_LARGE
        assert _refused(tmp_path, TreeLimits(depth=2), STATUS).refusal is TreeRefusal.UNSAFE
        assert len(list(walk(tmp_path, TreeLimits(entries=3, depth=3), STATUS))) == 3
