"""The one way in which a tree of files that somebody else wrote is looked at.

Depth, entries and bytes are bounded before anything is read, so that a walk ends in bounded time and memory whatever
it meets. Names are bytes. What is not a plain file, a plain directory or a link that stays inside is refused by name.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from securebench.descriptors import OPEN_DIRECTORY, OPEN_FILE, opened, printable
from securebench.limits import MIB
from securebench.workspaces.descriptors import (
    Refusal,
    TreeRefusedError,
    opened_below,
    opened_root,
    refusing,
    require_readable_directory,
    require_readable_file,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

MAX_OFFENDERS = 20
"""A walk that has found so many offenders stops: nobody reads more."""
_CHUNK = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLimits:
    """What a tree may hold. ``total_bytes`` counts apparent sizes, so that a sparse file weighs what it claims."""

    total_bytes: int = 512 * MIB
    entries: int = 50_000
    depth: int = 64
    name_bytes: int = 255
    path_bytes: int = 4096


class EntryKind(StrEnum):
    """What an entry of a tree is."""

    DIRECTORY = "directory"
    FILE = "file"
    LINK = "link"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry below the root. ``descriptor`` is that of an open file, until the walk goes on; else -1."""

    path: bytes
    kind: EntryKind
    size: int = 0
    executable: bool = False
    target: bytes = b""
    descriptor: int = -1

    def chunks(self) -> Iterator[bytes]:
        """Yield the content of a file: exactly ``size`` bytes, or :class:`TreeRefusedError`."""
        left = self.size
        while chunk := os.read(self.descriptor, _CHUNK):
            left -= len(chunk)
            if left < 0:
                break
            yield chunk
        if left:
            raise TreeRefusedError(Refusal.UNSAFE, f"{printable(self.path)}: changed while it was read")


def walk(root: Path, limits: TreeLimits | None = None, *, links: bool = True) -> Generator[Entry, None, None]:
    """Yield every entry below the directory ``root``, parents first, names in byte order.

    Hard links are separate files. With ``links``, a link is an entry where its target can only lie inside the tree;
    all other links, devices, sockets, FIFOs, set-id files and what its owner may not read are refused, after the rest
    was looked at. Raises :class:`TreeRefusedError`; ``OSError`` for what is wrong with the machine.
    """
    with opened_root(root) as descriptor:
        yield from _Walk(limits or TreeLimits(), links=links).run(descriptor)


def walk_at(
    root: Path, relative: str, limits: TreeLimits | None = None, *, links: bool = False
) -> Generator[Entry, None, None]:
    """Yield the file or directory at the plain path ``relative`` (POSIX) below ``root``, and then all below it.

    Paths of entries begin with the last name of ``relative``. No link is followed on the way. Raises as :func:`walk`.
    """
    *parents, name = (os.fsencode(part) for part in PurePosixPath(relative).parts)
    with opened_root(root) as top, opened_below(top, parents) as directory:
        yield from _Walk(limits or TreeLimits(), links=links).run(directory, only=name)


def link_stays_inside(path: bytes, target: bytes) -> bool:
    """Whether the link at ``path`` can only ever lead to something below the root.

    Its target must be relative, and ``..`` may stand only in front and no oftener than the link is deep. As ``path``
    itself was reached without following a link, each leading ``..`` then goes up one real directory; whatever links
    the names behind them are, the same holds for those. (``a/..`` is refused: ``a`` may be a link.)
    """
    parts = [part for part in target.split(b"/") if part not in {b"", b"."}]
    ups = 0
    while ups < len(parts) and parts[ups] == b"..":
        ups += 1
    return not target.startswith(b"/") and b".." not in parts[ups:] and ups <= path.count(b"/")


@dataclass(slots=True)
class _Level:
    """A directory that is being walked."""

    descriptor: int
    path: bytes
    names: Iterator[bytes]


@dataclass(slots=True)
class _Walk:
    """One walk: what it has counted, and whom it has refused."""

    limits: TreeLimits
    links: bool
    entries: int = 0
    total: int = 0
    offenders: list[str] = field(default_factory=list)
    levels: list[_Level] = field(default_factory=list)

    def run(self, root: int, only: bytes | None = None) -> Iterator[Entry]:
        """Walk the directory ``root``, or ``only`` one entry of it."""
        try:
            if only is None:
                self._enter(os.dup(root), b"")
            else:
                self._count()
                self.levels.append(_Level(os.dup(root), b"", iter((only,))))
            while self.levels:
                level = self.levels[-1]
                name = next(level.names, None)
                if name is None:
                    os.close(self.levels.pop().descriptor)
                else:
                    yield from self._visit(level, name)
        finally:
            for level in self.levels:
                os.close(level.descriptor)
        if self.offenders:
            raise TreeRefusedError(Refusal.UNSAFE, *self.offenders)

    def _enter(self, descriptor: int, path: bytes) -> None:
        """Begin to walk a directory; its descriptor is ours from here on."""
        level = _Level(descriptor, path, iter(()))
        self.levels.append(level)
        names: list[bytes] = []
        with os.scandir(descriptor) as found:
            for entry in found:
                self._count()
                names.append(os.fsencode(entry.name))
        level.names = iter(sorted(names))

    def _count(self) -> None:
        self.entries += 1
        if self.entries > self.limits.entries:
            raise TreeRefusedError(Refusal.TOO_LARGE, f"more than {self.limits.entries} files and directories")

    def _visit(self, level: _Level, name: bytes) -> Iterator[Entry]:
        path = level.path + b"/" + name if level.path else name
        try:
            self._check_name(path, name)
            with refusing(path):
                status = os.stat(name, dir_fd=level.descriptor, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    yield self._directory(level, name, path)
                elif stat.S_ISLNK(status.st_mode):
                    yield self._link(level, name, path)
                else:
                    require_readable_file(status, path)  # before the open: opening a device can do things
                    yield from self._file(level, name, path)
        except TreeRefusedError as refused:
            if refused.refusal is not Refusal.UNSAFE:
                raise
            self.offenders += refused.offenders
            if len(self.offenders) >= MAX_OFFENDERS:
                raise TreeRefusedError(Refusal.UNSAFE, *self.offenders) from None

    def _check_name(self, path: bytes, name: bytes) -> None:
        if len(name) > self.limits.name_bytes or len(path) > self.limits.path_bytes:
            raise TreeRefusedError(Refusal.UNSAFE, f"{printable(path)}: has too long a name")

    def _directory(self, level: _Level, name: bytes, path: bytes) -> Entry:
        if len(self.levels) > self.limits.depth:
            raise TreeRefusedError(Refusal.UNSAFE, f"{printable(path)}: lies deeper than {self.limits.depth} levels")
        descriptor = os.open(name, OPEN_DIRECTORY, dir_fd=level.descriptor)
        try:
            require_readable_directory(descriptor, path)
        except TreeRefusedError:
            os.close(descriptor)
            raise
        self._enter(descriptor, path)
        return Entry(path=path, kind=EntryKind.DIRECTORY)

    def _link(self, level: _Level, name: bytes, path: bytes) -> Entry:
        target = os.readlink(name, dir_fd=level.descriptor)
        if not self.links:
            raise TreeRefusedError(Refusal.UNSAFE, f"{printable(path)}: is a link")
        if not link_stays_inside(path, target):
            raise TreeRefusedError(Refusal.UNSAFE, f"{printable(path)}: is a link to {printable(target)}, outside")
        return Entry(path=path, kind=EntryKind.LINK, target=target)

    def _file(self, level: _Level, name: bytes, path: bytes) -> Iterator[Entry]:
        with opened(name, OPEN_FILE, level.descriptor) as descriptor:
            status = os.fstat(descriptor)
            require_readable_file(status, path)
            self.total += status.st_size
            if self.total > self.limits.total_bytes:
                raise TreeRefusedError(Refusal.TOO_LARGE, f"more than {self.limits.total_bytes} bytes")
            executable = bool(status.st_mode & stat.S_IXUSR)
            yield Entry(
                path=path, kind=EntryKind.FILE, size=status.st_size, executable=executable, descriptor=descriptor
            )
