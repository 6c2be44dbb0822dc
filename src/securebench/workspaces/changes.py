"""What an agent changed in a directory of its image, read from what its sandbox left of it.

The agent had all rights in that directory, and its version control data too: nothing of either is believed. What is
there now is compared, name by name and byte by byte, with the same directory of the image, where no agent ever was.

Two drivers leave two forms: only what was changed, as overlayfs keeps it, or the whole as an archive. Both give the
same changes. Not looked at, but counted: the top-level ``.git``, and caches, which every test run writes anew.
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
from securebench.workspaces.comparison import CHANGE_LIMITS, Comparison

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.fs.tar_reader import Member
    from securebench.fs.walk import TreeEntry
    from securebench.patches.model import Delta
    from securebench.sandboxes.collected import Collected, CollectedArchive
    from securebench.workspaces.image_tree import HostTree

_LOOKED_AT: Final = TreeLimits(total_bytes=8 * 1024 * MIB, entries=1_000_000)
"""What may be there to be compared: an agent that touched every file has changed none."""
_HEADER_LIMIT: Final = MIB
_TYPES: Final = {
    MemberKind.FILE: stat.S_IFREG,
    MemberKind.HARDLINK: stat.S_IFREG,
    MemberKind.DIRECTORY: stat.S_IFDIR,
    MemberKind.SYMLINK: stat.S_IFLNK,
}


@dataclass(frozen=True, slots=True)
class Changes:
    """What was changed, and how much of what was ``ignored``: ``{".git": 1, "__pycache__": 3}``."""

    delta: Delta
    ignored: Mapping[str, int]


def read_changes(collected: Collected, pristine: HostTree, limits: TreeLimits = CHANGE_LIMITS) -> Changes:
    """Compare what a sandbox left of a directory with ``pristine``, the same directory of its image.

    Links are data, wherever they lead. Raises :class:`TreeRefusedError`: unsafe for devices, FIFOs, set-id files and
    what its owner may not read, with their names; too large for more than ``limits``. Raises
    :class:`InfrastructureError` for an archive that cannot be read, and ``OSError`` for what is wrong with the machine.
    """
    comparison = Comparison(pristine, limits)
    if isinstance(collected, CollectedLayer):
        _read_layer(comparison, collected)
    else:
        _read_archive(comparison, collected)
    ignored = comparison.finish()
    return Changes(comparison.delta, ignored)


def _read_layer(comparison: Comparison, layer: CollectedLayer) -> None:
    """Read the upper directory of an overlay: what is not there is as it was, or gone if it has the place of all."""
    if layer.whole:
        comparison.gone(b"")
    if layer.descriptor >= 0:
        rules = TreeRules(links=Links.ANY, skipped=comparison.skips, layer=layer.opaque)
        for entry in walk_descriptor(layer.descriptor, _LOOKED_AT, rules):
            _read_layer_entry(comparison, entry)


def _read_layer_entry(comparison: Comparison, entry: TreeEntry) -> None:
    is_directory = entry.kind is EntryKind.DIRECTORY
    if entry.kind is EntryKind.WHITEOUT or entry.opaque or comparison.is_directory(entry.path) is not is_directory:
        comparison.gone(entry.path)  # what was there made way
    if entry.kind is EntryKind.FILE:
        comparison.file(entry.path, entry.size, entry.chunks(), executable=entry.executable)
    elif entry.kind is EntryKind.LINK:
        comparison.link(entry.path, entry.target)


def _read_archive(comparison: Comparison, collected: CollectedArchive) -> None:
    """Read the whole directory as an archive: what is not there is gone."""
    reader = TarReader(collected.pieces, "what the agent left", _HEADER_LIMIT)
    reading = _Archive(comparison)
    try:
        for member in reader:
            reading.add(member, reader.content())
    except ImageError as error:
        raise InfrastructureError(
            f"the engine's archive of what the agent left cannot be read: {error.message}",
            hint="run again with --resume; if it fails again, use sandbox.driver: oci",
        ) from None
    reading.finish()


class _Archive:
    """What was seen of an archive so far."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self._seen: set[bytes] = set()
        """Files and links."""
        self._skipped: set[bytes] = set()
        """Directories that are not looked at, and single files."""
        self._open: set[bytes] = set()
        """Directories that are."""
        self._looked_at = 0
        self._members = 0

    def add(self, member: Member, content: Iterator[memoryview]) -> None:
        """Compare one member, unless it lies in what is skipped."""
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
        """Take note of what was not seen."""
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
                TreeRefusal.UNSAFE, f"{printable_name(path)}: is a hard link to what is not looked at"
            )
        self._comparison.copy(path, source)

    def _require_plain(self, path: bytes, member: Member) -> None:
        """Refuse what the walk over a layer would, unless the image has it so."""
        before = self._comparison.pristine.status(path)
        if before is not None and stat.S_IMODE(before.st_mode) == member.mode and member.kind is not MemberKind.SPECIAL:
            return
        if path.count(b"/") > _LOOKED_AT.depth:
            raise TreeRefusedError(
                TreeRefusal.UNSAFE, f"{printable_name(path)}: lies deeper than {_LOOKED_AT.depth} levels"
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
        self._looked_at += member.size
        if self._members > _LOOKED_AT.entries or self._looked_at > _LOOKED_AT.total_bytes:
            raise TreeRefusedError(TreeRefusal.TOO_LARGE, "there is more in it than is looked at")


def _below_root(path: bytes) -> bytes:
    """Return the path below the directory that an archive is of. Raises :class:`InfrastructureError`."""
    parts = path.strip(b"/").split(b"/")
    if {b"", b".", b".."} & set(parts):
        raise InfrastructureError(f"the engine's archive has a member {printable_name(path)!r}")
    return b"/".join(parts[1:])
