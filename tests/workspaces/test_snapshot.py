"""Snapshots are equal for equal trees, contain only plain data, and take bounded time for every tree."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bounds import processor_seconds
from securebench.fs.safe_open import TreeRefusal, TreeRefusedError
from securebench.testing.attacks import trees
from securebench.workspaces.snapshot import Snapshot, read_file, snapshot_tree
from workspaces.users import as_ordinary_user, open_directory

if TYPE_CHECKING:
    from securebench.fs.walk import TreeLimits

MAX_SECONDS = 10.0


def _snapshot(root: Path, limits: TreeLimits | None = None) -> tuple[Snapshot, bytes]:
    output = io.BytesIO()
    return snapshot_tree(root, output, limits), output.getvalue()


def _outcome(root: Path) -> str:
    """Return the outcome of a snapshot of the tree. The archive is discarded, because it can be a gigabyte."""
    try:
        with Path(os.devnull).open("wb") as output:
            snapshot_tree(root, output)
    except TreeRefusedError as refused:
        return refused.refusal.value if refused.offenders else "refused without a word"
    return trees.SEALED


def _members(data: bytes) -> dict[bytes, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape") as archive:
        return {member.name.encode("utf-8", "surrogateescape"): member for member in archive.getmembers()}


@pytest.mark.usefixtures("no_tools")
@pytest.mark.parametrize("name", trees.TRAPS)
def test_every_trap_ends_in_its_outcome(workspace: Path, host_canary: Path, name: str) -> None:
    """H01, H02, H04 to H09, H11, H17, G01 to G16: each trap has its expected outcome in bounded time."""
    trap = trees.TRAPS[name]
    trap.build(workspace)
    with processor_seconds(MAX_SECONDS, with_kernel=name != "sparse_files"):
        assert _outcome(workspace) == trap.outcome


@pytest.mark.parametrize("name", [name for name, trap in trees.TRAPS.items() if trap.entry in {"H01", "H05", "H11"}])
def test_an_ordinary_user_sees_the_same_outcome(name: str) -> None:
    """H11: traps have the same outcome if an ordinary user runs SecureBench."""
    trap = trees.TRAPS[name]
    with open_directory() as root:

        def seal() -> None:
            trap.build(root)
            assert _outcome(root) == trap.outcome

        as_ordinary_user(seal)


def test_the_archive_depends_on_names_contents_links_and_modes_alone(tmp_path: Path) -> None:
    """Times, set-id bits, the order of creation and the mode of the top directory do not change the archive."""
    for number, names in enumerate((("a", "b"), ("b", "a"))):
        root = tmp_path / str(number)
        root.mkdir(mode=0o700 + number)
        for name in names:
            (root / name).write_text(f"content of {name}")
            (root / name).chmod(0o755 + 0o6000 * number)
            os.utime(root / name, (number, number))
        (root / "link").symlink_to("a")
    first, second = (_snapshot(tmp_path / str(number)) for number in (0, 1))
    assert first == second


def test_the_format_does_not_drift(tmp_path: Path) -> None:
    """A digest is the same on every machine and in every release: records of old runs must stay comparable."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory/file").write_text("content\n")
    (tmp_path / "directory/program").write_text("#!/bin/sh\n")
    (tmp_path / "directory/program").chmod(0o755)
    (tmp_path / "link").symlink_to("directory/file")
    (tmp_path / ("n" * 200)).write_bytes(b"")
    snapshot, data = _snapshot(tmp_path)
    assert (snapshot.size, snapshot.entries) == (len(data), 5)
    assert snapshot.digest == hashlib.sha256(data).hexdigest()
    assert snapshot.digest == "28b2e351690978ed37afc13db7ea395de3ac1b299ef5741161961393fad552e2"


def test_modes_survive_and_attributes_do_not(tmp_path: Path) -> None:
    """H06, H17: a member has its mode without set-id bits, user and group 0, time 0, and no extended attributes."""
    (tmp_path / "file").write_text("content")
    (tmp_path / "file").chmod(0o600)
    os.setxattr(tmp_path / "file", "user.secret", b"value")
    (tmp_path / "program").write_text("content")
    (tmp_path / "program").chmod(0o6711)
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory").chmod(0o3570)
    _, data = _snapshot(tmp_path)
    modes = {name: member.mode for name, member in _members(data).items()}
    assert modes == {b"file": 0o600, b"program": 0o711, b"directory": 0o1570}
    assert all((member.uid, member.gid, member.mtime) == (0, 0, 0) for member in _members(data).values())
    assert b"user.secret" not in data


def test_odd_names_survive_as_bytes(workspace: Path) -> None:
    """H09, A21: names are bytes, and are stored unchanged in the archive."""
    trees.TRAPS["odd_names"].build(workspace)
    _, data = _snapshot(workspace)
    assert set(_members(data)) == set(trees.ODD_NAMES)


def test_links_are_data(workspace: Path) -> None:
    """H02: a loop of links is stored as links with their targets, and is not followed."""
    trees.TRAPS["link_loops"].build(workspace)
    _, data = _snapshot(workspace)
    links = {name: member.linkname for name, member in _members(data).items() if member.issym()}
    assert links == {b"self": "self", b"left": "right", b"right": "left", b"sub/here": ".."}


def test_a_hard_link_is_a_copy(workspace: Path) -> None:
    """H04: two names of one file are stored as two files."""
    trees.TRAPS["hard_links"].build(workspace)
    _, data = _snapshot(workspace)
    members = {name: (member.isfile(), member.size) for name, member in _members(data).items()}
    assert members == {b"one": (True, 7), b"two": (True, 7)}


def test_an_archive_in_a_workspace_is_just_a_file(workspace: Path) -> None:
    """H13, H14: an archive in a workspace is stored as one file and is not unpacked."""
    with tarfile.open(workspace / "evil.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("../../escaped"))
    _, data = _snapshot(workspace)
    assert list(_members(data)) == [b"evil.tar"]


class TestReadFile:
    """Reading one file of a workspace."""

    def test_it_returns_the_bytes(self, workspace: Path) -> None:
        """The content of a file in a subdirectory is returned unchanged."""
        (workspace / "out").mkdir()
        (workspace / "out/answer.txt").write_bytes(b"\x00answer\xff")
        assert read_file(workspace, "out/answer.txt", 100) == b"\x00answer\xff"

    def test_the_limit_is_exact(self, workspace: Path) -> None:
        """A file of exactly the limit is read, and a file that is one byte larger is refused."""
        (workspace / "answer").write_bytes(b"12345")
        assert read_file(workspace, "answer", 5) == b"12345"
        with pytest.raises(TreeRefusedError) as refused:
            read_file(workspace, "answer", 4)
        assert refused.value.refusal is TreeRefusal.TOO_LARGE

    @pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "directory", "locked", "set-id", "sparse", "absent"])
    def test_what_is_no_plain_file_is_refused_at_once(self, workspace: Path, host_canary: Path, kind: str) -> None:
        """H01, H05, H06, H07, H11: a trap in place of the answer is refused, without blocking or following a link."""
        _set_answer_trap(workspace / "answer", kind, host_canary)
        expected = {"absent": TreeRefusal.MISSING, "sparse": TreeRefusal.TOO_LARGE}.get(kind, TreeRefusal.UNSAFE)
        with processor_seconds(1), pytest.raises(TreeRefusedError) as refused:
            read_file(workspace, "answer", 1000)
        assert refused.value.refusal is expected

    def test_a_directory_that_is_a_link_is_not_followed(self, workspace: Path, host_canary: Path) -> None:
        """H02: a path is refused if one of its directories is a link."""
        (workspace / "out").symlink_to(host_canary.parent)
        with pytest.raises(TreeRefusedError, match="out: is not a directory, or has a link in its path"):
            read_file(workspace, f"out/{host_canary.name}", 1000)


def _set_answer_trap(answer: Path, kind: str, canary: Path) -> None:
    if kind == "link":
        answer.symlink_to(canary)
    elif kind == "dangling":
        answer.symlink_to("nowhere")
    elif kind == "fifo":
        os.mkfifo(answer)
    elif kind == "directory":
        answer.mkdir()
    elif kind != "absent":
        answer.write_text("content")
        answer.chmod({"locked": 0, "set-id": 0o4755}.get(kind, 0o644))
    if kind == "sparse":
        os.truncate(answer, 20 * 1024**3)
