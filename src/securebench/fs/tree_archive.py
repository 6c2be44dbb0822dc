"""Create and unpack tar archives of directories and files: for sandbox mounts, and for files that nodes need."""

from __future__ import annotations

import os
import secrets
import stat
from typing import TYPE_CHECKING, Final

from securebench.fs.archives import malformed
from securebench.fs.rmtree import clear_directory
from securebench.fs.safe_open import OPEN_FILE, opened
from securebench.fs.tar_reader import Member, MemberKind, TarReader
from securebench.fs.tar_writer import directory_member, end_of_archive, file_header, link_member, padding
from securebench.fs.tree_writer import TreeWriter
from securebench.fs.walk import KEPT_MODE, UNPACKED, WORKSPACE, EntryKind, TreeEntry, TreeLimits, walk
from securebench.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from securebench.fs.tar_writer import Owner

_HEADER_LIMIT: Final = MIB
_ARCHIVE: Final = "the archive of a directory"


def archive(source: Path, name: str, owner: Owner) -> Iterator[bytes]:
    """Yield ``source``, a directory or regular file, as the pieces of a tar archive in which it is called ``name``.

    Everything belongs to ``owner``. Links are archived as links. Raises ``OSError``, and :class:`TreeRefusedError` for
    anything but readable files, directories and links.
    """
    return _whole(_members(source, os.fsencode(name), owner))


def archive_of(sources: Mapping[bytes, Path], owner: Owner) -> Iterator[bytes]:
    """Yield one archive of several directories and files, for :func:`replace_content`.

    ``sources`` maps names in the archive to paths. If a name is below another name in ``sources``, it is left out,
    because the archive contains it already. Raises the same errors as :func:`archive`.
    """
    return _whole(_all_members(sources, owner))


def _whole(members: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for piece in members:
        size += len(piece)
        yield piece
    yield end_of_archive(size)


def _all_members(sources: Mapping[bytes, Path], owner: Owner) -> Iterator[bytes]:
    top = b"files"
    made = set[bytes]()
    yield directory_member(top, 0o755, owner)
    for name, source in sorted(sources.items()):
        parts = name.split(b"/")
        parents = [b"/".join(parts[:depth]) for depth in range(1, len(parts))]
        if any(parent in sources for parent in parents):
            continue
        for parent in parents:
            if parent not in made:
                yield directory_member(top + b"/" + parent, 0o755, owner)
                made.add(parent)
        yield from _members(source, top + b"/" + name, owner)


def _members(source: Path, name: bytes, owner: Owner) -> Iterator[bytes]:
    status = source.lstat()
    if not stat.S_ISDIR(status.st_mode):
        with opened(source, OPEN_FILE) as descriptor:
            status = os.fstat(descriptor)
            yield from _file(
                name, TreeEntry(path=name, kind=EntryKind.FILE, status=status, descriptor=descriptor), owner
            )
        return
    yield directory_member(name, status.st_mode & KEPT_MODE, owner)
    for entry in walk(source, UNPACKED, WORKSPACE):
        path = name + b"/" + entry.path
        if entry.kind is EntryKind.DIRECTORY:
            yield directory_member(path, entry.mode, owner)
        elif entry.kind is EntryKind.LINK:
            yield link_member(path, entry.target, owner)
        else:
            yield from _file(path, entry, owner)


def _file(path: bytes, entry: TreeEntry, owner: Owner) -> Iterator[bytes]:
    yield file_header(path, entry.size, entry.mode, owner)
    yield from entry.chunks()
    yield padding(entry.size)


def replace_content(directory: Path, pieces: Iterable[bytes], limits: TreeLimits | None = None) -> None:
    """Replace the content of ``directory`` with that of an archive, whose top directory may have any name.

    The archive may be hostile. Links are created, but never followed. Set-id bits are dropped. For a FIFO or device, a
    FIFO is created. If this process runs as root, all files, directories and links get the owner of ``directory``.

    If the archive exceeds ``limits``, its remaining members are not unpacked. This function then creates a sparse file
    in ``directory`` that is larger than ``limits.total_bytes``.

    Raises :class:`ImageError` (``image-malformed`` or ``image-too-large``) for an archive that no driver would create,
    :class:`StorageError` (``workspace-stuck``) if the old content cannot be removed, and ``OSError``.
    """
    limits = limits or TreeLimits()
    status = directory.stat()
    clear_directory(directory)
    owner = (status.st_uid, status.st_gid) if os.geteuid() == 0 else None
    with TreeWriter(directory, owner) as writer:
        _Extraction(TarReader(pieces, _ARCHIVE, _HEADER_LIMIT), writer, limits).run()


class _Extraction:
    """Writes the members of one archive."""

    def __init__(self, reader: TarReader, writer: TreeWriter, limits: TreeLimits) -> None:
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self._entries = 0
        self._bytes = 0

    def run(self) -> None:
        try:
            for member in self._reader:
                path = _below_top(member.path)
                if path and not self._write(path, member):
                    # The next reader refuses the tree because of this file, as it would refuse the complete tree.
                    name = b"too-large-" + secrets.token_hex(8).encode()  # the sandbox cannot have guessed it
                    self._writer.write_sparse(name, self._limits.total_bytes + 1)
                    return
        except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
            raise malformed(_ARCHIVE, f"its members contradict each other: {error.strerror}") from None

    def _write(self, path: bytes, member: Member) -> bool:
        """Write one member, or return ``False`` if that would exceed the limits."""
        limits, mode = self._limits, member.mode & KEPT_MODE
        self._entries += 1
        if (
            self._entries > limits.entries
            or path.count(b"/") > limits.depth
            or len(path) > limits.path_bytes
            or len(path.rpartition(b"/")[2]) > limits.name_bytes
        ):
            return False
        if member.kind is MemberKind.DIRECTORY:
            self._writer.make_directory(path, mode)
        elif member.kind is MemberKind.SYMLINK:
            self._writer.make_link(path, member.link)
        elif member.kind is MemberKind.SPECIAL:
            self._writer.make_fifo(path)  # the next reader refuses FIFOs and devices alike
        elif member.kind is MemberKind.HARDLINK:
            self._writer.make_hard_link(path, _below_top(member.link))
        elif self._has_room(member.size):
            self._writer.write_file(path, self._reader.content(), mode)
        else:
            return False
        return True

    def _has_room(self, size: int) -> bool:
        self._bytes += size
        return self._bytes <= self._limits.total_bytes


def _below_top(path: bytes) -> bytes:
    """Return ``path`` without its first component, which is the directory itself."""
    parts = path.rstrip(b"/").removeprefix(b"./").split(b"/")
    if any(part in {b"", b".", b".."} or b"\0" in part for part in parts):
        raise malformed(_ARCHIVE, "a member has a path outside the archived directory")
    return b"/".join(parts[1:])
