"""Write a git repository with one commit, as plain files.

The repository contains no tag, remote, reflog or object of another history (F01 and C22 in the catalogue of attacks).
Author and date are fixed, so the same files and message always result in the same commit.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.images.build.git.model import DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from securebench.images.build.git.model import SourceTree

BRANCH: Final = b"main"
_PERSON: Final = b"SecureBench <securebench@localhost> 1577836800 +0000"
_CONFIG: Final = b"""\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
"""
_NUMBERS: Final = {b"commit": 1, b"tree": 2, b"blob": 3}
_NAME_LIMIT: Final = 0xFFF


@dataclass(frozen=True, slots=True)
class FreshRepository:
    """A repository with one commit: the commit's id, and the files of ``.git`` by path."""

    commit: str
    files: Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class _Object:
    kind: bytes
    data: bytes
    name: bytes


def fresh_repository(tree: SourceTree, message: str) -> FreshRepository:
    """Return a repository whose only commit, on branch ``main``, has these files."""
    objects: dict[bytes, _Object] = {}
    names: dict[bytes, tuple[int, bytes]] = {}
    for path, file in tree.files.items():
        names[path] = (file.mode, _add(objects, b"blob", file.data))
    root = _add_trees(objects, names)
    text = b"tree %s\nauthor %s\ncommitter %s\n\n%s\n" % (root.hex().encode(), _PERSON, _PERSON, message.encode())
    commit = _add(objects, b"commit", text).hex()
    pack, index, name = _pack(objects.values())
    files = {
        b"HEAD": b"ref: refs/heads/%s\n" % BRANCH,
        b"config": _CONFIG,
        b"index": _staged(names, tree),
        b"refs/heads/%s" % BRANCH: commit.encode() + b"\n",
        b"objects/pack/pack-%s.pack" % name: pack,
        b"objects/pack/pack-%s.idx" % name: index,
    }
    return FreshRepository(commit, files)


def _add(objects: dict[bytes, _Object], kind: bytes, data: bytes) -> bytes:
    digest = hashlib.sha1(b"%s %d\0" % (kind, len(data)), usedforsecurity=False)
    digest.update(data)
    name = digest.digest()
    objects.setdefault(name, _Object(kind, data, name))
    return name


def _add_trees(objects: dict[bytes, _Object], names: Mapping[bytes, tuple[int, bytes]]) -> bytes:
    """Add a tree object for each directory, deepest first, and return the id of the root's tree."""
    directories: dict[bytes, dict[bytes, tuple[int, bytes]]] = {b"": {}}
    for path, entry in names.items():
        above, _, name = path.rpartition(b"/")
        directories.setdefault(above, {})[name] = entry
        while above:
            above = above.rpartition(b"/")[0]
            directories.setdefault(above, {})
    for path in sorted(directories, key=lambda path: path.count(b"/") if path else -1, reverse=True):
        # Git sorts a directory as if its name ended in a slash.
        entries = sorted(directories[path].items(), key=lambda e: e[0] + b"/" if e[1][0] == DIRECTORY else e[0])
        data = b"".join(b"%o %s\0%s" % (mode, name, wanted) for name, (mode, wanted) in entries)
        tree = _add(objects, b"tree", data)
        if not path:
            return tree
        above, _, last = path.rpartition(b"/")
        directories[above][last] = (DIRECTORY, tree)
    raise AssertionError("there is always a root")


def _pack(objects: Iterable[_Object]) -> tuple[bytes, bytes, bytes]:
    """Return a git packfile, its index and its name. The packfile stores each of ``objects`` whole, without deltas."""
    ordered = sorted(objects, key=lambda found: found.name)
    pack = bytearray(b"PACK" + struct.pack(">II", 2, len(ordered)))
    offsets, sums = [], []
    for found in ordered:
        entry = _entry_head(_NUMBERS[found.kind], len(found.data)) + zlib.compress(found.data, 6)
        offsets.append(len(pack))
        sums.append(zlib.crc32(entry))
        pack += entry
    pack += _sha1(pack)
    counts = [0] * 256
    for found in ordered:
        counts[found.name[0]] += 1
    index = bytearray(b"\xfftOc" + struct.pack(">I", 2))
    total = 0
    for count in counts:
        total += count
        index += struct.pack(">I", total)
    index += b"".join(found.name for found in ordered)
    index += b"".join(struct.pack(">I", checksum) for checksum in sums)
    index += b"".join(struct.pack(">I", offset) for offset in offsets)
    index += pack[-20:]
    index += _sha1(index)
    return bytes(pack), bytes(index), _sha1(b"".join(found.name for found in ordered)).hex().encode()


def _entry_head(kind: int, size: int) -> bytes:
    byte, size = kind << 4 | size & 15, size >> 4
    head = bytearray()
    while size:
        head.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    head.append(byte)
    return bytes(head)


def _staged(names: Mapping[bytes, tuple[int, bytes]], tree: SourceTree) -> bytes:
    """Return a git index in which every file is in its committed state.

    When git first reads the index, git compares it with the files.
    """
    index = bytearray(b"DIRC" + struct.pack(">II", 2, len(names)))
    for path in sorted(names):
        mode, name = names[path]
        stat = struct.pack(">10I", 0, 0, 0, 0, 0, 0, mode, 0, 0, len(tree.files[path].data))
        entry = stat + name + struct.pack(">H", min(len(path), _NAME_LIMIT)) + path
        index += entry + bytes(8 - len(entry) % 8)
    return bytes(index + _sha1(index))


def _sha1(data: bytes | bytearray) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()
