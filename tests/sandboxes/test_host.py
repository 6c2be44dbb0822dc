"""Staging on the host: nothing is written, read or removed outside the root, whatever lies inside it."""

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
    """Give a sandbox on an empty root."""
    root = tmp_path / "root"
    root.mkdir()
    with HostSandbox(root) as host:
        yield host


def test_what_is_written_can_be_read(sandbox: HostSandbox) -> None:
    """A written file is there with its content, its mode, and the directories above it."""
    sandbox.write("a/b/c.txt", b"content", mode=0o640)
    assert sandbox.read("a/b/c.txt") == b"content"
    assert (sandbox.root / "a/b/c.txt").stat().st_mode & 0o7777 == 0o640


def test_nothing_is_overwritten(sandbox: HostSandbox) -> None:
    """Writing where a file is already raises, and leaves it (A13)."""
    sandbox.write("a", b"first")
    with pytest.raises(FileExistsError):
        sandbox.write("a", b"second")
    assert sandbox.read("a") == b"first"


def test_set_id_bits_are_dropped(sandbox: HostSandbox) -> None:
    """No staged file is set-id, whatever mode is asked for (H06)."""
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
    """A link, FIFO or directory is refused as a source, at once (H01, H05)."""
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
    """A path that is absolute, climbs, is empty or is no plain text is refused by every method."""
    with pytest.raises(PathPolicyError):
        operation(sandbox, path)


@pytest.mark.parametrize("name", ["write", "read"])
def test_a_link_at_the_end_is_not_followed(sandbox: HostSandbox, host_canary: Path, name: str) -> None:
    """A file that is a link is neither read nor written through (H01)."""
    (sandbox.root / "link").symlink_to(host_canary)
    with pytest.raises((PathPolicyError, FileExistsError)):
        OPERATIONS[name](sandbox, "link")


@every_operation
def test_a_link_on_the_way_is_not_followed(
    sandbox: HostSandbox, operation: Callable[[HostSandbox, str], object], host_canary: Path
) -> None:
    """A directory that is a link is not walked through, also when it points inside the root (H02)."""
    (sandbox.root / "out").symlink_to(host_canary.parent)
    (sandbox.root / "real").mkdir()
    (sandbox.root / "in").symlink_to("real")
    for directory in ("out", "in"):
        with pytest.raises(PathPolicyError):
            operation(sandbox, f"{directory}/canary.txt")


def test_removing_a_link_leaves_its_target(sandbox: HostSandbox, host_canary: Path) -> None:
    """Removing a link removes the link."""
    (sandbox.root / "link").symlink_to(host_canary)
    with pytest.raises(PathPolicyError):
        sandbox.remove("link")


def test_a_fifo_blocks_nobody(sandbox: HostSandbox) -> None:
    """Reading a FIFO is refused at once (H05)."""
    os.mkfifo(sandbox.root / "fifo")
    with pytest.raises(PathPolicyError):
        sandbox.read("fifo")


def test_reading_is_bounded(sandbox: HostSandbox) -> None:
    """A file beyond the limit is refused; one at the limit is read."""
    sandbox.write("a", b"12345")
    assert sandbox.read("a", limit=5) == b"12345"
    with pytest.raises(PathPolicyError, match="larger than 4 bytes"):
        sandbox.read("a", limit=4)


def test_removing_and_looking(sandbox: HostSandbox) -> None:
    """Files and empty directories can be removed, and are not there afterwards."""
    sandbox.write("a/b", b"")
    assert sandbox.exists("a/b")
    with pytest.raises(OSError, match="not empty"):
        sandbox.remove("a")
    sandbox.remove("a/b")
    sandbox.remove("a")
    assert not sandbox.exists("a/b")


def test_a_directory_that_is_there_stays(sandbox: HostSandbox) -> None:
    """Making a directory again changes nothing in it."""
    sandbox.write("a/b", b"kept")
    sandbox.make_directory("a")
    assert sandbox.read("a/b") == b"kept"


def test_a_root_that_moved_is_still_the_root(tmp_path: Path, host_canary: Path) -> None:
    """A root that is replaced by a link after it was opened does not lead operations elsewhere (H12)."""
    root = tmp_path / "root"
    root.mkdir()
    with HostSandbox(root) as sandbox:
        root.rename(tmp_path / "moved")
        root.symlink_to(host_canary.parent)
        with pytest.raises(OSError, match="canary"):
            sandbox.remove("canary.txt")


def test_closing_twice_is_harmless(sandbox: HostSandbox) -> None:
    """Closing again does nothing."""
    sandbox.close()
    sandbox.close()


@given(st.text(max_size=40))
def test_a_resolved_path_lies_in_the_root(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    """Whatever the text, a host path is refused or lies below the root."""
    root = tmp_path_factory.getbasetemp()
    try:
        resolved = resolve_sandbox_host_path(root, path)
    except PathPolicyError:
        return
    assert resolved.resolve().is_relative_to(root.resolve())
