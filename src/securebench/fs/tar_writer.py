"""Writing reproducible tar archives, such as sealed candidates: the same tree always gives the same bytes.

The format is that of GNU tar, in which names are raw bytes of any length. Modes and owners are as given, except that
the owner is root by default and the mode of a link is always 0644. Times are zero, and the names of users and groups
are empty. The standard library's ``tarfile`` writes the same bytes, but it is slow, and its padding has changed between
Python releases.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Final, Self, TypeAlias

from securebench.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

_BLOCK: Final = 512
_RECORD: Final = 10240
_NAME: Final = 100
_MAX_OCTAL: Final = 8**11
_MAX_ID: Final = 8**7
Owner: TypeAlias = tuple[int, int]
"""User and group id of a member."""

_ROOT: Final[Owner] = (0, 0)
_FILE, _LINK, _DIRECTORY, _LONG_NAME, _LONG_LINK = b"0", b"2", b"5", b"L", b"K"
_TAIL: Final = b"ustar  \0" + bytes(_BLOCK - 265)
_AT_ONCE: Final = MIB


class TarWriter:
    """Writes members to ``output``, and hashes and counts the bytes. A context manager that writes the end mark."""

    def __init__(self, output: IO[bytes]) -> None:
        self._sink = _Sink(output)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._sink.write(end_of_archive(self._sink.size))
        self._sink.close()

    @property
    def digest(self) -> str:
        """The sha256 (hex) of the archive, once the context manager has exited."""
        return self._sink.digest

    @property
    def size(self) -> int:
        """The size of the archive so far, in bytes."""
        return self._sink.size

    def directory(self, path: bytes, mode: int = 0o755) -> None:
        """Write a directory."""
        self._sink.write(directory_member(path, mode))

    def link(self, path: bytes, target: bytes) -> None:
        """Write a symbolic link."""
        self._sink.write(link_member(path, target))

    def file(self, path: bytes, size: int, chunks: Iterable[bytes], mode: int = 0o644) -> None:
        """Write a file; its ``chunks`` must hold exactly ``size`` bytes."""
        self._sink.write(file_header(path, size, mode))
        for chunk in chunks:
            self._sink.write(chunk)
        self._sink.write(padding(size))


class _Sink:
    """Joins small pieces and writes them. Meanwhile, a second thread hashes what is written."""

    def __init__(self, output: IO[bytes]) -> None:
        self._output = output
        self._sha = hashlib.sha256()
        self._gathered = bytearray()
        self._hashing: Future[None] | None = None
        self._hasher = ThreadPoolExecutor(1, "seal")
        self.size = 0

    @property
    def digest(self) -> str:
        return self._sha.hexdigest()

    def write(self, data: bytes) -> None:
        self.size += len(data)
        if len(data) < _AT_ONCE // 4:
            self._gathered += data
            if len(self._gathered) < _AT_ONCE:
                return
            data = b""
        if self._gathered:
            gathered, self._gathered = bytes(self._gathered), bytearray()
            self._pass_on(gathered)
        if data:
            self._pass_on(data)

    def close(self) -> None:
        try:
            if self._gathered:
                self._pass_on(bytes(self._gathered))
            self._wait()
        finally:
            self._hasher.shutdown()

    def _pass_on(self, data: bytes) -> None:
        self._wait()
        self._hashing = self._hasher.submit(self._sha.update, data)
        self._output.write(data)

    def _wait(self) -> None:
        """Wait for the hash of the last piece, so that at most two pieces are in memory."""
        if self._hashing is not None:
            self._hashing.result()


def directory_member(path: bytes, mode: int, owner: Owner = _ROOT) -> bytes:
    """Return the member of an archive for a directory."""
    return _member(path + b"/", _DIRECTORY, mode, owner)


def link_member(path: bytes, target: bytes, owner: Owner = _ROOT) -> bytes:
    """Return the member of an archive for a symbolic link."""
    return _member(path, _LINK, 0o644, owner, link=target)


def file_header(path: bytes, size: int, mode: int, owner: Owner = _ROOT) -> bytes:
    """Return what precedes a file's content in an archive. :func:`padding` must follow the content."""
    return _member(path, _FILE, mode, owner, size=size)


def padding(size: int) -> bytes:
    """Return the padding that follows a file's content. The content has ``size`` bytes."""
    return bytes(-size % _BLOCK)


def end_of_archive(size: int) -> bytes:
    """Return the end mark and padding of an archive with ``size`` bytes of members."""
    return bytes(2 * _BLOCK) + bytes(-(size + 2 * _BLOCK) % _RECORD)


def _member(path: bytes, kind: bytes, mode: int, owner: Owner, *, size: int = 0, link: bytes = b"") -> bytes:
    long_link = _long(link, _LONG_LINK) if len(link) > _NAME else b""
    long_name = _long(path, _LONG_NAME) if len(path) > _NAME else b""
    return long_link + long_name + _header(path, kind, mode, size, link, owner)


def _long(name: bytes, kind: bytes) -> bytes:
    """Return GNU's extra member for a name or link target that is too long for a header."""
    content = name + b"\0"
    return _header(b"././@LongLink", kind, 0, len(content), b"", _ROOT) + content + padding(len(content))


def _header(path: bytes, kind: bytes, mode: int, size: int, link: bytes, owner: Owner) -> bytes:
    digits = b"%011o\0" % size if size < _MAX_OCTAL else b"\x80" + size.to_bytes(11, "big")
    ids = b"%b%b%b" % (b"%07o\0" % mode, *map(_id, owner))
    head = path[:_NAME].ljust(_NAME, b"\0") + ids + digits + b"00000000000\0"
    tail = kind + link[:_NAME].ljust(_NAME, b"\0") + _TAIL
    return head + b"%06o\0 " % (sum(head) + sum(tail) + 8 * 0x20) + tail


def _id(number: int) -> bytes:
    return b"%07o\0" % number if number < _MAX_ID else b"\x80" + number.to_bytes(7, "big")
