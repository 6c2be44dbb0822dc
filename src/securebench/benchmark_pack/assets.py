"""Hash the files that rows reference. Each is opened once, without following symlinks, and hashed while it is open."""

from __future__ import annotations

import hashlib
import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError
from securebench.fs.safe_open import TreeRefusal, TreeRefusedError
from securebench.fs.walk import EntryKind, Links, TreeLimits, TreeRules, walk_at
from securebench.limits import MIB
from securebench.pack_paths import MAX_PATH_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.fs.walk import TreeEntry

MAX_ASSET_FILES: Final = 10_000
"""The maximum number of files and directories in one referenced directory.

The total for one task has the same maximum, because SecureBench copies everything that a task references.
"""

MAX_ASSET_BYTES: Final = 256 * MIB
"""The maximum size of one referenced file or directory, in bytes.

The total for one task has the same maximum, because SecureBench copies everything that a task references. Larger data
belongs in the image.
"""

_ENTRIES: Final = TreeRules(links=Links.ANY, everything=True)


def digest_asset(directory: Path, path: str) -> str:
    """Return the sha256 (hex) of the file or directory at ``path`` (POSIX, relative) below ``directory``.

    A directory's digest covers the names, types, executable bits and contents of everything below it. Raises
    :class:`ConfigError` for anything that is missing, unreadable, too large or unsafely named, and for symlinks
    (including in a parent), hard links and special files.
    """
    digest = hashlib.sha256()
    try:
        for line in _lines(directory, path):
            digest.update(line.encode("utf-8"))
    except (OSError, TreeRefusedError) as error:
        raise _error(directory, path, error) from None
    return digest.hexdigest()


class AssetDigest:
    """Computes what :func:`digest_asset` returns, for a file or directory that the caller reads.

    ``path`` is the path of that file or directory in the pack.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lines: dict[tuple[str, ...], str] = {}

    def directory(self, below: str = "") -> None:
        """Add the directory itself, or its subdirectory ``below``."""
        path = self._at(below)
        self._lines[tuple(path.split("/"))] = _directory_line(path)

    def file(self, content_digest: str, *, executable: bool, below: str = "") -> None:
        """Add a file. ``content_digest`` is the sha256 (hex) of its content.

        ``below`` is the path of the file in the directory. It is empty if the asset is a file, not a directory.
        """
        path = self._at(below)
        self._lines[tuple(path.split("/"))] = _file_line(path, content_digest, executable=executable)

    def hexdigest(self) -> str:
        """Return the digest of everything added. The order in which it was added does not matter."""
        lines = (self._lines[path] for path in sorted(self._lines))
        return hashlib.sha256("".join(lines).encode("utf-8")).hexdigest()

    def _at(self, below: str) -> str:
        return f"{self._path}/{below}" if below else self._path


def _directory_line(path: str) -> str:
    return f"d {path}\0"


def _file_line(path: str, content_digest: str, *, executable: bool) -> str:
    return f"{'x' if executable else 'f'} {path} {content_digest}\0"


def _lines(directory: Path, path: str) -> Iterator[str]:
    """Yield the line to hash for each file and directory at and below ``path``, parents first, sorted by name."""
    limits = TreeLimits(total_bytes=MAX_ASSET_BYTES, entries=MAX_ASSET_FILES)
    above = path.rpartition("/")[0]
    for entry in walk_at(directory.resolve(), path, limits, _ENTRIES):  # the path of the pack itself may contain links
        inside = os.fsdecode(entry.path)
        if not inside.isprintable() or "\\" in inside:
            message = f"a file name in {path!r} has a control or invisible character, a backslash or invalid UTF-8"
            raise ConfigError(message, code="path-unsafe", hint="rename it")
        yield _line(f"{above}/{inside}" if above else inside, entry)


def _line(path: str, entry: TreeEntry) -> str:
    match entry.kind:
        case EntryKind.DIRECTORY if path.count("/") > MAX_PATH_DEPTH:
            raise ConfigError(f"{path!r} is nested too deeply", code="asset-too-large", hint="flatten the directory")
        case EntryKind.DIRECTORY:
            return _directory_line(path)
        case EntryKind.FILE if entry.status.st_nlink > 1:
            message = f"{path!r} is a hard link: it has {entry.status.st_nlink} names on this file system"
            raise ConfigError(message, code="asset-link", hint="copy the file itself into the pack")
        case EntryKind.FILE:
            digest = hashlib.sha256()
            for chunk in entry.chunks():
                digest.update(chunk)
            return _file_line(path, digest.hexdigest(), executable=entry.executable)
        case EntryKind.LINK:
            raise _is_a_link(path)
        case _:
            message = f"{path!r} is neither a regular file nor a directory"
            raise ConfigError(message, code="asset-not-regular", hint="use only regular files and directories")


def _error(directory: Path, path: str, error: OSError | TreeRefusedError) -> ConfigError:
    """Return the error for ``path``, which is too large or missing, has a link in its path or cannot be read."""
    if isinstance(error, TreeRefusedError) and error.refusal is TreeRefusal.TOO_LARGE:
        message = f"{path!r} contains more than {MAX_ASSET_FILES} entries or {MAX_ASSET_BYTES} bytes"
        return ConfigError(message, code="asset-too-large", hint="put large data in the image")
    above = (path, *map(str, PurePosixPath(path).parents))
    if link := next((part for part in above if part != "." and (directory / part).is_symlink()), ""):
        return _is_a_link(link)
    if not (directory / path).exists():
        return ConfigError(f"{path!r} does not exist", code="asset-missing")
    return ConfigError(f"cannot read {path!r}: {error}", code="asset-unreadable", hint="check its permissions")


def _is_a_link(path: str) -> ConfigError:
    return ConfigError(f"{path!r} is a symbolic link", code="asset-link", hint="copy the file itself into the pack")
