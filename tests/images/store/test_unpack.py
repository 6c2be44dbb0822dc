"""Layers are unpacked into one tree. Hostile layers change nothing outside it."""

from __future__ import annotations

import gzip
import os
import stat
import tarfile
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from image_archives import (
    digest,
    directory,
    file,
    hard_link,
    layer,
    opaque,
    special,
    symlink,
    whiteout,
    with_pax,
)
from securebench.errors import ImageError
from securebench.fs.archives import ArchiveLimits
from securebench.images.store.ids import SHIFT
from securebench.images.store.leases import Layer, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from image_archives import Part
    from securebench.images.store.tree_builder import Unpacked

Shape = dict[str, str]


def unpacked(
    tmp_path: Path, *layers: bytes, limits: ArchiveLimits | None = None, shift: int = 0
) -> tuple[Path, Unpacked]:
    """Unpack archives, one on top of the other, and return the root and the statistics."""
    root = tmp_path / "outer" / "root"
    root.mkdir(parents=True)
    ready = []
    for number, data in enumerate(layers):
        path = tmp_path / f"layer-{number}"
        path.write_bytes(data)
        tar = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        ready.append(Layer(path, digest(tar)))
    return root, unpack(ready, root, shift, limits)


def shape(root: Path) -> Shape:
    """Return the paths of a tree, each with its content, its link's target, or ``/`` for a directory."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = "/" if path.is_dir() else path.read_text()
    return found


def refused(tmp_path: Path, *layers: bytes, limits: ArchiveLimits | None = None) -> ImageError:
    """Return the error of unpacking these layers. They must not create anything beside the root."""
    with pytest.raises(ImageError) as caught:
        unpacked(tmp_path, *layers, limits=limits)
    assert [path.name for path in (tmp_path / "outer").iterdir()] == ["root"]
    return caught.value


def test_a_tree_has_what_its_archive_has(tmp_path: Path) -> None:
    """Files, directories and links are unpacked with their content, mode, time and target."""
    archive = layer(
        directory("./", mode=0o750),
        directory("./etc", mode=0o2755),
        file("./etc/conf", b"one\n", mode=0o640),
        file("./bin/su", b"", mode=0o4755),
        symlink("./etc/link", "/no/where"),
        hard_link("./etc/same", "./etc/conf"),
    )
    root, result = unpacked(tmp_path, archive)
    assert shape(root) == {
        "bin": "/",
        "bin/su": "",
        "etc": "/",
        "etc/conf": "one\n",
        "etc/link": "-> /no/where",
        "etc/same": "one\n",
    }
    modes = {name: stat.S_IMODE((root / name).lstat().st_mode) for name in (".", "bin", "etc", "etc/conf", "bin/su")}
    assert modes == {".": 0o750, "bin": 0o755, "etc": 0o2755, "etc/conf": 0o640, "bin/su": 0o4755}
    assert (root / "etc/conf").samefile(root / "etc/same")
    assert {(root / name).lstat().st_mtime for name in ("etc", "etc/conf", "etc/link", ".")} == {1_600_000_000}
    assert (result.members, result.bytes) == (6, 4)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owners_are_shifted(tmp_path: Path) -> None:
    """H06: an owner id that no sandbox has is replaced with that of nobody. Then the shift is added to each id."""
    archive = layer(
        directory("d", owner=(33, 34)),
        file("d/su", mode=0o6755),
        file("far", owner=(4_000_000_000, 65535)),
        symlink("link", "far"),
    )
    root, result = unpacked(tmp_path, archive, shift=SHIFT)
    owners = {path.name: (path.lstat().st_uid - SHIFT, path.lstat().st_gid - SHIFT) for path in root.rglob("*")}
    assert owners == {"d": (33, 34), "su": (0, 0), "far": (65534, 65535), "link": (0, 0)}
    assert (root.stat().st_uid, root.stat().st_gid) == (SHIFT, SHIFT)
    assert stat.S_IMODE((root / "d/su").stat().st_mode) == 0o6755
    assert result.owners == 1


LAYERS: Mapping[str, tuple[list[Part], list[Part], Shape]] = {
    "a whiteout removes": (
        [file("a/gone"), file("a/dir/deep/file"), file("a/kept", b"k")],
        [whiteout("a", "gone"), whiteout("a", "dir")],
        {"a": "/", "a/kept": "k"},
    ),
    "a whiteout of nothing does nothing": ([file("a", b"a")], [whiteout("", "b")], {"a": "a"}),
    "an opaque directory hides what was below": (
        [file("a/one"), file("a/sub/two"), file("b", b"b")],
        [directory("a"), opaque("a"), file("a/new", b"n")],
        {"a": "/", "a/new": "n", "b": "b"},
    ),
    "an opaque mark after its members spares them": (
        [file("a/sub/old"), file("a/old")],
        [file("a/sub/new", b"n"), opaque("a")],
        {"a": "/", "a/sub": "/", "a/sub/new": "n"},
    ),
    "a whiteout spares what its own layer made": (
        [file("a", b"old")],
        [file("a", b"new"), whiteout("", "a")],
        {"a": "new"},
    ),
    "a file replaces a directory": ([file("a/b/c")], [file("a", b"f")], {"a": "f"}),
    "a directory replaces a file": ([file("a")], [directory("a"), file("a/b", b"b")], {"a": "/", "a/b": "b"}),
    "a directory stays beneath a directory": (
        [file("a/b", b"b")],
        [directory("a", mode=0o700), file("a/c", b"c")],
        {"a": "/", "a/b": "b", "a/c": "c"},
    ),
    "a link replaces a directory": ([file("a/b")], [symlink("a", "x")], {"a": "-> x"}),
    "a file replaces a link, and not what it leads to": (
        [file("target", b"t"), symlink("a", "target")],
        [file("a", b"new")],
        {"a": "new", "target": "t"},
    ),
    "a directory takes the place of a link of a layer below": (
        [file("usr/bin/x", b"x"), symlink("bin", "usr/bin")],
        [file("bin/y", b"y")],
        {"bin": "/", "bin/y": "y", "usr": "/", "usr/bin": "/", "usr/bin/x": "x"},
    ),
    "a hard link to a file of a layer below": (
        [file("a", b"a")],
        [hard_link("b", "a"), file("a", b"new")],
        {"a": "new", "b": "a"},
    ),
    "marks of old union file systems are left out": (
        [file("a", b"a")],
        [file(".wh..wh.aufs"), directory(".wh..wh.plnk")],
        {"a": "a"},
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_changes_what_is_below(tmp_path: Path, name: str) -> None:
    """Two layers are combined into the tree that an engine's overlay would show."""
    below, above, expected = LAYERS[name]
    root, _ = unpacked(tmp_path, layer(*below), layer(*above))
    assert shape(root) == expected


def test_a_replaced_file_does_not_change_its_hard_links(tmp_path: Path) -> None:
    """H04: a member replaces an existing file without writing into it, so other hard links keep their content."""
    first = layer(file("a", b"one"), hard_link("b", "a"))
    root, _ = unpacked(tmp_path, first, layer(file("b", b"two")))
    assert shape(root) == {"a": "one", "b": "two"}


def test_a_link_of_the_same_layer_is_followed_inside_the_tree(tmp_path: Path) -> None:
    """H15: an absolute link starts at the tree's root, as in a container, and '..' never leads above that root."""
    archive = layer(
        symlink("abs", "/real"),
        symlink("up", "../../../../real"),
        symlink("here", "./abs/../abs"),
        file("abs/one", b"1"),
        file("up/two", b"2"),
        file("here/three", b"3"),
    )
    root, _ = unpacked(tmp_path, archive)
    assert (root / "real").is_dir()
    assert sorted(path.name for path in (root / "real").iterdir()) == ["one", "three", "two"]


HOSTILE: Mapping[str, tuple[bytes, str]] = {
    "H13: out through '..'": (layer(file("../escaped")), "'..'"),
    "H13: out through '..' in the middle": (layer(file("a/../../escaped")), "'..'"),
    "H13: a hard link out": (layer(hard_link("a", "../../secret")), "'..'"),
    "H04: a hard link to nothing": (layer(hard_link("a", "b")), "cannot be created"),
    "H04: a hard link to a directory": (layer(directory("d"), hard_link("a", "d")), "cannot be created"),
    "H04: a hard link to the root": (layer(hard_link("a", "/")), "root"),
    "H02: links in a circle": (layer(symlink("a", "b"), symlink("b", "a"), file("a/x")), "loop"),
    "H13: below a file": (layer(file("a"), file("a/b")), "not a directory"),
    "H09: a name of 256 bytes": (layer(file("n" * 256)), "too long"),
    "H13: a whiteout of the parent": (layer(file("a/.wh...")), "entry to remove"),
    "H13: a whiteout of the directory": (layer(file("a/.wh..")), "entry to remove"),
    "H13: a whiteout of nothing": (layer(file(".wh.")), "entry to remove"),
    "H13: a file in place of the root": (layer(file("./")), "root"),
    "H13: a link in place of the root": (layer(symlink(".", "/etc")), "root"),
    "H13: a link without a target": (layer(symlink("a", "")), "cannot be created"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    """A hostile member is refused with an error that names the layer and the reason."""
    archive, reason = HOSTILE[name]
    error = refused(tmp_path, archive)
    assert error.code == "image-malformed"
    assert error.message.startswith("layer 1 of 1: ")
    assert reason in error.message


def test_a_link_to_the_host_is_data(tmp_path: Path) -> None:
    """H01, H13: a link to a path of the host is kept, and a file written through it stays in the tree."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "file").write_text("untouched")
    archive = layer(symlink("out", str(secret)), file("out/file", b"written"), hard_link("hard", "out/file"))
    root, _ = unpacked(tmp_path, archive)
    assert (secret / "file").read_text() == "untouched"
    assert (root / "out").readlink() == secret
    inside = root / str(secret).lstrip("/") / "file"
    assert inside.read_text() == "written"
    assert inside.samefile(root / "hard")


def test_a_hard_link_to_a_symbolic_link_is_that_link(tmp_path: Path) -> None:
    """H04, H15: a hard link to a symbolic link is that link, and not a link to a file of the host."""
    root, _ = unpacked(tmp_path, layer(symlink("a", "/etc/passwd"), hard_link("b", "a")))
    assert shape(root) == {"a": "-> /etc/passwd", "b": "-> /etc/passwd"}


def test_absolute_paths_are_inside_the_tree(tmp_path: Path) -> None:
    """H13: an absolute path starts at the tree's root, as with an engine."""
    root, _ = unpacked(tmp_path, layer(file(f"{tmp_path}/abs", b"in"), file("//two//slashes/./x", b"x")))
    assert (root / str(tmp_path).lstrip("/") / "abs").read_text() == "in"
    assert not (tmp_path / "abs").exists()
    assert (root / "two/slashes/x").read_text() == "x"


def test_devices_and_fifos_are_left_out_and_counted(tmp_path: Path) -> None:
    """H05: devices and FIFOs are not created but counted, and they remove an existing file of the same name."""
    kinds = {"fifo": tarfile.FIFOTYPE, "char": tarfile.CHRTYPE, "block": tarfile.BLKTYPE}
    above = layer(*(special(name, kind) for name, kind in kinds.items()))
    root, result = unpacked(tmp_path, layer(file("fifo"), file("kept", b"k")), above)
    assert shape(root) == {"kept": "k"}
    assert result.specials == 3


def test_extended_attributes_are_dropped_and_counted(tmp_path: Path) -> None:
    """H06, H17: extended attributes are dropped and counted, so no file capability reaches the host's disk."""
    capable = with_pax(file("ping", b"p"), {"SCHILY.xattr.security.capability": "\x01\0\0\x02", "mtime": "1.5"})
    root, result = unpacked(tmp_path, layer(capable))
    assert os.listxattr(root / "ping") == []
    assert result.xattrs == 1
    assert (root / "ping").stat().st_mtime_ns == 1_500_000_000


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_odd_names_are_names(tmp_path: Path, form: int) -> None:
    """H09: names with newlines, invalid UTF-8, dashes, spaces or escapes, and long paths, are unpacked unchanged."""
    names = [b"-rf", b" ", b"a\nb", b"\xff\xfe", b"CON", b"x.", b"\x1b[31m", "\u202e".encode(), b"n" * 255, b"A", b"a"]
    deep = b"/".join([b"d" * 60] * 20) + b"/end"
    parts = [file(os.fsdecode(name), name) for name in (*names, deep)]
    root, _ = unpacked(tmp_path, layer(*parts, form=form))
    assert {os.fsencode(path.name) for path in root.iterdir()} == {*names, b"d" * 60}
    assert (root / os.fsdecode(deep)).read_bytes() == deep


def test_deep_trees_are_walked_without_recursion_up_to_a_limit(tmp_path: Path) -> None:
    """H08: a tree of 250 levels can be unpacked and replaced. A path of 3,000 levels is refused."""
    deep = "/".join(["d"] * 250)
    root, _ = unpacked(tmp_path / "1", layer(file(f"{deep}/f")), layer(file("d", b"flat")))
    assert shape(root) == {"d": "flat"}
    (tmp_path / "2").mkdir()
    error = refused(tmp_path / "2", layer(file("/".join(["d"] * 3000))))
    assert error.code == "image-too-large"


def test_members_are_counted_over_all_layers(tmp_path: Path) -> None:
    """H08: two layers are refused if they have more members together than the limit."""
    layers = [layer(file("a"), file("b")), layer(file("c"), file("d"))]
    assert refused(tmp_path, *layers, limits=ArchiveLimits(members=3)).code == "image-too-large"


def test_bytes_are_counted_over_all_layers(tmp_path: Path) -> None:
    """H14: two layers are refused if they have more bytes together than the limit, though each is within it."""
    layers = [layer(file("a", bytes(50_000))), layer(file("b", bytes(50_000)))]
    assert refused(tmp_path, *layers, limits=ArchiveLimits(bytes=80_000)).code == "image-too-large"


def test_what_grows_out_of_all_proportion_is_refused(tmp_path: Path) -> None:
    """H14: a compressed layer that expands to a large multiple of its size is refused."""
    bomb = gzip.compress(layer(file("zeros", bytes(20_000_000))))
    error = refused(tmp_path, bomb, limits=ArchiveLimits(ratio_floor=1_000_000))
    assert error.code == "image-too-large"
    assert "compressed bytes" in error.message


def test_the_digest_of_a_layer_must_be_that_of_the_configuration(tmp_path: Path) -> None:
    """H13: a layer that does not have the digest in the configuration is refused, even if it is a valid archive."""
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "layer").write_bytes(layer(file("a", b"other")))
    with pytest.raises(ImageError) as caught:
        unpack([Layer(tmp_path / "layer", digest(b"what was meant"))], root, 0)
    assert caught.value.code == "image-blob-mismatch"


def test_a_full_disk_is_not_the_archives_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk raises an ``OSError``, which the store converts, and not an error of the image."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(OSError, match="No space left"):
        unpacked(tmp_path, layer(file("a")))


names = st.lists(
    st.sampled_from(["a", "b", "c", "..", ".", "", ".wh.a", ".wh.b", ".wh..wh..opq"]), min_size=1, max_size=4
)
members = st.one_of(
    st.builds(lambda name: file("/".join(name)), names),
    st.builds(lambda name: directory("/".join(name)), names),
    st.builds(lambda name, target: symlink("/".join(name), "/".join(target)), names, names),
    st.builds(lambda name, target: hard_link("/".join(name), "/".join(target)), names, names),
)


@given(st.lists(st.lists(members, max_size=6), min_size=1, max_size=3))
def test_nothing_ever_leaves_the_tree(tmp_path_factory: pytest.TempPathFactory, layers: list[list[Part]]) -> None:
    """H13: any sequence of members is unpacked or refused, and nothing outside the tree changes."""
    tmp_path = tmp_path_factory.mktemp("unpack")
    outside = tmp_path / "outer" / "beside"
    outside.mkdir(parents=True)
    (outside / "file").write_text("untouched")
    (tmp_path / "outer" / "root").mkdir()
    ready = []
    for number, parts in enumerate(layers):
        data = layer(*parts)
        (tmp_path / f"layer-{number}").write_bytes(data)
        ready.append(Layer(tmp_path / f"layer-{number}", digest(data)))
    with suppress(ImageError):
        unpack(ready, tmp_path / "outer" / "root", 0)
    assert sorted(path.name for path in (tmp_path / "outer").iterdir()) == ["beside", "root"]
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "untouched"
    assert (outside / "file").stat().st_nlink == 1
