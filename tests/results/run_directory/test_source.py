"""The file of a run directory that records where the pack of the run is. Only its owner can read it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from securebench.errors import ConfigError
from securebench.results.run_directory.source import SOURCE_FILE, PackSource, read_source
from securebench.tester_config import BenchmarkPaths


def test_paths_come_back_as_they_were(tmp_path: Path) -> None:
    """A path with any bytes is read back unchanged, and only the owner can read the file."""
    odd = Path(os.fsdecode(b"/packs/\xff \n\xc3\xa9"))
    source = PackSource.of(BenchmarkPaths(odd / "manifest.yaml", odd / "tasks.jsonl"))
    source.write(tmp_path)
    assert read_source(tmp_path) == source
    assert stat.S_IMODE((tmp_path / SOURCE_FILE).stat().st_mode) == 0o600


def test_relative_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths of a pack are made absolute: a later command may have another working directory."""
    monkeypatch.chdir(tmp_path)
    source = PackSource.of(BenchmarkPaths(Path("pack/manifest.yaml"), Path("pack/tasks.jsonl")))
    assert (source.manifest, source.tasks) == (tmp_path / "pack/manifest.yaml", tmp_path / "pack/tasks.jsonl")


def test_a_run_of_somebody_else_has_none(tmp_path: Path) -> None:
    """A run directory without the file has no source. Published runs lack the file."""
    assert read_source(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff",
        b"{}",
        json.dumps({"manifest": "/a", "tasks": "b"}).encode(),
        json.dumps({"manifest": "/a", "tasks": 1}).encode(),
        b"[" * 100_000,
    ],
)
def test_other_content_is_an_error(content: bytes, tmp_path: Path) -> None:
    """Invalid content is an error that names the option to use instead."""
    (tmp_path / SOURCE_FILE).write_bytes(content)
    with pytest.raises(ConfigError, match="does not say where the pack is") as caught:
        read_source(tmp_path)
    assert caught.value.code == "source-damaged"
    assert "--pack" in str(caught.value)


def test_something_that_is_no_file_is_an_error(tmp_path: Path) -> None:
    """A FIFO in place of the file is refused: reading it would block for ever."""
    os.mkfifo(tmp_path / SOURCE_FILE)
    with pytest.raises(ConfigError) as caught:
        read_source(tmp_path)
    assert caught.value.code == "file-not-regular"
