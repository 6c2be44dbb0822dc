"""Walking an untrusted tree: by descriptor, without following links, with limits, and without blocking.

Depth, entries and bytes are counted and limited on the way, so that every walk ends in bounded time and memory. Names
are bytes. By default, anything but a regular file, a directory or an allowed link is refused, and the error names it.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from operator import itemgetter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from securebench.fs.safe_open import (
    OPEN_DIRECTORY,
    OPEN_FILE,
    TreeRefusal,
    TreeRefusedError,
    opened_below,
    opened_root,
    refusal_of,
    require_file,
    require_readable_directory,
    require_readable_file,
)
from securebench.limits import MIB
from securebench.printable import printable_name

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

MAX_OFFENDERS = 20
"""A walk stops after this many refused entries."""
_CHUNK: Final = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLimits:
    """Limits of a tree. ``total_bytes`` limits the sum of apparent sizes, which include the holes of sparse files.

    The defaults are enough for 20,000 files and a gigabyte, with room for more.
    """

    total_bytes: int = (1024 + 64) * MIB
    entries: int = 50_000
    depth: int = 64
    name_bytes: int = 255
    path_bytes: int = 4096


class Links(Enum):
    """Whether a tree may have links. Links are never followed."""

    NONE = auto()
    ANY = auto()
    """Links are data: their targets are kept unchanged, wherever they lead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRules:
    """How a tree is read. By default, only readable directories, and readable files without set-id bits, are accepted.

    Paths for which ``skipped(path)`` is true are left out, with everything below them.
    With ``set_id``, files with set-id bits are read like other files; their modes are reported without these bits.
    ``layer`` is set for the upper directory of an overlay: it is the name of the extended attribute that marks opaque
    directories. A character device 0/0 is then a :attr:`EntryKind.WHITEOUT`.

    With ``everything``, entries of any kind and mode are yielded, and the caller decides which to accept. Links are
    still refused if ``links`` is ``NONE``. Without ``content``, files are not opened, and their sizes are not limited.
    """

    links: Links = Links.NONE
    set_id: bool = False
    skipped: Callable[[bytes], bool] | None = None
    layer: str = ""
    everything: bool = False
    content: bool = True


WORKSPACE: Final = TreeRules(links=Links.ANY, set_id=True)
"""The rules for a workspace. Its links are only ever followed inside sandboxes."""

STATUS: Final = TreeRules(links=Links.ANY, everything=True, content=False)
"""The rules to read only the names and metadata of a tree."""

UNPACKED: Final = TreeLimits(total_bytes=2**63, entries=2_000_000, depth=256, path_bytes=2**16)
"""Wide limits for the tester's directories, and for trees whose size was already limited when they were unpacked."""

KEPT_MODE: Final = 0o1777
"""The mode bits that copies of a tree keep. Set-id bits are never kept."""


class EntryKind(StrEnum):
    """The type of an entry of a tree."""

    DIRECTORY = "directory"
    FILE = "file"
    LINK = "link"
    WHITEOUT = "whiteout"
    """In a layer: it removes the entry with this name from the layers below."""
    SPECIAL = "special"
    """A device, socket or FIFO. It is never opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """One entry below the root.

    ``descriptor``: an open file, valid until the next entry is requested; -1 if the entry is not an open file.
    ``target``: the target of a link. ``opaque``: whether a directory of a layer hides everything that lower layers
    have at its path.
    """

    path: bytes
    kind: EntryKind
    status: os.stat_result
    target: bytes = b""
    descriptor: int = -1
    opaque: bool = False

    @property
    def name(self) -> bytes:
        """The last component of ``path``."""
        return self.path.rpartition(b"/")[2]

    @property
    def size(self) -> int:
        """Bytes of a file, otherwise 0."""
        return self.status.st_size if self.kind is EntryKind.FILE else 0

    @property
    def mode(self) -> int:
        """The permission bits of a file or directory, within :data:`KEPT_MODE`."""
        return self.status.st_mode & KEPT_MODE

    @property
    def executable(self) -> bool:
        """Whether the owner of the entry may execute it."""
        return bool(self.mode & stat.S_IXUSR)

    def chunks(self) -> Iterator[bytes]:
        """Yield the content of a file. Raises :class:`TreeRefusedError` if it is not exactly ``size`` bytes."""
        left = self.size
        # Ask for one byte more than expected, so that the last read also shows that there is no more.
        while left >= 0 and (chunk := os.read(self.descriptor, min(_CHUNK, left + 1))):
            left -= len(chunk)
            if left >= 0:
                yield chunk
            if not left and len(chunk) < _CHUNK:
                return
        if left:
            raise TreeRefusedError(TreeRefusal.UNSAFE, f"{printable_name(self.path)}: changed while it was read")


def walk(
    root: Path, limits: TreeLimits | None = None, rules: TreeRules | None = None
) -> Generator[TreeEntry, None, None]:
    """Yield every entry below the directory ``root``, parents first, names in byte order.

    Hard links are separate files. Raises :class:`TreeRefusedError`: at once if ``root`` is refused, if there are too
    many entries or bytes, or if an entry disappeared. Other refused entries raise it at the end of the walk, or as soon
    as there are ``MAX_OFFENDERS`` of them. Raises ``OSError`` if the machine is at fault. With ``rules.everything``, an
    entry that disappeared or cannot be opened raises ``OSError`` instead.
    """
    with opened_root(root) as descriptor:
        yield from walk_descriptor(descriptor, limits, rules)


def walk_descriptor(
    root: int, limits: TreeLimits | None = None, rules: TreeRules | None = None
) -> Generator[TreeEntry, None, None]:
    """Like :func:`walk`, below an open directory. The caller closes it."""
    return _Walk(limits or TreeLimits(), rules or TreeRules()).run(root)


def walk_at(
    root: Path, relative: str, limits: TreeLimits | None = None, rules: TreeRules | None = None
) -> Generator[TreeEntry, None, None]:
    """Yield the entry at ``relative`` (a POSIX path without ``..``) below ``root``, then everything below that entry.

    Paths of entries begin with the last name of ``relative``. A link on the way to it is always refused.
    Raises the errors of :func:`walk`.
    """
    *parents, name = (os.fsencode(part) for part in PurePosixPath(relative).parts)
    with opened_root(root) as top, opened_below(top, parents) as directory:
        yield from _Walk(limits or TreeLimits(), rules or TreeRules()).run(directory, name)


class _Hint(Enum):
    """The type of an entry according to its directory, which saves a ``stat`` call for each file."""

    FILE = auto()
    DIRECTORY = auto()
    OTHER = auto()


@dataclass(slots=True)
class _Level:
    """A directory that is being walked."""

    descriptor: int
    path: bytes
    names: Iterator[tuple[bytes, _Hint]]


@dataclass(slots=True)
class _Walk:
    """The state of one walk."""

    limits: TreeLimits
    rules: TreeRules
    entries: int = 0
    total: int = 0
    offenders: list[str] = field(default_factory=list)
    levels: list[_Level] = field(default_factory=list)

    def run(self, root: int, only: bytes | None = None) -> Generator[TreeEntry, None, None]:
        """Walk the directory ``root``, or only its entry ``only``."""
        try:
            if only is None:
                self._enter(os.dup(root), b"")
            else:
                self._count()
                self.levels.append(_Level(os.dup(root), b"", iter(((only, _Hint.OTHER),))))
            while self.levels:
                level = self.levels[-1]
                name, hint = next(level.names, (None, _Hint.OTHER))
                if name is None:
                    os.close(self.levels.pop().descriptor)
                else:
                    yield from self._visit(level, name, hint)
        finally:
            for level in self.levels:
                os.close(level.descriptor)
        if self.offenders:
            raise TreeRefusedError(TreeRefusal.UNSAFE, *self.offenders)

    def _enter(self, descriptor: int, path: bytes) -> None:
        """Begin to walk a directory. The walk closes ``descriptor``."""
        level = _Level(descriptor, path, iter(()))
        self.levels.append(level)
        names: list[tuple[bytes, _Hint]] = []
        skipped, prefix = self.rules.skipped, path + b"/" if path else b""
        with os.scandir(descriptor) as found:
            for entry in found:
                name = os.fsencode(entry.name)
                if skipped is None or not skipped(prefix + name):
                    self._count()
                    names.append((name, _hint(entry)))
        names.sort(key=itemgetter(0))
        level.names = iter(names)

    def _count(self) -> None:
        self.entries += 1
        if self.entries > self.limits.entries:
            raise TreeRefusedError(TreeRefusal.TOO_LARGE, f"more than {self.limits.entries} files and directories")

    def _visit(self, level: _Level, name: bytes, hint: _Hint) -> Iterator[TreeEntry]:
        path = level.path + b"/" + name if level.path else name
        try:
            self._check_name(path, name)
            yield from self._look(level, name, path, hint)
        except OSError as error:
            refused = refusal_of(error, path)
            if self.rules.everything or not isinstance(refused, TreeRefusedError):
                raise
            self._refuse(refused)
        except TreeRefusedError as refused:
            self._refuse(refused)

    def _look(self, level: _Level, name: bytes, path: bytes, hint: _Hint) -> Iterator[TreeEntry]:
        status = None
        if hint is _Hint.OTHER:
            status = os.stat(name, dir_fd=level.descriptor, follow_symlinks=False)
            hint = _of_mode(status.st_mode)
        if hint is _Hint.DIRECTORY:
            yield self._directory(level, name, path)
        elif hint is _Hint.FILE and self.rules.content:
            yield from self._file(level, name, path)
        elif hint is _Hint.FILE:
            status = os.stat(name, dir_fd=level.descriptor, follow_symlinks=False)
            yield TreeEntry(path=path, kind=EntryKind.FILE, status=status)
        elif status is not None:
            yield self._other(level, name, path, status)

    def _other(self, level: _Level, name: bytes, path: bytes, status: os.stat_result) -> TreeEntry:
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(name, dir_fd=level.descriptor)
            if self.rules.links is Links.NONE:
                raise TreeRefusedError(TreeRefusal.UNSAFE, f"{printable_name(path)}: is a link")
            return TreeEntry(path=path, kind=EntryKind.LINK, status=status, target=target)
        if self.rules.layer and stat.S_ISCHR(status.st_mode) and not status.st_rdev:
            return TreeEntry(path=path, kind=EntryKind.WHITEOUT, status=status)
        if not self.rules.everything:
            require_readable_file(status, path)  # always raises: the entry is not a file
        return TreeEntry(path=path, kind=EntryKind.SPECIAL, status=status)

    def _refuse(self, refused: TreeRefusedError) -> None:
        if refused.refusal is not TreeRefusal.UNSAFE:
            raise refused
        self.offenders += refused.offenders
        if len(self.offenders) >= MAX_OFFENDERS:
            raise TreeRefusedError(TreeRefusal.UNSAFE, *self.offenders) from None

    def _check_name(self, path: bytes, name: bytes) -> None:
        if len(name) > self.limits.name_bytes or len(path) > self.limits.path_bytes:
            raise TreeRefusedError(TreeRefusal.UNSAFE, f"{printable_name(path)}: has too long a name")

    def _directory(self, level: _Level, name: bytes, path: bytes) -> TreeEntry:
        if len(self.levels) > self.limits.depth:
            raise TreeRefusedError(
                TreeRefusal.UNSAFE, f"{printable_name(path)}: is deeper than {self.limits.depth} levels"
            )
        descriptor = os.open(name, OPEN_DIRECTORY, dir_fd=level.descriptor)
        try:
            status = os.fstat(descriptor)
            if not self.rules.everything:
                require_readable_directory(status, path)
            opaque = bool(self.rules.layer) and _is_opaque(descriptor, self.rules.layer)
        except BaseException:
            os.close(descriptor)
            raise
        self._enter(descriptor, path)
        return TreeEntry(path=path, kind=EntryKind.DIRECTORY, status=status, opaque=opaque)

    def _file(self, level: _Level, name: bytes, path: bytes) -> Iterator[TreeEntry]:
        descriptor = os.open(name, OPEN_FILE, dir_fd=level.descriptor)
        try:
            status = os.fstat(descriptor)
            if self.rules.everything:
                require_file(status, path)
            else:
                require_readable_file(status, path, set_id=self.rules.set_id)
            self.total += status.st_size
            if self.total > self.limits.total_bytes:
                raise TreeRefusedError(TreeRefusal.TOO_LARGE, f"more than {self.limits.total_bytes} bytes in total")
            yield TreeEntry(path=path, kind=EntryKind.FILE, status=status, descriptor=descriptor)
        finally:
            os.close(descriptor)


def _hint(entry: os.DirEntry[str]) -> _Hint:
    if entry.is_file(follow_symlinks=False):
        return _Hint.FILE
    return _Hint.DIRECTORY if entry.is_dir(follow_symlinks=False) else _Hint.OTHER


def _of_mode(mode: int) -> _Hint:
    if stat.S_ISREG(mode):
        return _Hint.FILE
    return _Hint.DIRECTORY if stat.S_ISDIR(mode) else _Hint.OTHER


def _is_opaque(directory: int, attribute: str) -> bool:
    try:
        return os.getxattr(directory, attribute) == b"y"
    except OSError:  # the attribute is not set
        return False
