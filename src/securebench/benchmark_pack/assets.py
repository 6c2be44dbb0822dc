"""The files that rows reference: opened once, without following symlinks, and hashed from the open descriptor."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError
from securebench.limits import MIB
from securebench.pack_paths import MAX_PATH_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_ASSET_FILES: Final = 10_000
"""Files below one referenced directory. Source trees have fewer, and each file is copied for each task."""

MAX_ASSET_BYTES: Final = 256 * MIB
"""Bytes of one reference, and of all files of a task. They are copied for each task; put larger data in the image."""

_CHUNK = 1024 * 1024
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def digest_asset(directory: Path, path: str) -> str:
    """Return the sha256 (hex) of the file or directory at ``path`` (POSIX, relative) below ``directory``.

    A directory's digest covers the names, kinds, executable bits and contents of everything below it. Raises
    :class:`ConfigError` for missing files, symlinks (also in a parent), hard links, special files, and too much
    data.
    """
    digest = hashlib.sha256()
    budget = _Budget()
    with _opened(directory, path) as descriptor:
        for line in _entries(descriptor, path, budget):
            digest.update(line.encode("utf-8"))
    return digest.hexdigest()


class AssetDigest:
    """Computes the digest of :func:`digest_asset` for a file or directory that is read elsewhere.

    ``path`` is its path in the pack.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lines: dict[tuple[str, ...], str] = {}

    def directory(self, below: str = "") -> None:
        """Add the directory itself, or its subdirectory ``below``."""
        path = self._at(below)
        self._lines[tuple(path.split("/"))] = _directory_line(path)

    def file(self, content_digest: str, *, executable: bool, below: str = "") -> None:
        """Add the file itself, or the file ``below`` in the directory."""
        path = self._at(below)
        self._lines[tuple(path.split("/"))] = _file_line(path, content_digest, executable=executable)

    def hexdigest(self) -> str:
        """Return the digest of everything added, in any order."""
        lines = (self._lines[path] for path in sorted(self._lines))
        return hashlib.sha256("".join(lines).encode("utf-8")).hexdigest()

    def _at(self, below: str) -> str:
        return f"{self._path}/{below}" if below else self._path


def _directory_line(path: str) -> str:
    return f"d {path}\0"


def _file_line(path: str, content_digest: str, *, executable: bool) -> str:
    return f"{'x' if executable else 'f'} {path} {content_digest}\0"


class _Budget:
    """The remaining number of files and bytes."""

    def __init__(self) -> None:
        self.files = MAX_ASSET_FILES
        self.bytes = MAX_ASSET_BYTES

    def take(self, path: str, size: int) -> None:
        self.files -= 1
        self.bytes -= size
        if self.files < 0 or self.bytes < 0:
            message = f"{path!r} contains more than {MAX_ASSET_FILES} files or {MAX_ASSET_BYTES} bytes"
            raise ConfigError(message, code="asset-too-large", hint="put large data in the image")


@contextmanager
def _opened(directory: Path, path: str) -> Iterator[int]:
    """Open ``path`` component by component, so that no symlink is followed."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in path.split("/"):
            inner = _open_at(descriptor, name, path)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _open_at(parent: int, name: str, path: str) -> int:
    try:
        return os.open(name, _FLAGS, dir_fd=parent)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"{path!r} does not exist", code="asset-missing") from None
    except OSError as error:
        if _is_link(parent, name):
            message = f"{path!r}: {name!r} is a symbolic link"
            raise ConfigError(message, code="asset-link", hint="copy the file itself into the pack") from None
        message = f"{path!r}: cannot open {name!r}: {error.strerror}"
        raise ConfigError(
            message, code="asset-unreadable", hint="assets must be regular files or directories"
        ) from None


def _is_link(parent: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _entries(descriptor: int, path: str, budget: _Budget) -> Iterator[str]:
    """Yield one line for each file and directory at and below ``descriptor``, sorted by name."""
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        yield _read_line(descriptor, path, status, budget)
    elif stat.S_ISDIR(status.st_mode):
        budget.take(path, 0)
        yield _directory_line(path)
        yield from _directory_entries(descriptor, path, budget)
    else:
        message = f"{path!r} is neither a regular file nor a directory"
        raise ConfigError(message, code="asset-not-regular", hint="assets must be regular files or directories")


def _directory_entries(descriptor: int, path: str, budget: _Budget) -> Iterator[str]:
    if path.count("/") > MAX_PATH_DEPTH:
        raise ConfigError(f"{path!r} is nested too deep", code="asset-too-large", hint="flatten the directory")
    for name in sorted(os.listdir(descriptor)):
        if not name.isprintable() or "\\" in name:
            message = f"{path!r} contains a file name with a control character, a backslash or invalid UTF-8"
            raise ConfigError(message, code="path-unsafe", hint="rename it")
        inner = _open_at(descriptor, name, f"{path}/{name}")
        try:
            yield from _entries(inner, f"{path}/{name}", budget)
        finally:
            os.close(inner)


def _read_line(descriptor: int, path: str, status: os.stat_result, budget: _Budget) -> str:
    if status.st_nlink > 1:
        message = f"{path!r} is a hard link: it has {status.st_nlink} names on this file system"
        raise ConfigError(message, code="asset-link", hint="copy the file itself into the pack")
    budget.take(path, status.st_size)
    digest = hashlib.sha256()
    while chunk := os.read(descriptor, _CHUNK):
        digest.update(chunk)
    return _file_line(path, digest.hexdigest(), executable=bool(status.st_mode & stat.S_IXUSR))
