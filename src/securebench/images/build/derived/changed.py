"""The layer with the changes that a build's steps made to an image, from an overlay or from an archive of all files.

Directories that are mounted while the steps run are not part of the image, and are left out.
"""

from __future__ import annotations

import os
import stat
import tarfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from securebench.errors import ImageError
from securebench.fs.archives import ArchiveLimits
from securebench.fs.safe_open import OPEN_DIRECTORY, OPEN_FILE, open_below, opened
from securebench.fs.tar_reader import MemberKind, TarReader
from securebench.fs.walk import EntryKind
from securebench.images.build.derived.host_tree import content, walk
from securebench.images.build.derived.layer import END, LayerEntry, written
from securebench.images.store.ids import COUNT
from securebench.images.store.tree_builder import OPAQUE, WHITEOUT
from securebench.printable import printable_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from securebench.fs.tar_reader import Member
    from securebench.fs.walk import TreeEntry

_EXCLUDED: Final = frozenset((b"proc", b"sys", b"dev", b"tmp", b"run"))
_OVERLAID: Final = frozenset(
    (
        *(b"etc/hosts", b"etc/hostname", b"etc/resolv.conf", b"etc/mtab"),
        *(b".dockerenv", b"sbin/docker-init", b"usr/sbin/docker-init"),
    )
)
"""Files that engines and runtimes add to a container, or mount over the image's files."""
_NOBODY: Final = 65534


def is_excluded(path: bytes) -> bool:
    """Return whether this path, relative to the root, is not part of an image."""
    return path.split(b"/", 1)[0] in _EXCLUDED or path in _OVERLAID


def layer_of_overlay(descriptor: int, opaque: str, shift: int) -> Iterator[bytes]:
    """Yield the layer made from an overlay's upper directory, ``descriptor``, which is -1 if there were no changes.

    ``opaque`` is the extended attribute that marks directories that replace a directory of the image. ``shift`` was
    added to each user and group id in the upper directory; if it is 0, root owns all files of the layer. Raises
    :class:`ImageError` (``image-build-failed``, ``image-too-large``) and ``OSError``.
    """
    if descriptor >= 0:
        for entry in walk(descriptor, is_excluded, layer=opaque):
            yield from _from_overlay(entry, shift)
    yield END


def _from_overlay(entry: TreeEntry, shift: int) -> Iterator[bytes]:
    path, status = entry.path, entry.status
    if entry.kind is EntryKind.WHITEOUT:
        yield from written(_whiteout(path))
        return
    if entry.name.startswith(WHITEOUT):
        raise _unsupported(path, "its name begins with '.wh.', which image layers reserve")
    owner = (_inner(status.st_uid, shift), _inner(status.st_gid, shift))
    mode = stat.S_IMODE(status.st_mode)
    if entry.kind is EntryKind.DIRECTORY:
        yield from written(LayerEntry(path=path, kind=tarfile.DIRTYPE, mode=mode, owner=owner))
        if entry.opaque:
            yield from written(LayerEntry(path=path + b"/" + OPAQUE))
    elif entry.kind is EntryKind.LINK:
        yield from written(LayerEntry(path=path, kind=tarfile.SYMTYPE, mode=0o777, owner=owner, link=entry.target))
    elif entry.kind is EntryKind.FILE:
        yield from written(LayerEntry(path=path, mode=mode, owner=owner, size=entry.size), content(entry))
    else:
        raise _unsupported(path, "it is a device, FIFO or socket")


def layer_of_archive(pieces: Iterator[bytes], tree: Path, shift: int) -> Iterator[bytes]:
    """Yield the layer with the changes that the steps made to the root directory.

    ``pieces`` are an archive of the changed root directory. ``tree`` is the directory with the unpacked image, and
    ``shift`` is the number that was added to each user and group id in ``tree``. Raises the errors of
    :func:`layer_of_overlay`, and :class:`ImageError` (``image-malformed``).
    """
    found: dict[bytes, MemberKind] = {}
    reader = TarReader(pieces, "the result of the steps", ArchiveLimits().header)
    with opened(tree, OPEN_DIRECTORY) as top:
        for member in reader:
            path = b"/".join(part for part in member.path.split(b"/") if part not in {b"", b"."})
            if path and not is_excluded(path):
                found[path] = member.kind
                yield from _from_archive(member, path, reader, _ImageEntry(top, path, shift))
        yield from _whiteouts(top, found)
    yield END


class _ImageEntry:
    """The entry at ``path`` in the unpacked image. The entry may be missing.

    ``shift`` was added to the user and group id of each unpacked file. If ``shift`` is 0, the image was unpacked
    without its ids.
    """

    def __init__(self, top: int, path: bytes, shift: int) -> None:
        self._top = top
        self._path = path
        self._shift = shift

    def status(self) -> os.stat_result | None:
        """Return the entry's ``lstat`` result, or ``None`` if it does not exist or a parent is not a directory."""
        with suppress(OSError), self._directory() as above:
            return os.stat(self._name(), dir_fd=above, follow_symlinks=False)
        return None

    def has(self, member: Member, status: os.stat_result) -> bool:
        """Return whether the entry has the mode and owner of ``member``. Unknown owners are not compared."""
        owner = (_inner(status.st_uid, self._shift), _inner(status.st_gid, self._shift))
        return stat.S_IMODE(status.st_mode) == member.mode and (owner == (member.uid, member.gid) or not self._shift)

    def target(self) -> bytes:
        """Return the target of a symbolic link."""
        with self._directory() as above:
            return os.readlink(self._name(), dir_fd=above)

    def content(self) -> bytes:
        """Return the content of a file."""
        with (
            self._directory() as above,
            opened(self._name(), OPEN_FILE, above) as descriptor,
            os.fdopen(descriptor, "rb", closefd=False) as file,
        ):
            return file.read()

    @contextmanager
    def _directory(self) -> Iterator[int]:
        descriptor = open_below(self._top, self._path.split(b"/")[:-1])
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _name(self) -> bytes:
        return self._path.rpartition(b"/")[2]


def _from_archive(member: Member, path: bytes, reader: TarReader, before: _ImageEntry) -> Iterator[bytes]:
    if path.rpartition(b"/")[2].startswith(WHITEOUT):
        raise _unsupported(path, "its name begins with '.wh.', which image layers reserve")
    status = before.status()
    same = status is not None and before.has(member, status)
    owner, mode = (member.uid, member.gid), member.mode
    if member.kind is MemberKind.DIRECTORY:
        if not (same and status and stat.S_ISDIR(status.st_mode)):
            yield from written(LayerEntry(path=path, kind=tarfile.DIRTYPE, mode=mode, owner=owner))
    elif member.kind is MemberKind.SYMLINK:
        if not (status and stat.S_ISLNK(status.st_mode) and before.target() == member.link):
            yield from written(LayerEntry(path=path, kind=tarfile.SYMTYPE, mode=0o777, owner=owner, link=member.link))
    elif member.kind is MemberKind.FILE:
        data = b"".join(reader.content())
        is_file = status and stat.S_ISREG(status.st_mode) and status.st_size == len(data)
        if not (same and is_file and before.content() == data):
            yield from written(LayerEntry(path=path, mode=mode, owner=owner, size=len(data)), (data,))
    elif member.kind is MemberKind.HARDLINK:
        link = member.link.strip(b"/").removeprefix(b"./")
        if not (same and status and stat.S_ISREG(status.st_mode) and status.st_nlink > 1):
            yield from written(LayerEntry(path=path, kind=tarfile.LNKTYPE, mode=mode, owner=owner, link=link))
    else:
        raise _unsupported(path, "it is a device, FIFO or socket")


def _whiteouts(top: int, found: Mapping[bytes, MemberKind]) -> Iterator[bytes]:
    """Yield a whiteout for each entry that no longer exists, unless its directory was also removed or replaced."""
    for entry in walk(top, is_excluded, content=False):
        above = entry.path.rpartition(b"/")[0]
        if entry.path not in found and (not above or found.get(above) is MemberKind.DIRECTORY):
            yield from written(_whiteout(entry.path))


def _whiteout(path: bytes) -> LayerEntry:
    above, slash, name = path.rpartition(b"/")
    return LayerEntry(path=above + slash + WHITEOUT + name)


def _inner(number: int, shift: int) -> int:
    """Return the id inside the sandbox for a user or group id of the host."""
    if not shift:
        return 0  # a sandbox of an ordinary user has only one id
    return number - shift if shift <= number < shift + COUNT else _NOBODY


def _unsupported(path: bytes, problem: str) -> ImageError:
    return ImageError(
        f"the steps created {printable_name(path)!r}: {problem}",
        code="image-build-failed",
        hint="remove it in the last step",
    )
