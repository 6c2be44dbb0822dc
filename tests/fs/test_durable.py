"""Files are written whole and synced, and disk errors become storage errors."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from securebench.errors import StorageError
from securebench.fs import durable
from securebench.fs.durable import (
    discard,
    make_directories,
    storage_errors,
    sync_name,
    temporary_name,
    write_durably,
    write_whole,
)


def test_replaces_as_a_whole(tmp_path: Path) -> None:
    """A second write replaces the content of a file and leaves no temporary file."""
    path = tmp_path / "run.json"
    write_durably(path, b"one")
    write_durably(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the new content cannot be synced, the file keeps its old content (L07)."""
    path = tmp_path / "run.json"
    write_durably(path, b"one")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match="No space left on device"):
        write_durably(path, b"two")
    assert path.read_bytes() == b"one"


def test_synced_before_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is synced before the file is renamed, and the directory after that."""
    calls: list[str] = []
    real = Path.replace

    def replace(source: Path, target: Path) -> Path:
        calls.append("replace")
        return real(source, target)

    monkeypatch.setattr(os, "fsync", lambda _: calls.append("fsync"))
    monkeypatch.setattr(Path, "replace", replace)
    write_durably(tmp_path / "x", b"")
    assert calls == ["fsync", "replace", "fsync"]


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    """A storage error names the file and says how to continue."""
    with pytest.raises(StorageError) as caught, storage_errors(tmp_path / "file"):
        (tmp_path / "missing" / "file").write_bytes(b"")
    assert str(tmp_path / "file") in str(caught.value)
    assert "--resume" in str(caught.value)
    assert caught.value.code == "storage-failed"


def test_a_read_error_is_not_reported_as_a_write_error(tmp_path: Path) -> None:
    """The message and the hint of a storage error mention reading and writing, because either may have failed."""
    path = tmp_path / "file"
    with pytest.raises(StorageError, match=f"cannot read or write {path}: Perm") as caught, storage_errors(path):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    assert caught.value.hint.startswith("give this user read and write permission")


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_failure_leaves_nothing_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A failed write leaves no temporary file, not even one that a killed process had left before."""
    path = tmp_path / "file"
    temporary_name(path).write_bytes(b"left by a killed process")
    if call == "fsync":
        monkeypatch.setattr(os, "fsync", _failing)
    else:
        monkeypatch.setattr(Path, "replace", _failing)
    with pytest.raises(OSError, match="Input/output"):
        write_whole(path, b"new")
    assert not list(tmp_path.iterdir())


def test_a_new_file_has_the_mode_that_was_asked_for(tmp_path: Path) -> None:
    """A new file gets the given mode, even if a killed process left a temporary file with another mode."""
    path = tmp_path / "key"
    temporary_name(path).write_bytes(b"")
    temporary_name(path).chmod(0o644)
    write_whole(path, b"secret", mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600


def test_discarding_removes_the_file_and_what_was_begun(tmp_path: Path) -> None:
    """``discard`` removes a file and its temporary file. It is no error if they do not exist."""
    path = tmp_path / "file"
    path.write_bytes(b"")
    temporary_name(path).write_bytes(b"")
    discard(path)
    assert not list(tmp_path.iterdir())
    discard(path)


def test_new_directories_are_synced_from_the_top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of new directories are synced, parents first. Existing directories are not changed."""
    synced: list[Path] = []
    monkeypatch.setattr(durable, "sync_directory", synced.append)
    make_directories(tmp_path / "a/b/c", 0o700)
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a/b"]
    assert [(tmp_path / path).stat().st_mode & 0o777 for path in ("a", "a/b", "a/b/c")] == [0o755, 0o755, 0o700]
    make_directories(tmp_path / "a/b/c", 0o755)
    assert len(synced) == 3
    assert (tmp_path / "a/b/c").stat().st_mode & 0o777 == 0o700


def test_a_directory_behind_a_link(tmp_path: Path) -> None:
    """Directories and files can be created below a link to a directory, because a user may name such a link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    make_directories(tmp_path / "link/a/b")
    write_whole(tmp_path / "link/file", b"")
    assert {path.name for path in (tmp_path / "real").iterdir()} == {"a", "file"}


def test_a_directory_that_cannot_be_listed_is_synced_with_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a directory cannot be opened because this user may only write to it, all file systems are synced."""
    calls: list[str] = []

    def refuse(_: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(durable, "sync_directory", refuse)
    monkeypatch.setattr(os, "sync", lambda: calls.append("sync"))
    sync_name(tmp_path / "file")
    assert calls == ["sync"]


def _failing(*_: object) -> None:
    raise OSError(5, "Input/output error")
