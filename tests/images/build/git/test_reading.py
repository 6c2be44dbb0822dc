"""Reading a commit from the files of an untrusted repository."""

from __future__ import annotations

import hashlib
import itertools
import os
import struct
import time
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import pytest

from git_repositories import commit, git, repository
from securebench.errors import ImageError
from securebench.images.build.git import model
from securebench.images.build.git.model import EXECUTABLE, FILE, LINK, SourceFile
from securebench.images.build.git.objects import GitObjects
from securebench.images.build.git.reading import read_commit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a repository without commits, with files of each kind."""
    top = repository(tmp_path / "clone")
    (top / "sub" / "deep").mkdir(parents=True)
    (top / "plain.txt").write_bytes(b"one\r\ntwo\n")
    (top / "sub" / "run").write_text("#!/bin/sh\n")
    (top / "sub" / "run").chmod(0o755)
    (top / "sub" / "deep" / "link").symlink_to("../../plain.txt")
    (top / os.fsdecode(b"n\xffme")).write_bytes(bytes(range(256)))
    return top


EXPECTED = {
    b"plain.txt": SourceFile(FILE, b"one\r\ntwo\n"),
    b"sub/run": SourceFile(EXECUTABLE, b"#!/bin/sh\n"),
    b"sub/deep/link": SourceFile(LINK, b"../../plain.txt"),
    b"n\xffme": SourceFile(FILE, bytes(range(256))),
}


@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
def test_the_files_are_those_of_the_commit(clone: Path, packed: bool) -> None:
    """Contents, executable bits, links and names with any bytes are read from loose objects and from packs."""
    wanted = commit(clone)
    (clone / "later").write_text("later")
    commit(clone)
    if packed:
        git(clone, "repack", "-adq")
    assert read_commit(clone, wanted).files == EXPECTED


def test_chains_of_differences_are_followed(clone: Path) -> None:
    """Each version of a file that git has packed as a chain of deltas is read completely."""
    versions = {}
    for number in range(30):
        text = "".join(f"line {i} of {number if i == number else 0}\n" for i in range(2000))
        (clone / "long").write_text(text)
        versions[commit(clone)] = text.encode()
    git(clone, "repack", "-adfq", "--depth=50", "--window=50")
    assert "chain length = " in git(clone, "verify-pack", "-v", *_indexes(clone))
    for name, data in versions.items():
        assert read_commit(clone, name).files[b"long"].data == data


def test_differences_by_name_are_followed_too(clone: Path, tmp_path: Path) -> None:
    """Deltas that refer to their base by its id are read. Old versions of git and some servers write them."""
    for number in range(5):
        (clone / "long").write_text(f"{number}\n" + "same\n" * 3000)
        wanted = commit(clone)
    git(clone, "-c", "repack.usedeltabaseoffset=false", "repack", "-adfq")
    assert read_commit(clone, wanted).files[b"long"].data.startswith(b"4\n")


def _indexes(clone: Path) -> list[str]:
    return [str(path) for path in (clone / ".git" / "objects" / "pack").glob("*.idx")]


def test_nothing_of_the_repository_is_obeyed(clone: Path, tmp_path: Path) -> None:
    """The repository's attributes, filters and settings change no byte, and run nothing."""
    canary = tmp_path / "canary"
    (clone / "subst").write_text("$Format:%H$\n")
    commit(clone)
    (clone / ".gitattributes").write_text("* export-ignore filter=evil export-subst ident\n")
    wanted = commit(clone)
    for key in ("core.fsmonitor", "filter.evil.clean", "filter.evil.smudge", "core.sshCommand"):
        git(clone, "config", key, f"touch {canary}")
    tree = read_commit(clone, wanted)
    assert tree.files[b"plain.txt"].data == b"one\r\ntwo\n"
    assert tree.files[b"subst"].data == b"$Format:%H$\n"
    assert not canary.exists()


def test_a_bare_repository_will_do(clone: Path, tmp_path: Path) -> None:
    """A commit is read from a bare repository, whose objects are not below ``.git``."""
    wanted = commit(clone)
    git(tmp_path, "clone", "--quiet", "--bare", "--no-local", str(clone), "bare.git")
    assert read_commit(tmp_path / "bare.git", wanted).files == EXPECTED


def test_a_submodule_is_named_and_left_out(clone: Path) -> None:
    """A submodule is listed, and its files are left out, because they belong to another repository."""
    other = repository(clone / "other")
    (other / "inside").write_text("inside")
    commit(other)
    tree = read_commit(clone, commit(clone))
    assert tree.submodules == (b"other",)
    assert b"other/inside" not in tree.files


def _missing(clone: Path, wanted: str) -> None:
    (clone / ".git" / "objects" / wanted[:2] / wanted[2:]).unlink()


def _rubbish(clone: Path, wanted: str) -> None:
    path = clone / ".git" / "objects" / wanted[:2] / wanted[2:]
    path.chmod(0o644)
    path.write_bytes(b"rubbish")


def _other_object(clone: Path, wanted: str) -> None:
    path = clone / ".git" / "objects" / wanted[:2] / wanted[2:]
    path.chmod(0o644)
    path.write_bytes(zlib.compress(b"commit 3\0abc"))


def _cut_pack(clone: Path, _wanted: str) -> None:
    git(clone, "repack", "-adq")
    (pack,) = (clone / ".git" / "objects" / "pack").glob("*.pack")
    pack.chmod(0o644)
    pack.write_bytes(pack.read_bytes()[:40])


def _stray_file(clone: Path, wanted: str) -> None:
    _missing(clone, wanted)
    (clone / ".git" / "objects" / wanted[:2]).rmdir()
    (clone / ".git" / "objects" / wanted[:2]).touch()


@pytest.mark.parametrize("harm", [_missing, _rubbish, _other_object, _cut_pack, _stray_file])
def test_what_is_damaged_or_missing_is_an_error(clone: Path, harm: Callable[[Path, str], None]) -> None:
    """A commit is refused if one of its objects is missing, damaged or does not match its id."""
    wanted = commit(clone)
    harm(clone, wanted)
    with pytest.raises(ImageError) as caught:
        read_commit(clone, wanted)
    assert caught.value.code == "source-unusable"


@pytest.mark.parametrize("name", [b"..", b".git", b".GiT", b"a/b", b""])
def test_a_tree_with_a_name_that_leads_out_is_refused(tmp_path: Path, name: bytes) -> None:
    """H13: a tree with an unsafe name is refused. Git does not write such trees, but an attacker can."""
    top = repository(tmp_path / "evil")
    objects = top / ".git" / "objects"
    blob = _write(objects, b"blob", b"x")
    tree = _write(objects, b"tree", b"100644 " + name + b"\0" + bytes.fromhex(blob))
    wanted = _write(objects, b"commit", b"tree %s\n\nx\n" % tree.encode())
    with pytest.raises(ImageError) as caught:
        read_commit(top, wanted)
    assert caught.value.code == "source-unusable"


def test_an_object_that_grows_out_of_all_bounds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H14: an object that is larger than the limit after decompression is refused."""
    top = repository(tmp_path / "bomb")
    wanted = _write(top / ".git" / "objects", b"commit", bytes(10_000_000))
    monkeypatch.setattr("securebench.images.build.git.objects.MAX_OBJECT", 1_000_000)
    with pytest.raises(ImageError, match="too large"):
        read_commit(top, wanted)


@pytest.mark.parametrize("delta", [b"\x04\x04\x91", b"\x04\x04\x05ab", b"\x04\x04", b""])
def test_a_delta_that_ends_too_early_is_refused(tmp_path: Path, delta: bytes) -> None:
    """H13: a truncated delta is reported as an object that cannot be read."""
    top = repository(tmp_path / "evil")
    base, size = hashlib.sha1(b"blob 4\0abcd").digest(), len(delta)
    packed = bytes([0x34]) + zlib.compress(b"abcd")
    offset = 12 + len(packed)
    packed += bytes([0x70 | size]) + base + zlib.compress(delta)
    _write_pack(top / ".git" / "objects", packed, {base: 12, bytes(20): offset})
    with pytest.raises(ImageError, match="cannot be read"), GitObjects(top / ".git" / "objects", "evil") as objects:
        objects.read("0" * 40, b"blob")


def test_a_delta_of_itself_does_not_fill_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H14: an endless chain of deltas is refused when the sum of their sizes exceeds the limit."""
    monkeypatch.setattr("securebench.images.build.git.objects.MAX_OBJECT", 1_000_000)
    top, name, delta = repository(tmp_path / "evil"), bytes(20), bytes(500_000)
    head = [
        0x70 | len(delta) & 15 | 0x80,
        len(delta) >> 4 & 127 | 0x80,
        len(delta) >> 11 & 127 | 0x80,
        len(delta) >> 18,
    ]
    _write_pack(top / ".git" / "objects", bytes(head) + name + zlib.compress(delta), {name: 12})
    tracemalloc.start()
    try:
        with pytest.raises(ImageError, match="too large"), GitObjects(top / ".git" / "objects", "evil") as objects:
            objects.read("0" * 40, b"blob")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_ring_of_deltas_is_looked_at_once(tmp_path: Path) -> None:
    """H14: commits are searched quickly, even in a pack whose deltas form a ring: each is the base of another."""
    names = [number.to_bytes(20, "big") for number in range(20_000)]
    delta = zlib.compress(b"")
    size = 1 + 20 + len(delta)
    packed = b"".join(b"\x70" + names[(number + 1) % len(names)] + delta for number in range(len(names)))
    offsets = {name: 12 + number * size for number, name in enumerate(names)}
    _write_pack(repository(tmp_path / "evil") / ".git" / "objects", packed, offsets)
    with GitObjects(tmp_path / "evil" / ".git" / "objects", "evil") as objects:
        started = time.process_time()
        assert list(objects.commits()) == []
        assert time.process_time() - started < 10


def test_a_chain_of_copies_is_not_followed_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H14: all deltas in a chain together may not produce more bytes than the limit, even if each delta is small."""
    monkeypatch.setattr("securebench.images.build.git.objects.MAX_OBJECT", 100_000)
    base, names = bytes(60_000), [number.to_bytes(20, "big") for number in range(200)]
    number = bytes([len(base) & 127 | 128, len(base) >> 7 & 127 | 128, len(base) >> 14])
    copy = number + number + bytes([0x80 | 0x30, len(base) & 255, len(base) >> 8])
    packed = bytes([0x30 | len(base) & 15 | 128, len(base) >> 4 & 127 | 128, len(base) >> 11]) + zlib.compress(base)
    offsets = {names[0]: 12}
    for one, name in itertools.pairwise(names):
        offsets[name] = 12 + len(packed)
        packed += bytes([0x70 | len(copy)]) + one + zlib.compress(copy)
    _write_pack(repository(tmp_path / "evil") / ".git" / "objects", packed, offsets)
    with GitObjects(tmp_path / "evil" / ".git" / "objects", "evil") as objects:
        with pytest.raises(ImageError, match="chain of deltas is too large"):
            objects.read(names[-1].hex(), b"blob")
        with pytest.raises(ImageError, match="damaged or not a blob"):  # within the limit, but its id is not its digest
            objects.read(names[50].hex(), b"blob")


def test_trees_that_double_at_each_depth_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H14: if each tree contains the next one twice, the commit is refused, although it has no files."""
    monkeypatch.setattr("securebench.images.build.git.reading.MAX_FILES", 1000)
    objects = repository(tmp_path / "evil") / ".git" / "objects"
    tree = _write(objects, b"tree", b"")
    for _ in range(100):
        name = bytes.fromhex(tree)
        tree = _write(objects, b"tree", b"40000 a\0" + name + b"40000 b\0" + name)
    wanted = _write(objects, b"commit", b"tree %s\n\nx\n" % tree.encode())
    with pytest.raises(ImageError, match="more than 2000 files and directories"):
        read_commit(tmp_path / "evil", wanted)


def test_a_name_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    """A tree with two entries of the same name is refused, because it is ambiguous."""
    objects = repository(tmp_path / "evil") / ".git" / "objects"
    blob = bytes.fromhex(_write(objects, b"blob", b"x"))
    tree = _write(objects, b"tree", b"100644 a\0" + blob + b"100644 a\0" + blob)
    wanted = _write(objects, b"commit", b"tree %s\n\nx\n" % tree.encode())
    with pytest.raises(ImageError, match="two entries with the name 'a'"):
        read_commit(tmp_path / "evil", wanted)


def test_more_submodules_than_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H14: submodules count towards the limit of files and directories."""
    monkeypatch.setattr("securebench.images.build.git.reading.MAX_FILES", 10)
    objects = repository(tmp_path / "evil") / ".git" / "objects"
    tree = _write(objects, b"tree", b"".join(b"160000 %d\0" % number + bytes(20) for number in range(21)))
    wanted = _write(objects, b"commit", b"tree %s\n\nx\n" % tree.encode())
    with pytest.raises(ImageError, match="more than 20 files and directories"):
        read_commit(tmp_path / "evil", wanted)


def test_more_bytes_than_fit_are_refused(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with a thousand names counts a thousand times towards the limit of bytes."""
    monkeypatch.setattr("securebench.images.build.git.reading.MAX_BYTES", 100_000)
    for number in range(1000):
        (clone / f"copy-{number}").write_bytes(bytes(256))
    with pytest.raises(ImageError, match="more than"):
        read_commit(clone, commit(clone))


def test_what_is_no_repository_is_said_so(tmp_path: Path) -> None:
    """The error for a directory without a repository says that it is not a git repository."""
    with pytest.raises(ImageError, match="not a git repository"):
        read_commit(tmp_path, "0" * 40)


def test_links_in_the_objects_are_not_followed(clone: Path, tmp_path: Path) -> None:
    """An object that is a link to a file outside the repository is not read."""
    wanted = commit(clone)
    path = clone / ".git" / "objects" / wanted[:2] / wanted[2:]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ImageError):
        read_commit(clone, wanted)


def _write_pack(objects: Path, packed: bytes, offsets: dict[bytes, int]) -> None:
    """Write a pack with the entries ``packed``, and an index with the offset of each id."""
    directory = objects / "pack"
    directory.mkdir(exist_ok=True)
    names = sorted(offsets)
    counts = [sum(name[0] <= first for name in names) for first in range(256)]
    index = b"\xfftOc" + struct.pack(">I256I", 2, *counts) + b"".join(names) + bytes(4 * len(names))
    index += struct.pack(f">{len(names)}I", *(offsets[name] for name in names)) + bytes(40)
    (directory / f"pack-{'0' * 40}.idx").write_bytes(index)
    (directory / f"pack-{'0' * 40}.pack").write_bytes(struct.pack(">4sII", b"PACK", 2, len(names)) + packed)


def _write(objects: Path, kind: bytes, data: bytes) -> str:
    whole = b"%s %d\0" % (kind, len(data)) + data
    name = hashlib.sha1(whole).hexdigest()
    (objects / name[:2]).mkdir(exist_ok=True)
    (objects / name[:2] / name[2:]).write_bytes(zlib.compress(whole))
    return name


def test_the_limits_are_above_what_real_repositories_have() -> None:
    """The limits exceed the largest repositories of known benchmarks, which have about 10,000 files and 300 MB."""
    assert model.MAX_FILES >= 100_000
    assert model.MAX_BYTES >= 500_000_000
