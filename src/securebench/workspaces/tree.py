"""The one way in which a tree of files that somebody else wrote is looked at.

Every step is by descriptor, from the root down; no link is ever followed; only regular files are opened, and never in
a way that could block. Names are bytes. Depth, entries and bytes are bounded before anything is read, so that a walk
ends in bounded time and memory whatever it meets. What is not a plain file, a plain directory or a link that stays
inside is refused by name.

A file's own mode bits decide whether it counts as readable, not this process's rights: the same tree has the same
outcome for root and for an ordinary user.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

MIB = 1024 * 1024

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""``O_NONBLOCK``: opening a FIFO returns at once instead of waiting for a writer."""

MAX_OFFENDERS = 20
"""A walk that has found so many offenders stops: nobody reads more."""
_SHOWN_LENGTH = 160
_CHUNK = MIB
_SET_ID = stat.S_ISUID | stat.S_ISGID
_READ_DIRECTORY = stat.S_IRUSR | stat.S_IXUSR


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLimits:
    """What a tree may hold. ``total_bytes`` counts apparent sizes, so that a sparse file weighs what it claims."""

    total_bytes: int = 512 * MIB
    entries: int = 50_000
    depth: int = 64
    name_bytes: int = 255
    path_bytes: int = 4096


class Refusal(StrEnum):
    """Why a tree or a file was refused."""

    MISSING = "missing"
    UNSAFE = "unsafe"
    TOO_LARGE = "too_large"


class TreeRefusedError(Exception):
    """A tree or file that will not be read. ``offenders``: at most ``MAX_OFFENDERS`` printable lines, one each."""

    def __init__(self, refusal: Refusal, *offenders: str) -> None:
        super().__init__("; ".join(offenders))
        self.refusal = refusal
        self.offenders = offenders


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


def printable(name: bytes) -> str:
    """Return ``name`` for people: control, direction and invalid characters escaped, and clipped."""
    text = name.decode("utf-8", "backslashreplace")
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return shown if len(shown) <= _SHOWN_LENGTH else shown[:_SHOWN_LENGTH] + "..."


@contextmanager
def opened(path: str | bytes | Path, flags: int, directory: int | None = None) -> Iterator[int]:
    """Open ``path`` (below the descriptor ``directory``) and close it at the end."""
    descriptor = os.open(path, flags, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


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
    with opened_root(root) as top, _descended(top, parents) as directory:
        yield from _Walk(limits or TreeLimits(), links=links).run(directory, only=name)


@contextmanager
def opened_root(root: Path) -> Iterator[int]:
    """Open the directory ``root``. Raises :class:`TreeRefusedError` where it is not a readable, real directory."""
    with refusing(os.fsencode(root.name)), opened(root, OPEN_DIRECTORY) as descriptor:
        require_readable_directory(descriptor, os.fsencode(root.name))
        yield descriptor


@contextmanager
def refusing(path: bytes) -> Iterator[None]:
    """Turn what an open says about a hostile ``path`` into :class:`TreeRefusedError`."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise TreeRefusedError(Refusal.MISSING, f"{printable(path)}: does not exist") from None
        reason = _REFUSED_ERRORS.get(error.errno or 0)
        if reason is None:
            raise
        raise TreeRefusedError(Refusal.UNSAFE, f"{printable(path)}: {reason}") from None


_REFUSED_ERRORS = {
    errno.ELOOP: "is a link",
    errno.ENOTDIR: "is not a directory, or leads through a link",
    errno.EACCES: "may not be read by its owner",
    errno.EPERM: "may not be read by its owner",
    errno.ENXIO: "is a socket or device",
    errno.ENAMETOOLONG: "has too long a name",
}


@contextmanager
def _descended(top: int, parents: list[bytes]) -> Iterator[int]:
    """Open the directory that ``parents`` lead to from ``top``."""
    directory = os.dup(top)
    try:
        for depth, part in enumerate(parents, start=1):
            path = b"/".join(parents[:depth])
            with refusing(path):
                child = os.open(part, OPEN_DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = child
            require_readable_directory(directory, path)
        yield directory
    finally:
        os.close(directory)


def require_readable_directory(descriptor: int, path: bytes) -> None:
    """Refuse a directory that its owner may not read and search."""
    if os.fstat(descriptor).st_mode & _READ_DIRECTORY != _READ_DIRECTORY:
        raise TreeRefusedError(Refusal.UNSAFE, f"{printable(path)}: may not be read by its owner")


def require_readable_file(status: os.stat_result, path: bytes) -> None:
    """Refuse what is not a regular file that its owner may read, and set-id files."""
    problem = ""
    if not stat.S_ISREG(status.st_mode):
        problem = f"is a {_KIND_NAMES.get(stat.S_IFMT(status.st_mode), 'strange object')}"
    elif not status.st_mode & stat.S_IRUSR:
        problem = "may not be read by its owner"
    elif status.st_mode & _SET_ID:
        problem = "has a set-user-id or set-group-id bit"
    if problem:
        raise TreeRefusedError(Refusal.UNSAFE, f"{printable(path)}: {problem}")


_KIND_NAMES = {
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "block device",
    stat.S_IFCHR: "character device",
}


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
