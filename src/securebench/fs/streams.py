"""Reading untrusted bytes: counted, hashed, decompressed, and bounded."""

from __future__ import annotations

import bz2
import hashlib
import lzma
import zlib
from typing import TYPE_CHECKING, Protocol, TypeVar

from securebench.fs.archives import malformed, too_large

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from securebench.fs.archives import ArchiveLimits

CHUNK = 1024 * 1024
_MAGIC_LENGTH = 6
_XZ_MEMORY = 512 * 1024 * 1024

_Piece = TypeVar("_Piece", bytes, bytes | memoryview)


class Readable(Protocol):
    """Anything from which bytes can be read, such as a file or a pipe."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; empty at the end of the stream."""


def chunks(source: Readable) -> Iterator[bytes]:
    """Yield the rest of ``source`` in pieces."""
    while piece := source.read(CHUNK):
        yield piece


class Digester:
    """Counts and hashes the bytes that pass through it."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.size = 0

    def through(self, pieces: Iterable[_Piece]) -> Iterator[_Piece]:
        """Yield ``pieces`` unchanged, and count and hash them."""
        for piece in pieces:
            self._hash.update(piece)
            self.size += len(piece)
            yield piece

    @property
    def digest(self) -> str:
        """The digest of all bytes so far."""
        return f"sha256:{self._hash.hexdigest()}"


def capped(pieces: Iterable[bytes], limit: int, what: str) -> Iterator[bytes]:
    """Yield ``pieces``. Raises :class:`ImageError` (``image-too-large``) if they have more than ``limit`` bytes."""
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > limit:
            raise too_large(what, f"it is larger than {limit} bytes")
        yield piece


def decompressed(pieces: Iterable[bytes], limits: ArchiveLimits, what: str) -> Iterator[bytes]:
    """Yield ``pieces``, decompressed if they are compressed with gzip, xz, bzip2 or zstd.

    Raises :class:`ImageError`: ``image-malformed`` for truncated or damaged data, ``image-too-large`` for
    data beyond the limits, such as a decompression bomb.
    """
    head, rest = _head(iter(pieces))
    kind = next((kind for magic, kind in _KINDS.items() if head.startswith(magic)), None)
    whole = _joined(head, rest)
    if kind is None:
        yield from capped(whole, limits.bytes, what)
        return
    read = Digester()
    size = 0
    try:
        for piece in _expanded(kind, read.through(whole)):
            size += len(piece)
            if size > max(limits.ratio_floor, limits.ratio * read.size):
                raise too_large(what, f"{read.size} compressed bytes expand to at least {size} bytes")
            if size > limits.bytes:
                raise too_large(what, f"it is larger than {limits.bytes} bytes after decompression")
            yield piece
    except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
        raise malformed(what, f"it cannot be decompressed: {error}") from None


class _Decompressor(Protocol):
    """The interface of the decompressors of ``lzma`` and ``bz2``."""

    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""

    @property
    def unused_data(self) -> bytes:
        """Input after the end of the stream."""

    @property
    def needs_input(self) -> bool:
        """Whether more input is needed for more output."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Add ``data`` and return up to ``max_length`` bytes of output."""


class _Gzip:
    """zlib with the interface of :class:`_Decompressor`."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


class _Zstd:
    """zstd with the interface of :class:`_Decompressor`. Raises ``OSError``. The library is loaded on first use.

    The decompression window is limited to 128 MiB, the library's default.
    """

    def __init__(self) -> None:
        from securebench.fs.zstd import zstd

        self._inner = zstd.ZstdDecompressor()
        self._error = zstd.ZstdError

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    @property
    def needs_input(self) -> bool:
        return self._inner.needs_input

    def decompress(self, data: bytes, max_length: int) -> bytes:
        try:
            return self._inner.decompress(data, max_length)
        except self._error as error:
            raise OSError(str(error)) from None


def _xz() -> _Decompressor:
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


_KINDS: dict[bytes, Callable[[], _Decompressor]] = {
    b"\x1f\x8b": _Gzip,
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\x00": _xz,
    b"\x28\xb5\x2f\xfd": _Zstd,
}


def _expanded(kind: Callable[[], _Decompressor], pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the decompressed content of all streams in ``pieces``. Zeros may follow each stream."""
    data = next(pieces, b"")
    while data:
        engine = kind()
        while not engine.eof:
            if piece := engine.decompress(data, CHUNK):
                yield piece
            data = b""
            if engine.needs_input and not engine.eof:
                data = next(pieces, b"")
                if not data:
                    raise EOFError("it is truncated")
        data = engine.unused_data.lstrip(b"\0")
        while not data and (more := next(pieces, b"")):
            data = more.lstrip(b"\0")


def _head(pieces: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    head = b""
    while len(head) < _MAGIC_LENGTH and (piece := next(pieces, b"")):
        head += piece
    return head, pieces


def _joined(head: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from rest
