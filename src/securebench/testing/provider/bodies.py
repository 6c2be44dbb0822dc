"""Reading and decompressing the bodies of requests, with limits."""

from __future__ import annotations

import importlib
import zlib
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import BufferedIOBase

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""The limit of a request's body, compressed and decompressed."""

_GZIP: Final = 31


class BodyError(Exception):
    """A body that cannot be read. ``status`` is the HTTP status for its client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def read_body(source: BufferedIOBase, headers: Mapping[str, str]) -> bytes:
    """Return a request's body. Names of ``headers`` are in lower case. Raises :class:`BodyError` and ``OSError``."""
    is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
    raw = _chunks(source) if is_chunked else source.read(_size(headers.get("content-length", "0"), 10))
    return _decompressed(raw, headers.get("content-encoding", "identity").lower())


def _size(text: str, base: int) -> int:
    try:
        size = int(text, base)
    except ValueError:
        raise BodyError(400, "the size of the body is not a number") from None
    if not 0 <= size <= MAX_BODY_BYTES:
        raise BodyError(413, "the body is too large")
    return size


def _chunks(source: BufferedIOBase) -> bytes:
    body = bytearray()
    while size := _size(source.readline(1024).split(b";")[0].decode("latin-1"), 16):
        body += source.read(size)
        source.readline(1024)
        if len(body) > MAX_BODY_BYTES:
            raise BodyError(413, "the body is too large")
    while source.readline(1024).strip():
        pass
    return bytes(body)


def _decompressed(raw: bytes, encoding: str) -> bytes:
    """Decompress a body. The result may be slightly above the limit, which is then an error."""
    opened = {"identity": _identity, "gzip": _gunzipped, "zstd": _unzstd}.get(encoding, _unknown)
    body = opened(raw)
    if len(body) > MAX_BODY_BYTES:
        raise BodyError(413, "the body is too large")
    return body


def _identity(raw: bytes) -> bytes:
    return raw


def _unknown(_raw: bytes) -> bytes:
    raise BodyError(415, "the body's encoding is not supported")


def _gunzipped(raw: bytes) -> bytes:
    try:
        return zlib.decompressobj(_GZIP).decompress(raw, MAX_BODY_BYTES + 1)
    except zlib.error:
        raise BodyError(400, "the body is not gzip") from None


def _unzstd(raw: bytes) -> bytes:
    """Decompress zstd if ``zstandard`` is installed. No known client sends zstd by default."""
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError:
        return _unknown(raw)
    try:
        with zstandard.ZstdDecompressor().stream_reader(raw) as reader:
            return cast("bytes", reader.read(MAX_BODY_BYTES + 1))
    except zstandard.ZstdError:
        raise BodyError(400, "the body is not zstd") from None
