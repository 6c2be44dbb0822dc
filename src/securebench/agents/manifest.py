"""The manifest of a cached program: the integrity of its archive, and each of its files.

Reading all files of a program takes half a second. The manifest therefore also has the inode and times of each file; a
process without raw disk access cannot reset the ctime. A file is read only if one of these differs.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from securebench.fs.durable import write_whole
from securebench.fs.safe_open import OPEN_FILE, TreeRefusedError, opened
from securebench.fs.walk import STATUS, UNPACKED, EntryKind, walk

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from securebench.agents.package import UnpackedFile

FILE: Final = "program.json"
_FORMAT: Final = 1
_MAX_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """A file of a program: its path, size in bytes, sha256 (hex), and the metadata that shows changes."""

    path: str
    size: int
    sha256: str
    mode: int
    inode: int
    mtime_ns: int
    ctime_ns: int

    def is_untouched(self, root: Path) -> bool:
        """Return whether the file's metadata is unchanged since it was unpacked."""
        try:
            return self == _known(root, self.path, self.size, self.sha256)
        except OSError:
            return False

    def is_right(self, root: Path) -> bool:
        """Read the file and return whether it is the one that was unpacked."""
        try:
            with opened(root / self.path, OPEN_FILE) as descriptor:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode) or (status.st_mode, status.st_size) != (self.mode, self.size):
                    return False
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
        except OSError:
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramManifest:
    """A program in the cache. ``source`` is ``registry`` or ``file``; ``installed_at`` in seconds since 1970."""

    integrity: str
    executable: str
    source: str
    installed_at: float
    files: tuple[KnownFile, ...]

    @property
    def size_bytes(self) -> int:
        """The total size of its files."""
        return sum(file.size for file in self.files)

    def is_untouched(self, root: Path) -> bool:
        """Return whether the files below ``root`` are unchanged. They are read only if their metadata differs.

        Additional files are not detected.
        """
        return all(file.is_untouched(root) or file.is_right(root) for file in self.files)

    def is_right(self, root: Path) -> bool:
        """Read all files below ``root``, and return whether they are exactly those that were unpacked."""
        try:
            found = {os.fsdecode(e.path) for e in walk(root, UNPACKED, STATUS) if e.kind is not EntryKind.DIRECTORY}
        except (OSError, TreeRefusedError):
            return False
        return found == {file.path for file in self.files} and all(file.is_right(root) for file in self.files)

    def write(self, directory: Path) -> None:
        """Write the manifest to the directory of its program. Raises ``OSError``."""
        write_whole(directory / FILE, (json.dumps({"format": _FORMAT} | asdict(self), indent=1) + "\n").encode())


def read(directory: Path) -> ProgramManifest | None:
    """Return the manifest in the directory of a program, or ``None`` if it is missing or invalid."""
    try:
        with opened(directory / FILE, OPEN_FILE) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
            value = json.loads(file.read(_MAX_BYTES))
        if value.pop("format") != _FORMAT:
            return None
        found = ProgramManifest(**value | {"files": tuple(KnownFile(**file) for file in value["files"])})
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return found if _is_sound(found) else None


def known_files(root: Path, unpacked: Iterable[UnpackedFile]) -> tuple[KnownFile, ...]:
    """Return the entries for files that were just unpacked below ``root``. Raises ``OSError``."""
    return tuple(_known(root, file.path, file.size, file.sha256) for file in unpacked)


def _is_sound(found: Any) -> bool:
    """Return whether a manifest has the right types and lists its executable."""
    texts = (found.integrity, found.executable, found.source, *(file.path for file in found.files))
    return (
        all(isinstance(text, str) and "\0" not in text for text in texts)
        and isinstance(found.installed_at, float)
        and all(isinstance(file.size, int) for file in found.files)
        and any(file.path == found.executable for file in found.files)
    )


def _known(root: Path, path: str, size: int, sha256: str) -> KnownFile:
    status = (root / path).lstat()
    return KnownFile(
        path=path,
        size=size if status.st_size == size else -1,
        sha256=sha256,
        mode=status.st_mode,
        inode=status.st_ino,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
    )
