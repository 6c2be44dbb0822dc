"""Build an image's tree from the members of its layers, through descriptors and never outside the tree.

A layer changes what lower layers created. The rules are those of Docker's overlay:

* ``.wh.NAME`` removes NAME, and ``.wh..wh..opq`` removes everything in its directory, but neither removes what the same
  layer created;
* an existing entry is replaced, except that a directory stays if the member is a directory too;
* a symbolic link on the way to a member is followed, inside the tree, if the same layer created it. If a lower layer
  created the link, a directory replaces it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.fs.archives import malformed, too_large
from securebench.fs.durable import write_all
from securebench.fs.resolve import OpenDirectory, Resolver, StuckError, split
from securebench.fs.rmtree import remove_entry
from securebench.fs.safe_open import OPEN_DIRECTORY, open_below, opened
from securebench.fs.tar_reader import MemberKind
from securebench.images.store.ids import COUNT
from securebench.printable import printable_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from securebench.fs.archives import ArchiveLimits
    from securebench.fs.resolve import OpenDirectory
    from securebench.fs.tar_reader import Member

WHITEOUT: Final = b".wh."
OPAQUE: Final = b".wh..wh..opq"
_META: Final = b".wh..wh."
"""Prefix of internal files of the union file system aufs. They are not part of the image."""

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NOBODY: Final = 65534
_LATEST: Final = 2**33 * 1_000_000_000
_IMAGE_ERRORS: Final = frozenset(
    {errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.ENOENT, errno.ENOTDIR, errno.EPERM, errno.EMLINK}
)
"""The kernel's errors for impossible names and links. All other errors are the machine's fault."""


class TreeWalk(Resolver):
    """Opens directories below ``root`` and creates missing ones.

    ``new`` contains the real paths of two kinds of entries: those that the current layer created, and directories that
    were opened for this layer. This class adds the opened directories; its caller adds the created entries. A link in
    a path is followed if the current layer created it. A link of a layer below is replaced with a directory.
    ``made(path)`` is called for each directory that is created.
    """

    def __init__(self, root: int, new: set[bytes], made: Callable[[bytes], None]) -> None:
        super().__init__(root)
        self._new = new
        self._made = made
        self._last: tuple[Sequence[bytes], OpenDirectory] | None = None

    def enter(self, parts: Sequence[bytes]) -> OpenDirectory:
        """Open the directory at ``parts``, or return it if it is already open."""
        if self._last is None or self._last[0] != parts:
            self._last = (parts, super().enter(parts))
        return self._last[1]

    def leave(self) -> None:
        """Close the open directory. The next :meth:`enter` opens a directory again, even for the same ``parts``."""
        self._last = None
        super().leave()

    def on_missing(self, here: OpenDirectory, name: bytes) -> int:
        """Create the directory."""
        os.mkdir(name, 0o700, dir_fd=here.descriptor)
        self._made(here.path_of(name))
        return os.open(name, OPEN_DIRECTORY, dir_fd=here.descriptor)

    def on_not_a_directory(self, here: OpenDirectory, name: bytes) -> int | None:
        """If the entry is of a layer below, replace it with a directory. If it is a link of this layer, follow it."""
        if here.path_of(name) in self._new:
            return None
        remove_entry(here.descriptor, name)
        return self.on_missing(here, name)

    def on_entered(self, path: bytes) -> None:
        """Record that the directory belongs to this layer."""
        self._new.add(path)


@dataclass(slots=True)
class Unpacked:
    """The size of a tree, and what was left out of it."""

    members: int = 0
    bytes: int = 0
    """Total size of all files written, including those that a later layer replaced."""
    specials: int = 0
    """The number of devices and FIFOs. The container runtime creates those that a sandbox needs."""
    xattrs: int = 0
    """The number of extended attributes, which are mainly file capabilities."""
    owners: int = 0
    """The number of members with a user or group id that no sandbox has. Such an id becomes that of ``nobody``."""


@dataclass(frozen=True, slots=True)
class _Attributes:
    mode: int = 0o755
    owner: tuple[int, int] = (0, 0)
    mtime_ns: int = 0


class TreeBuilder:
    """Builds a tree below ``root``, the descriptor of an empty, private directory.

    ``shift`` is added to each owner id. If it is 0, the current user owns everything. Directories get their owners,
    modes and times only in :meth:`finish`. Raises :class:`ImageError` (``image-malformed``, ``image-too-large``) and
    ``OSError``.
    """

    def __init__(self, root: int, shift: int, limits: ArchiveLimits) -> None:
        self._root = root
        self._shift = shift
        self._limits = limits
        self._directories: dict[bytes, _Attributes] = {b"": _Attributes()}
        self._new: set[bytes] = set()
        """Real paths of entries that the current layer created, and of directories that were opened for this layer."""
        self._walk = TreeWalk(root, self._new, self._note_made)
        self._what = ""
        self.unpacked = Unpacked()

    def begin_layer(self, what: str) -> None:
        """Start the next layer, named ``what`` in errors."""
        self._what = what
        self._walk.leave()
        self._new.clear()

    def add(self, member: Member, content: Iterable[memoryview]) -> None:
        """Add one member to the tree."""
        self.unpacked.members += 1
        if self.unpacked.members > self._limits.members:
            raise too_large(self._what, f"the image has more than {self._limits.members} files, directories and links")
        self.unpacked.bytes += member.size
        self.unpacked.xattrs += member.xattrs
        with self._explain_errors(member.path):
            parts = self._parts(member.path)
            if not parts and member.kind is not MemberKind.DIRECTORY:
                raise StuckError("it would replace the root directory")
            if not parts:
                self._directories[b""] = self._attributes(member)
            elif parts[-1].startswith(WHITEOUT):
                self._white_out(parts[:-1], parts[-1])
            else:
                self._put(parts, member, content)

    def finish(self) -> None:
        """Set the owners, modes and times of directories, deepest first."""
        self._walk.leave()
        for path in sorted(self._directories, key=lambda path: path.count(b"/") if path else -1, reverse=True):
            descriptor = self._open_real(path)
            if descriptor is not None:
                self._set_attributes(descriptor, self._directories[path])
                os.close(descriptor)

    def close(self) -> None:
        """Close open directories."""
        self._walk.leave()

    def _parts(self, path: bytes) -> list[bytes]:
        parts = split(path)
        if b".." in parts:
            raise StuckError("its path, or the path that it links to, contains '..'")
        if len(parts) > self._limits.depth:
            raise too_large(self._named(path), f"it is more than {self._limits.depth} directories deep")
        return parts

    def _put(self, parts: list[bytes], member: Member, content: Iterable[memoryview]) -> None:
        name, attributes = parts[-1], self._attributes(member)
        place = self._walk.enter(parts[:-1])
        match member.kind:
            case MemberKind.FILE:
                _create(place, name, lambda: self._write(place, name, attributes, content))
            case MemberKind.DIRECTORY:
                self._make_directory(place, name)
                self._directories[place.path_of(name)] = attributes
            case MemberKind.SYMLINK:
                _create(place, name, lambda: os.symlink(member.link, name, dir_fd=place.descriptor))
                self._set_link_attributes(place, name, attributes)
            case MemberKind.HARDLINK:
                place = self._link(self._parts(member.link), parts)
            case MemberKind.SPECIAL:
                remove_entry(place.descriptor, name)
                self.unpacked.specials += 1
        self._new.add(place.path_of(name))

    def _write(self, place: OpenDirectory, name: bytes, attributes: _Attributes, content: Iterable[memoryview]) -> None:
        with opened(name, _CREATE, place.descriptor) as descriptor:
            for piece in content:
                write_all(descriptor, piece)
            self._set_attributes(descriptor, attributes)

    @staticmethod
    def _make_directory(place: OpenDirectory, name: bytes) -> None:
        try:
            os.mkdir(name, 0o700, dir_fd=place.descriptor)
        except FileExistsError:
            if not _is_directory(place, name):
                remove_entry(place.descriptor, name)
                os.mkdir(name, 0o700, dir_fd=place.descriptor)

    def _link(self, target: list[bytes], parts: list[bytes]) -> OpenDirectory:
        """Create a hard link to an entry of the tree. If the entry is a symbolic link, do not follow it."""
        if not target:
            raise StuckError("it is a hard link to the root")
        source = os.dup(self._walk.enter(target[:-1]).descriptor)
        try:
            place = self._walk.enter(parts[:-1])
            name = parts[-1]
            _create(
                place,
                name,
                lambda: os.link(
                    target[-1], name, src_dir_fd=source, dst_dir_fd=place.descriptor, follow_symlinks=False
                ),
            )
        finally:
            os.close(source)
        return place

    def _white_out(self, parents: list[bytes], name: bytes) -> None:
        hidden = name.removeprefix(WHITEOUT)
        if hidden in {b"", b".", b".."}:
            raise StuckError("it is a whiteout ('.wh.') that does not name an entry to remove")
        place = self._walk.enter(parents)
        if name == OPAQUE:
            self._clear(place.path)
        elif not name.startswith(_META) and place.path_of(hidden) not in self._new:
            remove_entry(place.descriptor, hidden)

    def _clear(self, top: bytes) -> None:
        """Remove what layers below created in the directory ``top``, at any depth. Keep what this layer created."""
        pending = [top]
        while pending:
            path = pending.pop()
            descriptor = self._open_real(path)
            if descriptor is None:
                continue
            try:
                for name in map(os.fsencode, os.listdir(descriptor)):  # noqa: PTH208 - of a descriptor
                    entry = path + b"/" + name if path else name
                    if entry in self._new:
                        pending.append(entry)
                    else:
                        remove_entry(descriptor, name)
            finally:
                os.close(descriptor)

    def _open_real(self, path: bytes) -> int | None:
        """Open a directory by its real path, or return ``None`` if it no longer exists."""
        try:
            return open_below(self._root, split(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _attributes(self, member: Member) -> _Attributes:
        owner = tuple(number if number < COUNT else _NOBODY for number in (member.uid, member.gid))
        self.unpacked.owners += owner != (member.uid, member.gid)
        return _Attributes(member.mode, (owner[0], owner[1]), min(max(member.mtime_ns, 0), _LATEST))

    def _note_made(self, path: bytes) -> None:
        self._directories[path] = _Attributes()

    def _set_attributes(self, descriptor: int, attributes: _Attributes) -> None:
        if self._shift:
            uid, gid = attributes.owner
            os.fchown(descriptor, uid + self._shift, gid + self._shift)
        os.fchmod(descriptor, attributes.mode)  # after the owner, since chown clears the set-id bits
        os.utime(descriptor, ns=(attributes.mtime_ns, attributes.mtime_ns))

    def _set_link_attributes(self, place: OpenDirectory, name: bytes, attributes: _Attributes) -> None:
        if self._shift:
            uid, gid = attributes.owner
            os.chown(name, uid + self._shift, gid + self._shift, dir_fd=place.descriptor, follow_symlinks=False)
        times = (attributes.mtime_ns, attributes.mtime_ns)
        os.utime(name, ns=times, dir_fd=place.descriptor, follow_symlinks=False)

    def _named(self, path: bytes) -> str:
        return f"{self._what}: {printable_name(path)}"

    @contextmanager
    def _explain_errors(self, path: bytes) -> Iterator[None]:
        try:
            yield
        except StuckError as error:
            raise malformed(self._named(path), str(error)) from None
        except OSError as error:
            if error.errno not in _IMAGE_ERRORS:
                raise
            raise malformed(self._named(path), f"it cannot be created: {error.strerror}") from None


def _create(place: OpenDirectory, name: bytes, make: Callable[[], None]) -> None:
    """Create an entry, replacing an existing one."""
    try:
        make()
    except FileExistsError:
        remove_entry(place.descriptor, name)
        make()


def _is_directory(place: OpenDirectory, name: bytes) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=place.descriptor, follow_symlinks=False).st_mode)
