"""Find the changes that an agent made in a directory of its image.

The agent could write everything in that directory, including its version control data, so nothing in it is trusted. The
current content is compared, name by name and byte by byte, with the same directory of the unmodified image.
A driver delivers this content in one of two forms: only the changes, as an overlayfs upper directory, or the whole
directory, as an archive. Both give the same result. Two things are counted but not compared: the top-level ``.git``,
and caches, which test runs and other tools rewrite.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import ImageError, InfrastructureError
from securebench.fs.safe_open import TreeRefusal, TreeRefusedError, mode_fault
from securebench.fs.tar_reader import MemberKind, TarReader
from securebench.fs.walk import (
    EntryKind,
    Links,
    TreeLimits,
    TreeRules,
    walk_descriptor,
)
from securebench.limits import MIB
from securebench.printable import printable_name
from securebench.sandboxes.collected import CollectedLayer
from securebench.workspaces.comparison import CHANGE_LIMITS, StateComparison

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.fs.tar_reader import Member
    from securebench.fs.walk import TreeEntry
    from securebench.patches.model import Delta
    from securebench.sandboxes.collected import Collected, CollectedArchive
    from securebench.workspaces.image_tree import HostTree

_COMPARED: Final = TreeLimits(total_bytes=8 * 1024 * MIB, entries=1_000_000)
"""Limits of the content that is compared. They are high because an agent may touch every file without changing it."""
_HEADER_LIMIT: Final = MIB
_TYPES: Final = {
    MemberKind.FILE: stat.S_IFREG,
    MemberKind.HARDLINK: stat.S_IFREG,
    MemberKind.DIRECTORY: stat.S_IFDIR,
    MemberKind.SYMLINK: stat.S_IFLNK,
}


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes, and the number of ``ignored`` entries by kind, such as ``{".git": 1, "__pycache__": 3}``."""

    delta: Delta
    ignored: Mapping[str, int]


def read_changes(collected: Collected, pristine: HostTree, limits: TreeLimits = CHANGE_LIMITS) -> Changes:
    """Compare a directory collected from a sandbox with ``pristine``, the same directory of its image.

    Links are data and never followed. Raises :class:`TreeRefusedError`: ``UNSAFE`` for entries such as devices, FIFOs,
    set-id files and files that their owner cannot read, and ``TOO_LARGE`` for changes above ``limits`` or for too much
    content to compare. Raises :class:`InfrastructureError` for an invalid archive, and ``OSError`` for errors of this
    machine.
    """
    comparison = StateComparison(pristine, limits)
    if isinstance(collected, CollectedLayer):
        _read_layer(comparison, collected)
    else:
        _read_archive(comparison, collected)
    ignored = comparison.finish()
    return Changes(comparison.delta, ignored)


def _read_layer(comparison: StateComparison, layer: CollectedLayer) -> None:
    """Read an overlay's upper directory. Entries that it lacks are unchanged, or deleted if ``layer.whole``."""
    if layer.whole:
        comparison.gone(b"")
    if layer.descriptor >= 0:
        rules = TreeRules(links=Links.ANY, skipped=comparison.skips, layer=layer.opaque)
        for entry in walk_descriptor(layer.descriptor, _COMPARED, rules):
            _read_layer_entry(comparison, entry)


def _read_layer_entry(comparison: StateComparison, entry: TreeEntry) -> None:
    is_directory = entry.kind is EntryKind.DIRECTORY
    if entry.kind is EntryKind.WHITEOUT or entry.opaque or comparison.is_directory(entry.path) is not is_directory:
        comparison.gone(entry.path)  # the entry removes or replaces what the image has here
    if entry.kind is EntryKind.FILE:
        comparison.file(entry.path, entry.size, entry.chunks(), executable=entry.executable)
    elif entry.kind is EntryKind.LINK:
        comparison.link(entry.path, entry.target)


def _read_archive(comparison: StateComparison, collected: CollectedArchive) -> None:
    """Read an archive of the whole directory. Entries that it lacks were deleted."""
    reader = TarReader(collected.pieces, "the repository", _HEADER_LIMIT)
    reading = _Archive(comparison)
    try:
        for member in reader:
            reading.add(member, reader.content())
    except ImageError as error:
        raise InfrastructureError(
            f"cannot read Docker Engine's archive: {error.message}",
            hint="continue with --resume; if it fails again, start a new run with 'sandbox.driver: oci'",
        ) from None
    reading.finish()


class _Archive:
    """The state of reading an archive."""

    def __init__(self, comparison: StateComparison) -> None:
        self._comparison = comparison
        self._seen: set[bytes] = set()
        """Files and links in the archive."""
        self._skipped: set[bytes] = set()
        """Ignored directories and files."""
        self._open: set[bytes] = set()
        """Directories that are known not to be ignored."""
        self._bytes = 0
        self._members = 0

    def add(self, member: Member, content: Iterator[memoryview]) -> None:
        """Compare one member, unless it is ignored."""
        path = _below_root(member.path)
        self._count(member)
        if not path or self._is_skipped(path):
            return
        if member.kind is not MemberKind.DIRECTORY:
            self._seen.add(path)
        try:
            self._compare(path, member, content)
        except TreeRefusedError as refused:
            self._comparison.refuse(refused)

    def finish(self) -> None:
        """Record as deleted all files of the image that are not in the archive, except ignored files."""
        pristine = self._comparison.pristine
        for path in pristine.files():
            if path not in self._seen:
                self._comparison.gone(path)

    def _compare(self, path: bytes, member: Member, content: Iterator[memoryview]) -> None:
        self._require_plain(path, member)
        executable = bool(member.mode & stat.S_IXUSR)
        match member.kind:
            case MemberKind.FILE:
                self._comparison.file(path, member.size, content, executable=executable)
            case MemberKind.SYMLINK:
                self._comparison.link(path, member.link)
            case MemberKind.HARDLINK:
                self._copy(path, _below_root(member.link))

    def _copy(self, path: bytes, source: bytes) -> None:
        if source not in self._seen:
            raise TreeRefusedError(
                TreeRefusal.UNSAFE,
                f"{printable_name(path)}: is a hard link to a file that is ignored or not in the archive",
            )
        self._comparison.copy(path, source)

    def _require_plain(self, path: bytes, member: Member) -> None:
        """Refuse devices, FIFOs, deep paths and unsafe modes.

        Deep paths and unsafe modes are allowed if the image has the same path with the same mode.
        """
        before = self._comparison.pristine.status(path)
        if before is not None and stat.S_IMODE(before.st_mode) == member.mode and member.kind is not MemberKind.SPECIAL:
            return
        if path.count(b"/") > _COMPARED.depth:
            raise TreeRefusedError(
                TreeRefusal.UNSAFE, f"{printable_name(path)}: is deeper than {_COMPARED.depth} levels"
            )
        problem = (
            "is a device or FIFO"
            if member.kind is MemberKind.SPECIAL
            else mode_fault(_TYPES[member.kind] | member.mode)
        )
        if problem:
            raise TreeRefusedError(TreeRefusal.UNSAFE, f"{printable_name(path)}: {problem}")

    def _is_skipped(self, path: bytes) -> bool:
        end = 0
        while end >= 0:
            end = path.find(b"/", end + 1)
            part = path if end < 0 else path[:end]
            if part in self._skipped:
                return True
            if part not in self._open and self._comparison.skips(part):
                self._skipped.add(part)
                return True
            if end >= 0:
                self._open.add(part)
        return False

    def _count(self, member: Member) -> None:
        self._members += 1
        self._bytes += member.size
        if self._members > _COMPARED.entries or self._bytes > _COMPARED.total_bytes:
            raise TreeRefusedError(TreeRefusal.TOO_LARGE, "too many files or bytes to compare")


def _below_root(path: bytes) -> bytes:
    """Return the path of a member relative to the archived directory. Raises :class:`InfrastructureError`."""
    parts = path.strip(b"/").split(b"/")
    if {b"", b".", b".."} & set(parts):
        raise InfrastructureError(f"the engine's archive has a member with the invalid path {printable_name(path)!r}")
    return b"/".join(parts[1:])
