"""The walk yields plain entries in one order, refuses everything else, and is bounded in every direction."""

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
    """A walk yields parents before children, and names in byte order, whatever order the file system has."""
    for name in ("b", "a", "Z"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    assert _paths(tmp_path) == [b"Z", b"Z/file", b"a", b"a/file", b"b", b"b/file"]


def test_an_entry_says_what_it_is(tmp_path: Path) -> None:
    """An entry has its kind, size, executable bit and target, and a file its content."""
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
    """No descriptor stays open after a walk that ended, was refused, or was left half-way."""
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
    """Every offender of a tree is named, and what stands beside them is still looked at."""
    os.mkfifo(tmp_path / "a-pipe")
    (tmp_path / "b").write_text("content")
    (tmp_path / "c").symlink_to("/etc/passwd")
    refused = _refused(tmp_path)
    assert refused.refusal is TreeRefusal.UNSAFE
    assert refused.offenders == ("a-pipe: is a FIFO", "c: is a link")


def test_the_list_of_offenders_is_bounded(tmp_path: Path) -> None:
    """A walk over thousands of offenders stops after the first few."""
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
    """H08: a tree at its limits is walked; one more of anything is refused."""
    (tmp_path / "one/two").mkdir(parents=True)
    (tmp_path / "one/two/ab").write_bytes(b"12345")
    (tmp_path / "one/two/c").write_bytes(b"12345")
    exact = TreeLimits(entries=4, total_bytes=10, depth=2, name_bytes=3, path_bytes=10)
    assert len(_paths(tmp_path, exact)) == 4
    (tmp_path / "three").mkdir()
    assert _refused(tmp_path, limits).refusal is refusal


def test_a_sparse_file_weighs_what_it_claims(tmp_path: Path) -> None:
    """H07: apparent sizes count, and are refused before a byte is read."""
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(20 * 1024**3)
    assert _refused(tmp_path).refusal is TreeRefusal.TOO_LARGE


def test_a_link_is_refused_where_links_are(tmp_path: Path) -> None:
    """Without links, one that leads nowhere bad is refused too."""
    (tmp_path / "link").symlink_to("file")
    assert _refused(tmp_path, rules=TreeRules()).offenders == ("link: is a link",)


def test_a_device_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    """H05: a device node is told from a file by its status alone: opening one can do things."""
    if os.getuid() != 0:
        pytest.skip("only root makes device nodes")
    os.mknod(tmp_path / "console", stat.S_IFCHR | 0o666, os.makedev(5, 1))
    assert _refused(tmp_path).offenders == ("console: is a character device",)


def test_a_root_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """H12: a walk does not begin at a link, wherever it leads."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert _refused(tmp_path / "link").refusal is TreeRefusal.UNSAFE
    assert _refused(tmp_path / "absent").refusal is TreeRefusal.MISSING


@pytest.mark.parametrize("mode", [0o000, 0o100, 0o400, 0o077])
def test_who_walks_makes_no_difference(mode: int) -> None:
    """H11: a directory closed to its owner is refused, for root as for an ordinary user."""
    with open_directory() as root:

        def close_and_walk() -> None:
            (root / "closed").mkdir(exist_ok=True)
            (root / "closed").chmod(mode)
            assert _refused(root).offenders == ("closed: may not be read by its owner",)

        as_ordinary_user(close_and_walk)
        close_and_walk()
        (root / "closed").chmod(0o700)


def test_a_file_that_grows_or_shrinks_is_refused(tmp_path: Path) -> None:
    """A file gives exactly the bytes that it said it had, or none of its reading counts."""
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
    """One file or directory of a tree."""

    def test_a_file_is_one_entry(self, tmp_path: Path) -> None:
        """A file below two directories is the only entry, under its last name."""
        (tmp_path / "a/b").mkdir(parents=True)
        (tmp_path / "a/b/file").write_text("content")
        (entry,) = walk_at(tmp_path, "a/b/file")
        assert (entry.path, entry.size) == (b"file", 7)

    def test_a_directory_comes_with_what_is_in_it(self, tmp_path: Path) -> None:
        """A directory is walked from itself on."""
        (tmp_path / "a/b/c").mkdir(parents=True)
        assert [entry.path for entry in walk_at(tmp_path, "a/b")] == [b"b", b"b/c"]

    @pytest.mark.parametrize("path", ["link/file", "real/link", "link"])
    def test_no_link_is_followed(self, tmp_path: Path, path: str) -> None:
        """A link is refused on the way and at the end."""
        (tmp_path / "real").mkdir()
        (tmp_path / "real/file").write_text("content")
        (tmp_path / "real/link").symlink_to("file")
        (tmp_path / "link").symlink_to("real")
        with pytest.raises(TreeRefusedError) as refused:
            list(walk_at(tmp_path, path))
        assert refused.value.refusal is TreeRefusal.UNSAFE

    @pytest.mark.parametrize("path", ["absent", "absent/file", "real/absent"])
    def test_what_is_not_there_is_missing(self, tmp_path: Path, path: str) -> None:
        """A path of which any part is absent is missing, not unsafe."""
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
    """H09: a name in a message cannot move a cursor, turn text round, break a line or fill a screen."""
    assert printable_name(name) == shown


class TestStatus:
    """A walk over everything, whatever it is, that opens no file."""

    def test_every_kind_is_yielded(self, tmp_path: Path) -> None:
        """Special files, closed files and set-id bits are for the caller to judge."""
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
        """Of entries and of depth."""
        (tmp_path / "a/b/c").mkdir(parents=True)
        assert _refused(tmp_path, TreeLimits(entries=2), STATUS).refusal is TreeRefusal.TOO_LARGE
        assert _refused(tmp_path, TreeLimits(depth=2), STATUS).refusal is TreeRefusal.UNSAFE
        assert len(list(walk(tmp_path, TreeLimits(entries=3, depth=3), STATUS))) == 3
