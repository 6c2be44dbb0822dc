"""The files of a task's directory: read once, with limits, without following symlinks."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError, SourceLocation
from securebench.fs.safe_open import TreeRefusedError
from securebench.fs.walk import EntryKind, TreeLimits, walk
from securebench.pack_paths import MAX_PATH_DEPTH, relative_path_fault

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.resources import JsonValue

MAX_FILES: Final = 10_000
MAX_BYTES: Final = 512 * 1024 * 1024
"""Maximum bytes of one task. The largest known task contains a model file of 100 MB."""


@dataclass(frozen=True, slots=True)
class TaskFile:
    """One file: its content, and whether its owner may execute it."""

    data: bytes
    executable: bool = False


def refused(place: Path | str, message: str, hint: str = "") -> ConfigError:
    """Return the error for a task that cannot be imported."""
    return ConfigError(message, code="import-task-refused", hint=hint, location=SourceLocation(str(place)))


def read_tree(directory: Path) -> dict[str, TaskFile]:
    """Return every file below ``directory`` by its relative path.

    Raises :class:`ConfigError` (``import-task-refused``) for links, special or unreadable files, unsafe names, too
    many files, and too much data.
    """
    found: dict[str, TaskFile] = {}
    # Entries are files and directories.
    limits = TreeLimits(total_bytes=MAX_BYTES, entries=2 * MAX_FILES, depth=MAX_PATH_DEPTH)
    try:
        for entry in walk(directory, limits):
            path = os.fsdecode(entry.path)
            if relative_path_fault(path):
                raise refused(directory, f"the task contains a file with the unsafe name {path!r}")
            if entry.kind is EntryKind.FILE:
                found[path] = TaskFile(b"".join(entry.chunks()), entry.executable)
            if len(found) > MAX_FILES:
                raise refused(directory, f"the task contains more than {MAX_FILES} files")
    except TreeRefusedError as error:
        hint = "if they include links, replace these with copies of their targets"
        raise refused(directory, f"cannot import its files: {error}", hint) from None
    except OSError as error:
        raise refused(directory, f"cannot read the directory: {error.strerror}") from None
    return found


def below(files: Mapping[str, TaskFile], directory: str) -> dict[str, TaskFile]:
    """Return the files below ``directory``, by their paths relative to it."""
    root = f"{directory}/"
    return {path.removeprefix(root): file for path, file in files.items() if path.startswith(root)}


def text_of(files: Mapping[str, TaskFile], path: str, directory: Path) -> str:
    """Return a file as text. Raises :class:`ConfigError` if it is missing or not UTF-8."""
    file = files.get(path)
    if file is None:
        raise refused(directory, f"the task has no {path}")
    try:
        return file.data.decode("utf-8")
    except UnicodeDecodeError:
        raise refused(directory / path, f"{path} is not UTF-8") from None


def digest_record(files: Mapping[str, TaskFile]) -> JsonValue:
    """Return the value whose digest a lock contains: each file's path, SHA-256 and whether it is executable."""
    return {path: f"{'x' if file.executable else 'f'} {_sha256(file.data)}" for path, file in sorted(files.items())}


def tree_digest(files: Mapping[str, TaskFile]) -> str:
    """Return the first twelve hexadecimal digits of a SHA-256 over ``files``."""
    whole = hashlib.sha256()
    for path, file in sorted(files.items()):
        whole.update(f"{path}\0{file.executable:d}{_sha256(file.data)}\0".encode())
    return whole.hexdigest()[:12]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
