"""Append-only logs keep all whole lines, even if the process is killed or the disk fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fault_hooks import hooked
from securebench.errors import StorageError
from securebench.faults import FaultPoint
from securebench.fs.append_log import AppendLog

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize("tail", [b"t", b"torn", b"\0" * 3 * 1024**2, b"\0\0rest\n", b"\0" * 2 * 1024**2 + b"\n"])
@pytest.mark.parametrize("whole", [b"", b"one\n", b"one\n" + b"x" * 2 * 1024**2 + b"\n"])
def test_a_torn_tail_is_kept_aside(tmp_path: Path, whole: bytes, tail: bytes) -> None:
    """A torn tail is moved to a new file. The lines before it stay, and the next line is not joined to it.

    A torn tail is what an interrupted write left: an unfinished line, or NUL bytes.
    """
    path = tmp_path / "log"
    path.write_bytes(whole)
    for number in (1, 2):
        with path.open("ab") as file:
            file.write(tail)
        with AppendLog(path) as log:
            assert log.size == len(whole)
        assert path.read_bytes() == whole
        assert (tmp_path / f"log.torn-{number}").read_bytes() == tail
    with AppendLog(path) as log:
        assert log.append(b"next\n")
    assert path.read_bytes() == whole + b"next\n"
    assert len(list(tmp_path.iterdir())) == 3


def test_a_whole_line_without_its_newline_gets_one(tmp_path: Path) -> None:
    """If the caller's ``is_whole`` accepts the last line, only its newline is added."""
    (tmp_path / "log").write_bytes(b"one\ntwo")
    with AppendLog(tmp_path / "log", is_whole=lambda line: line == b"two") as log:
        assert log.size == len(b"one\ntwo\n")
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_link_with_a_torn_name_is_not_followed(tmp_path: Path, host_canary: Path) -> None:
    """If ``log.torn-1`` is a dangling link, the torn tail goes to ``log.torn-2``."""
    (tmp_path / "log").write_bytes(b"torn")
    (tmp_path / "log.torn-1").symlink_to(host_canary.with_name("new"))
    AppendLog(tmp_path / "log").close()
    assert (tmp_path / "log.torn-2").read_bytes() == b"torn"
    assert not host_canary.with_name("new").exists()


def test_the_limit_counts_lines_of_earlier_runs(tmp_path: Path) -> None:
    """Lines of earlier runs count. A line that does not fit is not written, but a shorter one may still fit."""
    with AppendLog(tmp_path / "log", limit=10) as log:
        assert log.append(b"12345\n")
    with AppendLog(tmp_path / "log", limit=10) as log:
        assert not log.append(b"12345\n")
        assert log.append(b"123\n")
        assert not log.append(b"\n")
    assert (tmp_path / "log").read_bytes() == b"12345\n123\n"


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("accepted", [None, 0, 3])
def test_a_failed_write_leaves_no_part_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accepted: int | None, *, sync: bool
) -> None:
    """A failed or partial write is a storage error. No part of its line stays, and the next line is whole."""
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        if accepted is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data[:accepted])

    with AppendLog(tmp_path / "log", sync=sync) as log:
        log.append(b"one\n")
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", write)
            with pytest.raises(StorageError, match="log"):
                log.append(b"two\n")
        log.append(b"three\n")
    assert (tmp_path / "log").read_bytes() == b"one\nthree\n"


def test_lines_of_a_killed_process_are_synced_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a log with ``sync`` syncs its existing lines, which may not be on disk yet, and its name."""
    synced: list[str] = []
    (tmp_path / "log").write_bytes(b"one\n")
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
    )
    AppendLog(tmp_path / "log", sync=True).close()
    assert synced == [str(tmp_path / "log"), str(tmp_path)]


def test_a_line_that_cannot_be_synced_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``sync``, a line that cannot be synced is removed, so that every line in the file is on disk."""

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with AppendLog(tmp_path / "log", sync=True) as log:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(StorageError):
                log.append(b"one\n")
        assert log.size == 0
    assert (tmp_path / "log").read_bytes() == b""


def test_rewriting_replaces_all_lines_and_appending_continues(tmp_path: Path) -> None:
    """``rewrite`` replaces the file, so an open reader still sees the old lines. The next line follows the new ones."""
    path = tmp_path / "log"
    with AppendLog(path) as log:
        log.append(b"one\n")
        with path.open("rb") as reader:
            log.rewrite([b"two\n", b"three\n"])
            assert reader.read() == b"one\n"
        log.append(b"four\n")
    assert path.read_bytes() == b"two\nthree\nfour\n"
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_failed_rewrite_leaves_the_old_lines(tmp_path: Path) -> None:
    """If an error occurs while the new lines are produced, the old lines stay."""
    with AppendLog(tmp_path / "log") as log:
        log.append(b"one\n")
        with pytest.raises(StorageError):
            log.rewrite(_failing_lines())
        log.append(b"two\n")
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"


def _failing_lines() -> Iterator[bytes]:
    yield b"new\n"
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("failing", [FaultPoint.FILE_WRITE, FaultPoint.FILE_SYNC, FaultPoint.FILE_RENAME])
def test_a_failed_rewrite_leaves_no_other_file(tmp_path: Path, failing: FaultPoint) -> None:
    """If writing, syncing or renaming fails, the new file is removed, and appending continues after the old lines."""

    def fail(point: FaultPoint, _subject: str) -> None:
        if point is failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "log"
    with AppendLog(path, sync=True) as log:
        log.append(b"one\n")
        with hooked(fail), pytest.raises(StorageError):
            log.rewrite([b"other\n"])
        log.append(b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_never_opened(tmp_path: Path) -> None:
    """Opening a log whose path is a symbolic link is an error, and the target is not created."""
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError):
        AppendLog(tmp_path / "log")
    assert not (tmp_path / "elsewhere").exists()
