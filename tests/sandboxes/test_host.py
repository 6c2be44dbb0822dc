"""Staging on the host: nothing is written, read or removed outside the root, whatever the root contains."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.errors import PathPolicyError
from securebench.sandboxes.base import resolve_sandbox_host_path
from securebench.sandboxes.host import HostSandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ESCAPES = ["..", "../x", "a/../../x", "/etc/passwd", "a\\b", "nul\0", ""]

OPERATIONS: dict[str, Callable[[HostSandbox, str], object]] = {
    "write": lambda sandbox, path: sandbox.write(path, b"x"),
    "read": lambda sandbox, path: sandbox.read(path),
    "make_directory": lambda sandbox, path: sandbox.make_directory(path),
    "remove": lambda sandbox, path: sandbox.remove(path),
    "exists": lambda sandbox, path: sandbox.exists(path),
}

every_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[HostSandbox]:
    """Yield a sandbox with an empty root."""
    root = tmp_path / "root"
    root.mkdir()
    with HostSandbox(root) as host:
        yield host


def test_what_is_written_can_be_read(sandbox: HostSandbox) -> None:
    """A written file has the given content and mode, and its parent directories are created."""
    sandbox.write("a/b/c.txt", b"content", mode=0o640)
    assert sandbox.read("a/b/c.txt") == b"content"
    assert (sandbox.root / "a/b/c.txt").stat().st_mode & 0o7777 == 0o640


def test_nothing_is_overwritten(sandbox: HostSandbox) -> None:
    """Writing to the path of an existing file raises ``FileExistsError`` and does not change the file (A13)."""
    sandbox.write("a", b"first")
    with pytest.raises(FileExistsError):
        sandbox.write("a", b"second")
    assert sandbox.read("a") == b"first"


def test_set_id_bits_are_dropped(sandbox: HostSandbox) -> None:
    """A staged file has no set-id bits, even if the requested mode contains them (H06)."""
    sandbox.write("a", b"", mode=0o6755)
    assert (sandbox.root / "a").stat().st_mode & 0o7777 == 0o755


def test_copying_takes_the_content(sandbox: HostSandbox, tmp_path: Path) -> None:
    """A copied file has the content of its source."""
    source = tmp_path / "source"
    source.write_bytes(b"x" * 3_000_000)
    sandbox.copy_in(source, "copy")
    assert sandbox.read("copy") == source.read_bytes()


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_only_regular_files_are_copied(sandbox: HostSandbox, tmp_path: Path, host_canary: Path, kind: str) -> None:
    """Copying from a link, FIFO or directory is refused without blocking (H01, H05)."""
    source = tmp_path / "source"
    if kind == "link":
        source.symlink_to(host_canary)
    elif kind == "fifo":
        os.mkfifo(source)
    else:
        source.mkdir()
    with pytest.raises(PathPolicyError):
        sandbox.copy_in(source, "copy")
    assert not sandbox.exists("copy")


@every_operation
@pytest.mark.parametrize("path", ESCAPES)
def test_no_path_escapes(sandbox: HostSandbox, operation: Callable[[HostSandbox, str], object], path: str) -> None:
    """Every method refuses a path that is empty, is absolute, contains ``..``, or has a backslash or NUL."""
    with pytest.raises(PathPolicyError):
        operation(sandbox, path)


@pytest.mark.parametrize("name", ["write", "read"])
def test_a_link_at_the_end_is_not_followed(sandbox: HostSandbox, host_canary: Path, name: str) -> None:
    """Reading and writing are refused if the last component of the path is a link (H01)."""
    (sandbox.root / "link").symlink_to(host_canary)
    with pytest.raises((PathPolicyError, FileExistsError)):
        OPERATIONS[name](sandbox, "link")


@every_operation
def test_a_link_on_the_way_is_not_followed(
    sandbox: HostSandbox, operation: Callable[[HostSandbox, str], object], host_canary: Path
) -> None:
    """Every method refuses a path through a link to a directory, even if that directory is in the root (H02)."""
    (sandbox.root / "out").symlink_to(host_canary.parent)
    (sandbox.root / "real").mkdir()
    (sandbox.root / "in").symlink_to("real")
    for directory in ("out", "in"):
        with pytest.raises(PathPolicyError):
            operation(sandbox, f"{directory}/canary.txt")


def test_removing_a_link_leaves_its_target(sandbox: HostSandbox, host_canary: Path) -> None:
    """Removing a link to a file in the root leaves that file. Removing a link that points outside is refused."""
    sandbox.write("file", b"kept")
    (sandbox.root / "inside").symlink_to("file")
    sandbox.remove("inside")
    assert not sandbox.exists("inside")
    assert sandbox.read("file") == b"kept"
    (sandbox.root / "outside").symlink_to(host_canary)
    with pytest.raises(PathPolicyError):
        sandbox.remove("outside")


def test_a_fifo_blocks_nobody(sandbox: HostSandbox) -> None:
    """Reading a FIFO is refused without blocking (H05)."""
    os.mkfifo(sandbox.root / "fifo")
    with pytest.raises(PathPolicyError):
        sandbox.read("fifo")


def test_reading_is_bounded(sandbox: HostSandbox) -> None:
    """A file that is larger than the limit is refused. A file of exactly that size is read."""
    sandbox.write("a", b"12345")
    assert sandbox.read("a", limit=5) == b"12345"
    with pytest.raises(PathPolicyError, match="larger than 4 bytes"):
        sandbox.read("a", limit=4)


def test_removing_and_looking(sandbox: HostSandbox) -> None:
    """Files and empty directories can be removed. A directory that is not empty cannot."""
    sandbox.write("a/b", b"")
    assert sandbox.exists("a/b")
    with pytest.raises(OSError, match="not empty"):
        sandbox.remove("a")
    sandbox.remove("a/b")
    sandbox.remove("a")
    assert not sandbox.exists("a/b")


def test_a_directory_that_is_there_stays(sandbox: HostSandbox) -> None:
    """Making a directory that already exists does not change its content."""
    sandbox.write("a/b", b"kept")
    sandbox.make_directory("a")
    assert sandbox.read("a/b") == b"kept"


def test_a_root_that_moved_is_still_the_root(tmp_path: Path, host_canary: Path) -> None:
    """If the root is replaced by a link after it was opened, operations do not follow the link (H12)."""
    root = tmp_path / "root"
    root.mkdir()
    with HostSandbox(root) as sandbox:
        root.rename(tmp_path / "moved")
        root.symlink_to(host_canary.parent)
        with pytest.raises(OSError, match="canary"):
            sandbox.remove("canary.txt")


def test_closing_twice_is_harmless(sandbox: HostSandbox) -> None:
    """Closing a sandbox twice raises no error."""
    sandbox.close()
    sandbox.close()


@given(st.text(max_size=40))
def test_a_resolved_path_lies_in_the_root(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    """Any text is either refused as a path or resolved to a path in the root."""
    root = tmp_path_factory.getbasetemp()
    try:
        resolved = resolve_sandbox_host_path(root, path)
    except PathPolicyError:
        return
    assert resolved.resolve().is_relative_to(root.resolve())
