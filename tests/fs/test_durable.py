"""Writing so that it stays written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from securebench.errors import StorageError
from securebench.fs.durable import storage_errors, write_durably


def test_replaces_as_a_whole(tmp_path: Path) -> None:
    """A file has its old content or its new one, and nothing is left beside it."""
    path = tmp_path / "run.json"
    write_durably(path, b"one")
    write_durably(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk fails before the new content is safe, the old one is still there (L07)."""
    path = tmp_path / "run.json"
    write_durably(path, b"one")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match="No space left on device"):
        write_durably(path, b"two")
    assert path.read_bytes() == b"one"


def test_synced_before_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is on disk before the name is, and the name after it."""
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
    """A storage error names the file and the way out."""
    with pytest.raises(StorageError) as caught, storage_errors(tmp_path / "file"):
        (tmp_path / "missing" / "file").write_bytes(b"")
    assert str(tmp_path / "file") in str(caught.value)
    assert "--resume" in str(caught.value)
    assert caught.value.code == "storage-failed"
