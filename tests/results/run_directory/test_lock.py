"""The lock of a run directory."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from securebench.errors import ConfigError, StorageError
from securebench.results.run_directory.lock import OWNER_FILE, RunLock

HOLD = """
import sys, time
from pathlib import Path
from securebench.results.run_directory.lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_two_processes(tmp_path: Path) -> None:
    """The error for a second process names the owner of the lock, and the lock of a killed owner is released (L11)."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ConfigError) as caught, RunLock(tmp_path):
            pass
        assert caught.value.code == "output-dir-locked"
        assert f"process {holder.pid}" in str(caught.value)
        holder.kill()
    with RunLock(tmp_path):
        assert str(os.getpid()) in (tmp_path / OWNER_FILE).read_text()


def test_one_process_twice(tmp_path: Path) -> None:
    """Two runs in the same process cannot use the same directory (L11)."""
    with RunLock(tmp_path), pytest.raises(ConfigError, match="another process is using"), RunLock(tmp_path):
        pass


def test_a_clean_end_leaves_nothing(tmp_path: Path) -> None:
    """The file that names the owner of the lock is removed when the lock is released."""
    with RunLock(tmp_path):
        assert (tmp_path / OWNER_FILE).exists()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("note", ["", "{}", "[1]", '{"pid": "x", "since": 1}', "\udcff"])
def test_an_unreadable_note(tmp_path: Path, note: str) -> None:
    """A directory stays locked if the file that names the owner has invalid content: the file is only for messages."""
    with RunLock(tmp_path):
        (tmp_path / OWNER_FILE).write_text(note, errors="surrogateescape")
        with pytest.raises(ConfigError, match="process unknown"), RunLock(tmp_path):
            pass


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errno.ENOLCK, ConfigError),
        (errno.EOPNOTSUPP, ConfigError),
        (errno.EBADF, ConfigError),
        (errno.EIO, StorageError),
    ],
)
def test_file_systems_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    """A run does not start if its directory cannot be locked (L22)."""

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(error), RunLock(tmp_path):
        pass


def test_descriptors_are_closed(tmp_path: Path) -> None:
    """Neither a refused lock nor a released lock leaves a file descriptor open."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with RunLock(tmp_path), pytest.raises(ConfigError), RunLock(tmp_path):
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before
