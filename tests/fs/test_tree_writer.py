"""The tree writer creates files below its root, follows no link, and overwrites nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from securebench.fs.tree_writer import TreeWriter
from workspaces.users import ORDINARY_USER


def test_it_makes_files_and_their_parents(tmp_path: Path) -> None:
    """The writer creates a file with its content and mode, a directory, and their missing parents."""
    with TreeWriter(tmp_path) as writer:
        writer.write_file(b"a/b/file", (b"con", b"tent"), 0o444)
        writer.make_directory(b"a/c")
    assert (tmp_path / "a/b/file").read_bytes() == b"content"
    assert stat.S_IMODE((tmp_path / "a/b/file").stat().st_mode) == 0o444
    assert (tmp_path / "a/c").is_dir()


def test_the_umask_does_not_matter(tmp_path: Path) -> None:
    """Modes do not depend on the tester's umask, so that an agent can read the files that it is given."""
    before = os.umask(0o077)
    try:
        with TreeWriter(tmp_path) as writer:
            writer.write_file(b"a/file", (b"content",), 0o644)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("a", "a/file")]
    assert modes == [0o755, 0o644]


@pytest.mark.parametrize("kind", ["file", "link", "dangling", "directory", "fifo"])
def test_nothing_is_written_over(tmp_path: Path, host_canary: Path, kind: str) -> None:
    """A13: if anything exists at the path, even a dangling link, ``FileExistsError`` is raised.

    An existing file keeps its content.
    """
    place = tmp_path / "place"
    if kind == "file":
        place.write_text("theirs")
    elif kind == "directory":
        place.mkdir()
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        place.symlink_to(host_canary if kind == "link" else host_canary.parent / "new")
    with TreeWriter(tmp_path) as writer, pytest.raises(FileExistsError):
        writer.write_file(b"place", (b"ours",), 0o644)
    if kind == "file":
        assert place.read_text() == "theirs"


def test_a_parent_that_is_a_link_stops_it(tmp_path: Path, host_canary: Path) -> None:
    """A13, H02: the writer refuses to write through a link that took the place of a parent directory."""
    (tmp_path / "directory").symlink_to(host_canary.parent)
    with TreeWriter(tmp_path) as writer, pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        writer.write_file(b"directory/file", (b"ours",), 0o644)


def test_the_owner_gets_what_is_not_kept(tmp_path: Path) -> None:
    """D10: entries with ``keep_owner`` stay ours, so that the agent cannot change their modes. It owns the others."""
    if os.getuid() != 0:
        pytest.skip("only root gives files away")
    with TreeWriter(tmp_path, (ORDINARY_USER, ORDINARY_USER)) as writer:
        writer.write_file(b"a/theirs", (b"content",), 0o644)
        writer.write_file(b"a/ours", (b"content",), 0o444, keep_owner=True)
        writer.make_directory(b"ours", keep_owner=True)
    owners = {path: (tmp_path / path).stat().st_uid for path in ("a", "a/theirs", "a/ours", "ours")}
    assert owners == {"a": ORDINARY_USER, "a/theirs": ORDINARY_USER, "a/ours": 0, "ours": 0}


def test_a_link_is_made_and_not_followed(tmp_path: Path) -> None:
    """A link is created with any target. Nothing is written through it, and it is not replaced."""
    with TreeWriter(tmp_path) as writer:
        writer.make_link(b"a/link", b"../b")
        with pytest.raises(OSError, match=r"link|directory"):
            writer.write_file(b"a/link/file", (b"x",), 0o644)
        with pytest.raises(FileExistsError):
            writer.make_link(b"a/link", b"elsewhere")
    assert (tmp_path / "a/link").readlink() == Path("../b")
    assert not (tmp_path / "b").exists()
