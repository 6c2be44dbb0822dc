"""Git's ``GIT binary patch``: compressed content, whole or as a delta, in base 85."""

from __future__ import annotations

import base64
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.patches.model import MAX_CHANGED_BYTES, PatchDoesNotApplyError, PatchInvalidError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER = re.compile(rb"(literal|delta) (\d{1,10})\r?")
_CHUNK = 52
_LENGTHS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_MORE = 0x80


@dataclass(frozen=True, slots=True)
class BinaryHunk:
    """New content, or a delta to the old content."""

    data: bytes
    is_delta: bool

    def apply(self, old: bytes) -> bytes:
        """Return the new content. Raises :class:`PatchError`."""
        return _apply_delta(old, self.data) if self.is_delta else self.data


def literal(content: bytes) -> bytes:
    """Return ``content`` as a binary hunk that git reads."""
    deflated = zlib.compress(content)
    chunks = (deflated[at : at + _CHUNK] for at in range(0, len(deflated), _CHUNK))
    lines = (_LENGTHS[len(chunk) - 1 : len(chunk)] + base64.b85encode(chunk, pad=True) + b"\n" for chunk in chunks)
    return b"literal %d\n" % len(content) + b"".join(lines) + b"\n"


def read_hunk(header: bytes, lines: Iterator[bytes]) -> BinaryHunk:
    """Return the hunk that begins with ``header``. Raises :class:`PatchInvalidError`."""
    match = _HEADER.fullmatch(header)
    if match is None:
        raise PatchInvalidError("a hunk of a binary patch must begin with 'literal SIZE' or 'delta SIZE'")
    size = int(match[2])
    if size > MAX_CHANGED_BYTES:
        raise PatchInvalidError(f"a binary patch is larger than {MAX_CHANGED_BYTES} bytes")
    data = bytearray()
    for line in lines:
        text = line.removesuffix(b"\r")
        if not text:
            return BinaryHunk(_inflated(bytes(data), size), is_delta=match[1] == b"delta")
        data += _decoded(text)
    raise PatchInvalidError("a binary patch is not terminated")


def _decoded(line: bytes) -> bytes:
    length = _LENGTHS.find(line[:1]) + 1
    try:
        data = base64.b85decode(line[1:])
    except ValueError:
        data = b""
    if length == 0 or not length <= len(data) < length + 4:
        raise PatchInvalidError("a line of a binary patch is damaged")
    return data[:length]


def _inflated(data: bytes, size: int) -> bytes:
    """Inflate ``data`` to exactly ``size`` bytes, never more."""
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(data, size + 1)
    except zlib.error:
        raise PatchInvalidError("a binary patch is damaged") from None
    if len(content) != size or not inflater.eof:
        raise PatchInvalidError("a binary patch does not have the size that its header gives")
    return content


def _apply_delta(old: bytes, delta: bytes) -> bytes:
    reader = iter(delta)
    try:
        if _size(reader) != len(old):
            raise PatchDoesNotApplyError("a binary patch was made for different content")
        size, new = _size(reader), bytearray()
        if size > MAX_CHANGED_BYTES:
            raise PatchInvalidError(f"the result of a binary patch is larger than {MAX_CHANGED_BYTES} bytes")
        for operation in reader:
            new += _piece(operation, reader, old)
            if len(new) > size:
                break
    except StopIteration:
        raise PatchInvalidError("a binary patch is truncated") from None
    if len(new) != size:
        raise PatchInvalidError("the result of a binary patch does not have the size that its header gives")
    return bytes(new)


def _size(reader: Iterator[int]) -> int:
    """Decode a number in groups of seven bits, lowest first."""
    value, shift, byte = 0, 0, _MORE
    while byte & _MORE:
        byte = next(reader)
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 63:  # noqa: PLR2004 - no size has more bits
            raise PatchInvalidError("a binary patch is damaged")
    return value


def _piece(operation: int, reader: Iterator[int], old: bytes) -> bytes:
    """Return the output of one operation: literal bytes, or a range of ``old`` given by up to seven bytes."""
    if not operation & _MORE:
        if operation == 0:
            raise PatchInvalidError("a binary patch is damaged")
        return bytes(
            [next(reader) for _ in range(operation)]
        )  # a list, so that StopIteration at the end of the data propagates
    given = [next(reader) if operation >> bit & 1 else 0 for bit in range(7)]
    start = int.from_bytes(bytes(given[:4]), "little")
    length = int.from_bytes(bytes(given[4:]), "little") or 0x10000
    if start + length > len(old):
        raise PatchInvalidError("a binary patch copies beyond the end of the old content")
    return old[start : start + length]
