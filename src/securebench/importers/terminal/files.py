"""The files of a task's directory: read once, within bounds, and no link is followed."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError, SourceLocation
from securebench.pack_paths import MAX_PATH_DEPTH, relative_path_fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from securebench.resources import JsonValue

MAX_FILES: Final = 10_000
MAX_BYTES: Final = 512 * 1024 * 1024
"""Of one task: the largest that we know brings a model of 100 MB into its image."""

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class TaskFile:
    """One file: its content, and whether its owner may run it."""

    data: bytes
    executable: bool = False


def refused(place: Path | str, message: str, hint: str = "") -> ConfigError:
    """Return the error for a task that is not imported, and why."""
    return ConfigError(message, code="import-task-refused", hint=hint, location=SourceLocation(str(place)))


def read_tree(directory: Path) -> dict[str, TaskFile]:
    """Return every file below ``directory`` by its relative path.

    Raises :class:`ConfigError` (``import-task-refused``) for links, special files, unsafe names, and what is too much.
    """
    try:
        descriptor = os.open(directory, _DIRECTORY)
    except OSError as error:
        raise refused(directory, f"it cannot be read: {error.strerror}") from None
    found: dict[str, TaskFile] = {}
    room = MAX_BYTES
    for path, file in _walk(descriptor, "", directory):
        room -= len(file.data)
        found[path] = file
        if room < 0 or len(found) > MAX_FILES:
            raise refused(directory, f"it holds more than {MAX_FILES} files or {MAX_BYTES} bytes")
    return found


def below(files: Mapping[str, TaskFile], directory: str) -> dict[str, TaskFile]:
    """Return the files below ``directory``, by their paths in it."""
    root = f"{directory}/"
    return {path.removeprefix(root): file for path, file in files.items() if path.startswith(root)}


def text_of(files: Mapping[str, TaskFile], path: str, directory: Path) -> str:
    """Return a file as text. Raises :class:`ConfigError` where it is missing or no UTF-8."""
    file = files.get(path)
    if file is None:
        raise refused(directory, f"it has no {path}")
    try:
        return file.data.decode("utf-8")
    except UnicodeDecodeError:
        raise refused(directory / path, "it is not UTF-8") from None


def digest_record(files: Mapping[str, TaskFile]) -> JsonValue:
    """Return what a lock holds the digest of: every file, its content and whether it is executable."""
    return {path: f"{'x' if file.executable else 'f'} {_sha256(file.data)}" for path, file in sorted(files.items())}


def tree_digest(files: Mapping[str, TaskFile]) -> str:
    """Return twelve hexadecimal digits that name this content."""
    whole = hashlib.sha256()
    for path, file in sorted(files.items()):
        whole.update(f"{path}\0{file.executable:d}{_sha256(file.data)}\0".encode())
    return whole.hexdigest()[:12]


def _walk(descriptor: int, prefix: str, directory: Path) -> Iterator[tuple[str, TaskFile]]:
    """Yield the files of an open directory, in order, and close it."""
    try:
        for name in sorted(os.listdir(descriptor)):
            path = f"{prefix}{name}"
            if relative_path_fault(path) or path.count("/") >= MAX_PATH_DEPTH:
                raise refused(directory, f"it holds a file with the unsafe name {path!r}")
            kind = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
            if stat.S_ISDIR(kind):
                yield from _walk(os.open(name, _DIRECTORY, dir_fd=descriptor), f"{path}/", directory)
            elif stat.S_ISREG(kind):
                yield path, _read(descriptor, name, directory)
            else:
                raise refused(directory / path, "it is a link or no regular file", "copy what it leads to")
    finally:
        os.close(descriptor)


def _read(parent: int, name: str, directory: Path) -> TaskFile:
    with os.fdopen(os.open(name, _FILE, dir_fd=parent), "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        data = file.read(MAX_BYTES + 1) if stat.S_ISREG(mode) else b""
    if not stat.S_ISREG(mode) or len(data) > MAX_BYTES:
        raise refused(directory / name, "it is not a regular file, or too large")
    return TaskFile(data, bool(mode & stat.S_IXUSR))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
