"""A strict reader for untrusted tar archives: names are bytes, headers are bounded, and nothing is written to disk.

It reads the formats of image tools: ustar, the pre-POSIX format, PAX, and GNU's long names and large numbers. Paths are
not interpreted here. Sparse files and members of unknown types are errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from securebench.fs.archives import malformed, too_large
from securebench.fs.streams import CHUNK
from securebench.printable import printable_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from securebench.errors import ImageError

BLOCK: Final = 512
_ZERO: Final = bytes(BLOCK)
_NANO: Final = 1_000_000_000
_BINARY: Final = 0x80
_DIGITS: Final = 20
_XATTRS: Final = (b"SCHILY.xattr.", b"LIBARCHIVE.xattr.")
_SPARSE: Final = b"GNU.sparse."
_OLD_SPARSE: Final = b"S"


class MemberKind(Enum):
    """The type of a member."""

    FILE = auto()
    DIRECTORY = auto()
    SYMLINK = auto()
    HARDLINK = auto()
    SPECIAL = auto()
    """A device or FIFO."""


@dataclass(frozen=True, slots=True)
class Member:
    """The header of a member.

    ``size``: bytes of content. ``link``: target of a link. ``xattrs``: number of extended attributes.
    """

    path: bytes
    kind: MemberKind
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    link: bytes = b""
    xattrs: int = 0


_KINDS: Final = {
    b"0": MemberKind.FILE,
    b"\0": MemberKind.FILE,
    b"7": MemberKind.FILE,
    b"1": MemberKind.HARDLINK,
    b"2": MemberKind.SYMLINK,
    b"3": MemberKind.SPECIAL,
    b"4": MemberKind.SPECIAL,
    b"5": MemberKind.DIRECTORY,
    b"6": MemberKind.SPECIAL,
}
_LONG: Final = {b"L": b"path", b"K": b"linkpath"}


class TarReader:
    """Reads one archive from start to end. Iterating over it yields members; :meth:`content` reads the current one.

    ``what`` names the archive in errors. Raises :class:`ImageError`: ``image-malformed``, or ``image-too-large``
    if the extended headers before a member have more than ``header_limit`` bytes in total.
    """

    def __init__(self, pieces: Iterable[bytes], what: str, header_limit: int) -> None:
        self._pieces = iter(pieces)
        self._buffer = memoryview(b"")
        self._what = what
        self._header_limit = header_limit
        self._extended_size = 0
        """Bytes of the extended headers before the next member."""
        self._left = 0
        """Unread bytes of the current member's content."""
        self._padding = 0

    def __iter__(self) -> Iterator[Member]:
        extra: dict[bytes, bytes] = {}
        while (header := self._next_header()) is not None:
            kind = header[156:157]
            if kind in _LONG:
                extra[_LONG[kind]] = self._extended(header).rstrip(b"\0")
            elif kind == b"x":
                extra |= self._records(self._extended(header))
            elif kind == b"g":  # a global header, such as a comment: image tools do not rely on it
                self._extended(header)
            else:
                member = self._member(header, extra)
                extra, self._extended_size = {}, 0
                self._expect(member.size)
                yield member
        self._drain()

    def content(self) -> Iterator[memoryview]:
        """Yield the unread rest of the current member's content."""
        while self._left:
            piece = self._read_up_to(min(self._left, CHUNK))
            self._left -= len(piece)
            yield piece

    def _next_header(self) -> bytes | None:
        """Skip the rest of the current member and return the next header, or ``None`` at the end mark."""
        for _ in self.content():
            pass
        self._read_exactly(self._padding)
        self._padding = 0
        header = self._read_exactly(BLOCK)
        if header == _ZERO:
            return None
        # The checksum is computed over the header with spaces in the checksum field.
        wanted = _until_nul(header[148:156]).strip(b" ")
        if wanted.strip(b"01234567") or int(wanted or b"0", 8) != sum(header) - sum(header[148:156]) + 8 * 0x20:
            raise malformed(self._what, "it is damaged or not a tar archive: a header has the wrong checksum")
        return header

    def _expect(self, size: int) -> None:
        self._left, self._padding = size, -size % BLOCK

    def _extended(self, header: bytes) -> bytes:
        size = self._number(header[124:136], "size")
        self._extended_size += size + BLOCK
        if self._extended_size > self._header_limit:
            raise too_large(self._what, f"the extended headers of a member have more than {self._header_limit} bytes")
        self._expect(size)
        return b"".join(self.content())

    def _member(self, header: bytes, extra: dict[bytes, bytes]) -> Member:
        path = extra.get(b"path") or _path(header)
        kind = _KINDS.get(header[156:157])
        if header[156:157] == _OLD_SPARSE or any(key.startswith(_SPARSE) for key in extra):
            raise self._unreadable(path, "it is in a sparse format, which is not supported")
        if kind is None:
            raise self._unreadable(path, f"its type {printable_name(header[156:157])!r} is not supported")
        size = self._field(header[124:136], extra, b"size") if kind is MemberKind.FILE else 0
        if header[156:157] == b"\0" and path.endswith(b"/"):  # a directory in the pre-POSIX format
            kind = MemberKind.DIRECTORY
        link = extra.get(b"linkpath") or _until_nul(header[157:257])
        if b"\0" in path or b"\0" in link:
            raise self._unreadable(path, "a name contains a NUL byte")
        return Member(
            path=path,
            kind=kind,
            mode=self._number(header[100:108], "mode") & 0o7777,
            uid=self._field(header[108:116], extra, b"uid"),
            gid=self._field(header[116:124], extra, b"gid"),
            size=size,
            mtime_ns=self._time(header, extra),
            link=link,
            xattrs=sum(key.startswith(_XATTRS) for key in extra),
        )

    def _records(self, data: bytes) -> dict[bytes, bytes]:
        """Read PAX records: ``LENGTH KEY=VALUE`` and a newline. ``LENGTH`` counts all bytes of the record."""
        records: dict[bytes, bytes] = {}
        at = 0
        while at < len(data):
            space = data.find(b" ", at, at + _DIGITS)
            digits = data[at:space] if space > 0 else b""
            end = at + int(digits) if digits.isdigit() else 0
            key, equals, value = data[space + 1 : end - 1].partition(b"=")
            if end <= space or end > len(data) or data[end - 1 : end] != b"\n" or not equals:
                raise malformed(self._what, "an extended header is damaged")
            records[key] = value
            at = end
        return records

    def _field(self, raw: bytes, extra: dict[bytes, bytes], key: bytes) -> int:
        if key not in extra:
            return self._number(raw, key.decode())
        if not extra[key].isdigit() or len(extra[key]) > _DIGITS:
            raise malformed(self._what, f"a header's {key.decode()} is {printable_name(extra[key])!r}, not a number")
        return int(extra[key])

    def _time(self, header: bytes, extra: dict[bytes, bytes]) -> int:
        if b"mtime" not in extra:
            return self._number(header[136:148], "mtime", signed=True) * _NANO
        whole, _, part = extra[b"mtime"].partition(b".")
        sign = -1 if whole.startswith(b"-") else 1
        digits, part = whole.removeprefix(b"-"), part[:9].ljust(9, b"0")
        if not digits.isdigit() or not part.isdigit() or len(digits) > _DIGITS:
            raise malformed(self._what, f"a header's mtime is {printable_name(extra[b'mtime'])!r}, not a time")
        return sign * (int(digits) * _NANO + int(part))

    def _number(self, raw: bytes, name: str, *, signed: bool = False) -> int:
        """Read a number: octal digits, or big-endian bytes with the first bit set."""
        if raw[0] & _BINARY:
            value = int.from_bytes(bytes([raw[0] & 0x7F]) + raw[1:], "big")
            if raw[0] & 0x40:
                value -= 1 << (8 * len(raw) - 1)
        else:
            digits = _until_nul(raw).strip(b" ")
            if digits.strip(b"01234567"):
                raise malformed(self._what, f"a header's {name} is {printable_name(raw)!r}, not a number")
            value = int(digits or b"0", 8)
        if value < 0 and not signed:
            raise malformed(self._what, f"a header's {name} is negative")
        return value

    def _unreadable(self, path: bytes, problem: str) -> ImageError:
        return malformed(f"{self._what}: {printable_name(path)}", problem)

    def _read_up_to(self, size: int) -> memoryview:
        """Read and return between one and ``size`` bytes. Raises :class:`ImageError` if no bytes are left."""
        while not self._buffer:
            piece = next(self._pieces, None)
            if piece is None:
                raise malformed(self._what, "it is truncated")
            self._buffer = memoryview(piece)
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found

    def _read_exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            found += self._read_up_to(size - len(found))
        return found

    def _drain(self) -> None:
        """Read the padding after the end mark, because the digest of the archive includes it."""
        self._buffer = memoryview(b"")
        for _ in self._pieces:
            pass


def _path(header: bytes) -> bytes:
    name = _until_nul(header[:100])
    # Only ustar (magic "ustar\0") has a prefix. GNU's format (magic "ustar  \0") stores times in these bytes.
    prefix = _until_nul(header[345:500]) if header[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _until_nul(raw: bytes) -> bytes:
    return raw.partition(b"\0")[0]
