"""Read a collected directory for checks: its complete current state, whatever form a driver returns it in.

Use this module only for files of the test image and of the checks, not for hostile content.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from securebench.sandboxes.collected import CollectedArchive, CollectedLayer

if TYPE_CHECKING:
    from securebench.sandboxes.collected import Collected

Entry: TypeAlias = tuple[str, int, int, bytes]
"""Kind, permissions, size, and data: the first bytes of a file, or the target of a link.

A directory has only a kind. A link has only a kind and a target.
"""

TreeEntries: TypeAlias = dict[bytes, Entry]
"""The entries below a directory, by relative name."""

_SHOWN = 64
_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}
_MEMBERS = {
    tarfile.REGTYPE: "file",
    tarfile.DIRTYPE: "directory",
    tarfile.SYMTYPE: "link",
    tarfile.FIFOTYPE: "pipe",
    tarfile.CHRTYPE: "device",
    tarfile.BLKTYPE: "device",
}


def read_collected(collected: Collected, pristine: Path) -> TreeEntries:
    """Return the entries of a collected directory. ``pristine`` is the directory's path in the unpacked image."""
    if isinstance(collected, CollectedArchive):
        return _of_archive(collected)
    if collected.descriptor < 0:
        return read_directory(pristine)
    below = {} if collected.whole else read_directory(pristine)
    return _merged(below, collected)


def read_directory(directory: Path) -> TreeEntries:
    """Return the entries below ``directory`` of the host."""
    names = [Path(parent, name) for parent, below, files in os.walk(directory) for name in (*below, *files)]
    return {os.fsencode(path.relative_to(directory)): _entry(path, path.lstat()) for path in names}


def _merged(below: TreeEntries, layer: CollectedLayer) -> TreeEntries:
    top = Path(f"/proc/self/fd/{layer.descriptor}")
    result = dict(below)
    for parent, directories, files in os.walk(f"{top}/"):
        for path in (Path(parent, name) for name in (*directories, *files)):
            name, status = os.fsencode(path.relative_to(top)), path.lstat()
            removed = stat.S_ISCHR(status.st_mode) and status.st_rdev == 0
            if removed or not stat.S_ISDIR(status.st_mode) or _is_opaque(path, layer.opaque):
                result = {other: entry for other, entry in result.items() if not (other + b"/").startswith(name + b"/")}
            if not removed:
                result[name] = _entry(path, status)
    return result


def _is_opaque(path: Path, attribute: str) -> bool:
    return attribute in os.listxattr(path) and os.getxattr(path, attribute) == b"y"


def _entry(path: Path, status: os.stat_result) -> Entry:
    kind, mode = _KINDS[stat.S_IFMT(status.st_mode)], stat.S_IMODE(status.st_mode)
    if kind == "link":
        return _entry_of(kind, 0, 0, os.fsencode(path.readlink()))
    if kind != "file":
        return _entry_of(kind, mode, 0, b"")
    with path.open("rb") as file:
        return _entry_of(kind, mode, status.st_size, file.read(_SHOWN))


def _of_archive(collected: CollectedArchive) -> TreeEntries:
    # Read to the end, because only that frees the engine's connection.
    whole = io.BytesIO(b"".join(collected.pieces))
    with tarfile.open(fileobj=whole, errors="surrogateescape") as archive:
        members = [(os.fsencode(member.name).partition(b"/")[2], member) for member in archive]
        return {name: _of_member(archive, member) for name, member in members if name}


def _of_member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
    kind = _MEMBERS[member.type]
    if kind == "link":
        return _entry_of(kind, 0, 0, os.fsencode(member.linkname))
    file = archive.extractfile(member) if kind == "file" else None
    return _entry_of(kind, member.mode & 0o7777, member.size, b"" if file is None else file.read(_SHOWN))


def _entry_of(kind: str, mode: int, size: int, data: bytes) -> Entry:
    return (kind, 0 if kind == "directory" else mode, size, data)
