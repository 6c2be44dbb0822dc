"""Reading the objects of an untrusted git repository, loose and packed, with limits.

The repository's configuration, hooks, filters and alternates are ignored.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import struct
import zlib
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from securebench.fs.safe_open import OPEN_FILE, opened
from securebench.images.build.git.model import unusable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_OBJECT: Final = 256 * 1024 * 1024
_INDEX_MAGIC: Final = b"\xfftOc\x00\x00\x00\x02"
_FANOUT: Final = 8
_NAMES: Final = _FANOUT + 256 * 4
_LARGE: Final = 0x8000_0000
_KINDS: Final = {1: b"commit", 2: b"tree", 3: b"blob", 4: b"tag"}
_OFFSET_DELTA, _NAME_DELTA = 6, 7
_MAX_CHAIN: Final = 4096
_LOOSE = re.compile(r"[0-9a-f]{40}")
PACK_INDEX: Final = re.compile(r"pack-[0-9a-f]{40}\.idx")
"""The file names of pack indexes. Packs whose index has another name are not read."""


class GitObjects:
    """The objects below a repository's ``objects`` directory, by their ids (40 hexadecimal digits).

    A context manager. Raises :class:`ImageError` (``source-unusable``) for missing, damaged or too large objects.
    """

    def __init__(self, directory: Path, what: str) -> None:
        self._directory = directory
        self._what = what
        self._stack = ExitStack()
        self._packs: list[_Pack] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self, name: str, kind: bytes) -> bytes:
        """Return the content of the object, which must be of this kind: ``commit``, ``tree`` or ``blob``."""
        try:
            found, data = self._loose(name) or self._packed(name)
        except (zlib.error, struct.error, IndexError, ValueError, OSError, RuntimeError) as error:
            # A delta that ends too early raises StopIteration in a generator, and Python turns it into RuntimeError.
            raise unusable(self._what, f"its object {name} cannot be read: {error}") from None
        whole = hashlib.sha1(b"%s %d\0" % (found, len(data)), usedforsecurity=False)
        whole.update(data)
        if found != kind or whole.hexdigest() != name:
            raise unusable(self._what, f"its object {name} is damaged or not a {kind.decode()}")
        return data

    def commits(self) -> Iterator[str]:
        """Yield the ids of all commits, including unreachable ones. Some may be repeated."""
        try:
            for directory in sorted(self._directory.glob("[0-9a-f][0-9a-f]")):
                for path in sorted(directory.iterdir()):
                    name = directory.name + path.name
                    if _LOOSE.fullmatch(name) and self._loose_start(path).startswith(b"commit "):
                        yield name
            for pack in self._all_packs():
                kinds: dict[int, bytes] = {}
                yield from (n.hex() for n, offset in pack.entries() if self._kind(pack, offset, kinds) == b"commit")
        except (struct.error, IndexError, ValueError, OSError) as error:
            raise unusable(self._what, f"its objects cannot be listed: {error}") from None

    @staticmethod
    def _loose_start(path: Path) -> bytes:
        """Return the first bytes of a loose object, decompressed, or ``b""`` if the file cannot be read as one."""
        try:
            with opened(path, OPEN_FILE) as descriptor:
                return zlib.decompressobj().decompress(os.read(descriptor, 512), 64)
        except (OSError, zlib.error):
            return b""

    @staticmethod
    def _kind(pack: _Pack, offset: int, kinds: dict[int, bytes]) -> bytes:
        """Return the kind of the object at ``offset``: for a delta, the kind of its base. Empty if unknown.

        ``kinds`` maps offsets to the kinds that are known so far. Each object in the chain of deltas is added to it.
        """
        chain: list[int] = []
        while offset not in kinds:
            kinds[offset] = b""  # a chain may lead back to its beginning
            chain.append(offset)
            number, _size, at = pack.header(offset)
            if number == _OFFSET_DELTA:
                offset -= pack.distance(at)[0]
            elif number == _NAME_DELTA and (base := pack.find(pack.data[at : at + 20])) is not None:
                offset = base
            else:
                kinds[offset] = _KINDS.get(number, b"")
        kinds.update(dict.fromkeys(chain, kinds[offset]))
        return kinds[offset]

    def _loose(self, name: str) -> tuple[bytes, bytes] | None:
        try:
            with (
                opened(self._directory / name[:2] / name[2:], OPEN_FILE) as descriptor,
                os.fdopen(descriptor, "rb", closefd=False) as file,
            ):
                packed = file.read(MAX_OBJECT)
        except FileNotFoundError:
            return None
        whole = _inflated(packed, MAX_OBJECT)
        head, _, data = whole.partition(b"\0")
        return head.partition(b" ")[0], data

    def _packed(self, name: str) -> tuple[bytes, bytes]:
        wanted = bytes.fromhex(name)
        for pack in self._all_packs():
            if (offset := pack.find(wanted)) is not None:
                return self._resolve(pack, offset)
        raise unusable(
            self._what,
            f"it lacks the object {name}",
            "use a complete clone (not shallow, not partial, without alternates): 'git clone --no-local URL'",
        )

    def _all_packs(self) -> list[_Pack]:
        if self._packs is None:
            directory = self._directory / "pack"
            names = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
            found = [directory / name for name in names if PACK_INDEX.fullmatch(name)]
            self._packs = [_Pack(self._map(path), self._map(path.with_suffix(".pack"))) for path in found]
        return self._packs

    def _map(self, path: Path) -> mmap.mmap:
        with opened(path, OPEN_FILE) as descriptor:
            return self._stack.enter_context(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ))

    def _resolve(self, pack: _Pack, offset: int) -> tuple[bytes, bytes]:
        """Return the kind and content of an object, which may be stored as a chain of deltas."""
        deltas: list[bytes] = []
        room = 2 * MAX_OBJECT  # for the object and all its deltas together: a hostile chain of deltas may be a loop
        while True:
            number, size, at = pack.header(offset)
            room -= size
            if size > MAX_OBJECT or room < 0 or len(deltas) > _MAX_CHAIN:
                raise ValueError("it is too large, or its chain of deltas is too long")
            if number in _KINDS:
                kind, data = _KINDS[number], pack.inflate(at, size)
                break
            if number == _OFFSET_DELTA:
                distance, at = pack.distance(at)
                deltas.append(pack.inflate(at, size))
                offset -= distance
            elif number == _NAME_DELTA:
                base = pack.find(pack.data[at : at + 20])
                deltas.append(pack.inflate(at + 20, size))
                if base is None:
                    raise ValueError("the base of a delta is not in its pack")
                offset = base
            else:
                raise ValueError(f"it has the unknown kind {number}")
        # The maximum number of bytes that all deltas together may produce: seconds of work. Real chains produce fewer:
        # they have at most a few hundred deltas, and large files have shorter chains.
        work = 64 * MAX_OBJECT
        for delta in reversed(deltas):
            data = _apply_delta(data, delta)
            work -= len(data)
            if work < 0:
                raise ValueError("its chain of deltas is too large")
        return kind, data


class _Pack:
    """One pack and its index."""

    def __init__(self, index: mmap.mmap, data: mmap.mmap) -> None:
        if index[:8] != _INDEX_MAGIC or data[:4] != b"PACK":
            raise ValueError("a git pack file or its index has an unknown version")
        self._index = index
        self.data = data
        self._count = self._word(_FANOUT + 255 * 4)

    def find(self, name: bytes) -> int | None:
        """Return the offset of the object, or ``None``."""
        low = self._word(_FANOUT + (name[0] - 1) * 4) if name[0] else 0
        high = self._word(_FANOUT + name[0] * 4)
        while low < high:
            middle = (low + high) // 2
            at = _NAMES + middle * 20
            found = self._index[at : at + 20]
            if found == name:
                return self._offset(middle)
            low, high = (middle + 1, high) if found < name else (low, middle)
        return None

    def entries(self) -> Iterator[tuple[bytes, int]]:
        """Yield the id and the offset of each object."""
        for number in range(self._count):
            at = _NAMES + number * 20
            yield self._index[at : at + 20], self._offset(number)

    def header(self, offset: int) -> tuple[int, int, int]:
        """Return an entry's kind (git's number) and size, and the offset of the first byte after its header."""
        byte = self.data[offset]
        kind, size, shift = byte >> 4 & 7, byte & 15, 4
        while byte & 0x80:
            offset += 1
            byte = self.data[offset]
            size |= (byte & 0x7F) << shift
            shift += 7
        return kind, size, offset + 1

    def distance(self, at: int) -> tuple[int, int]:
        """Return the distance in bytes from a delta back to its base, and the offset of the delta's content."""
        byte = self.data[at]
        value = byte & 0x7F
        while byte & 0x80:
            at += 1
            byte = self.data[at]
            value = (value + 1) << 7 | byte & 0x7F
        if value <= 0:
            raise ValueError("a delta refers to itself")
        return value, at + 1

    def inflate(self, at: int, size: int) -> bytes:
        """Decompress the content that begins at the offset ``at``, and return it. It must have ``size`` bytes."""
        engine, found = zlib.decompressobj(), b""
        while len(found) < size and not engine.eof:
            piece = self.data[at : at + max(size, 64) + 64]
            if not piece:
                break
            found += engine.decompress(piece, size - len(found) + 1)
            at += len(piece) - len(engine.unconsumed_tail)
        if len(found) != size:
            raise ValueError("its size differs from the size in its header")
        return found

    def _offset(self, number: int) -> int:
        at = _NAMES + self._count * 24
        small = self._word(at + number * 4)
        if not small & _LARGE:
            return small
        large = at + self._count * 4 + (small & ~_LARGE) * 8
        return int(struct.unpack_from(">Q", self._index, large)[0])

    def _word(self, at: int) -> int:
        return int(struct.unpack_from(">I", self._index, at)[0])


def _inflated(packed: bytes, limit: int) -> bytes:
    data = zlib.decompressobj().decompress(packed, limit + 1)
    if len(data) > limit:
        raise ValueError("it is too large")
    return data


def _apply_delta(base: bytes, delta: bytes) -> bytes:
    """Return the content that results from applying ``delta`` to ``base``."""
    pieces = iter(delta)
    if _number(pieces) != len(base):
        raise ValueError("a delta was made for a base of a different size")
    size, found = _number(pieces), bytearray()
    if size > MAX_OBJECT:
        raise ValueError("it is too large")
    for order in pieces:
        if order & 0x80:
            start = sum(next(pieces) << 8 * i for i in range(4) if order >> i & 1)
            length = sum(next(pieces) << 8 * i for i in range(3) if order >> (4 + i) & 1) or 0x10000
            found += base[start : start + length]
        else:
            found += bytes(next(pieces) for _ in range(order))
        if len(found) > size:
            break
    if len(found) != size:
        raise ValueError("the size of a delta's result differs from the size in the delta's header")
    return bytes(found)


def _number(pieces: Iterator[int]) -> int:
    value = shift = 0
    for byte in pieces:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    return value
