"""The layer with the changes of a build's steps, from an overlay or from an archive of all files."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from image_archives import digest, directory, file, hard_link, layer, special, symlink
from securebench.errors import ImageError
from securebench.images.build.derived.changed import layer_of_archive, layer_of_overlay
from securebench.images.build.derived.layer import MTIME
from securebench.images.store.leases import Layer, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable

SHIFT = 0x7000_0000
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes what an overlay has")


def _members(pieces: Iterable[bytes]) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
        return {member.name: member for member in archive}


def _overlay(top: Path, opaque: str = "trusted.overlay.opaque") -> dict[str, tarfile.TarInfo]:
    descriptor = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return _members(layer_of_overlay(descriptor, opaque, SHIFT))
    finally:
        os.close(descriptor)


def _tree(tmp_path: Path, *parts: tuple[tarfile.TarInfo, bytes]) -> Path:
    """Unpack an image with these files, and return its directory."""
    top = tmp_path / "tree"
    top.mkdir()
    data = layer(*parts)
    (tmp_path / "layer.tar").write_bytes(data)
    unpack([Layer(tmp_path / "layer.tar", digest(data))], top, 0)
    return top


def _archive(tree: Path, *parts: tuple[tarfile.TarInfo, bytes]) -> dict[str, tarfile.TarInfo]:
    return _members(layer_of_archive(iter((layer(*parts),)), tree, 0))


def test_nothing_changed_is_an_empty_layer() -> None:
    """An overlay without an upper directory, because nothing was written, gives an empty layer."""
    assert _members(layer_of_overlay(-1, "trusted.overlay.opaque", 0)) == {}


def test_a_layer_is_the_same_everywhere(tmp_path: Path) -> None:
    """The bytes of a layer do not change between releases, because the id of an image depends on them."""
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_bytes(b"content\n")
    (tmp_path / "run").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "a.txt").write_bytes(b"")
    (tmp_path / "a" / ("n" * 200)).write_bytes(b"x" * 5000)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_bytes(b"odd")
    for path in tmp_path.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.name == "run" else 0o640)
    (tmp_path / "a/link").symlink_to("../run")
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        layer_bytes = b"".join(layer_of_overlay(descriptor, "trusted.overlay.opaque", 0))
    finally:
        os.close(descriptor)
    assert hashlib.sha256(layer_bytes).hexdigest() == "eea3288e5622b4b369db13e2e2338911623045ca1789ee588a87f11916ed153c"


@as_root
def test_an_overlays_marks_become_those_of_a_layer(tmp_path: Path) -> None:
    """Removed entries, opaque directories, owners, modes and links of an overlay are written as layers have them."""
    (tmp_path / "usr/new").mkdir(parents=True)
    os.setxattr(tmp_path / "usr/new", "trusted.overlay.opaque", b"y")
    os.mknod(tmp_path / "usr/gone", stat.S_IFCHR, 0)
    (tmp_path / "usr/tool").write_bytes(b"tool\n")
    (tmp_path / "usr/tool").chmod(0o4755)
    os.chown(tmp_path / "usr/tool", SHIFT + 5, SHIFT + 6)
    (tmp_path / "usr/tool").chmod(0o4755)
    (tmp_path / "usr/link").symlink_to("tool")
    found = _overlay(tmp_path)
    assert set(found) == {"usr", "usr/new", "usr/new/.wh..wh..opq", "usr/.wh.gone", "usr/tool", "usr/link"}
    tool = found["usr/tool"]
    assert (tool.mode, tool.uid, tool.gid, tool.size, tool.mtime) == (0o4755, 5, 6, 5, MTIME)
    assert found["usr/link"].linkname == "tool"
    assert found["usr/new"].uid == 65534, "an owner that no sandbox has"


def test_an_attribute_that_a_step_could_set_itself_says_nothing(tmp_path: Path) -> None:
    """Only the extended attribute that the caller names marks a directory as opaque."""
    (tmp_path / "d").mkdir()
    os.setxattr(tmp_path / "d", "user.overlay.opaque", b"y")
    assert set(_overlay(tmp_path)) == {"d"}
    assert set(_overlay(tmp_path, "user.overlay.opaque")) == {"d", "d/.wh..wh..opq"}


def test_what_is_mounted_while_steps_run_is_left_out(tmp_path: Path) -> None:
    """Files in /proc, /sys, /dev, /tmp and /run, and files that a runtime mounts over others, are left out."""
    for name in ("proc/x", "sys/x", "dev/x", "tmp/x", "run/securebench/x", "etc/hosts", "etc/resolv.conf", "etc/kept"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert set(_overlay(tmp_path)) == {"etc", "etc/kept"}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "socket", "removal"])
def test_what_no_layer_has_fails_the_build(tmp_path: Path, kind: str) -> None:
    """A FIFO, a socket, or a file with the name of a whiteout fails the build, which does not wait for the FIFO."""
    import socket

    if kind == "pipe":
        os.mkfifo(tmp_path / "x")
    elif kind == "removal":
        (tmp_path / ".wh.etc").write_text("")
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tmp_path / "x"))
    with pytest.raises(ImageError) as caught:
        _overlay(tmp_path)
    assert caught.value.code == "image-build-failed"


def test_links_of_an_overlay_are_data(tmp_path: Path) -> None:
    """A link to a directory of the host is stored as a link, and not followed."""
    (tmp_path / "out").symlink_to("/etc")
    found = _overlay(tmp_path)
    assert set(found) == {"out"}
    assert found["out"].linkname == "/etc"


def test_of_an_archive_only_what_changed_is_kept(tmp_path: Path) -> None:
    """Unchanged files, links and directories are not part of the layer. Nothing in ``/proc`` is part of it."""
    same = (directory("etc"), file("etc/a", b"a"), file("etc/b", b"b"), symlink("etc/l", "a"), directory("srv"))
    tree = _tree(tmp_path, *same)
    changed = (
        *(directory("./"), directory("./etc/"), file("./etc/a", b"a"), file("./etc/b", b"B"), symlink("./etc/l", "b")),
        *(directory("./srv/", mode=0o700), file("./srv/new", b"new"), file("./proc/1", b"x")),
    )
    found = _archive(tree, *changed)
    assert set(found) == {"etc/b", "etc/l", "srv", "srv/new"}
    assert found["srv"].mode == 0o700


def test_of_an_archive_what_is_missing_was_removed(tmp_path: Path) -> None:
    """A removed file or directory becomes one whiteout, with none for the content of the directory."""
    tree = _tree(tmp_path, directory("d"), file("d/a"), directory("d/sub"), file("d/sub/b"), file("gone"), file("kept"))
    assert set(_archive(tree, file("kept"))) == {".wh.d", ".wh.gone"}
    assert set(_archive(tree, directory("d"), file("d/a"), file("kept"))) == {"d/.wh.sub", ".wh.gone"}


def test_nothing_is_removed_through_a_link_that_took_a_directorys_place(tmp_path: Path) -> None:
    """If a link replaces a directory, no whiteout is written below it: it would remove files of the link's target."""
    tree = _tree(tmp_path, directory("d"), file("d/a"), directory("other"), file("other/a"))
    found = _archive(tree, symlink("d", "other"), directory("other"), file("other/a"))
    assert set(found) == {"d"}


def test_a_file_that_changed_its_kind_is_kept(tmp_path: Path) -> None:
    """A link in place of a file, a file in place of a link, another size and another mode are part of the layer."""
    tree = _tree(tmp_path, file("a", b"x"), symlink("b", "a"), file("c", b"x"), file("d", b"x"))
    found = _archive(tree, symlink("a", "b"), file("b", b"x"), file("c", b"xy"), file("d", b"x", mode=0o755))
    assert {name: member.type for name, member in found.items()} == {
        "a": tarfile.SYMTYPE,
        "b": tarfile.REGTYPE,
        "c": tarfile.REGTYPE,
        "d": tarfile.REGTYPE,
    }


def test_new_hard_links_are_kept_as_links(tmp_path: Path) -> None:
    """The second name of a new file is stored as a hard link to the first."""
    found = _archive(_tree(tmp_path, file("a")), file("a"), file("n", b"n"), hard_link("m", "n"))
    assert (found["m"].type, found["m"].linkname) == (tarfile.LNKTYPE, "n")


def test_a_device_of_an_archive_fails_the_build(tmp_path: Path) -> None:
    """A FIFO in the archive fails the build."""
    with pytest.raises(ImageError, match="device"):
        _archive(_tree(tmp_path, file("a")), file("a"), special("x", tarfile.FIFOTYPE))


def test_a_link_on_the_hosts_side_is_not_followed(tmp_path: Path) -> None:
    """If a directory replaces a link of the image, its files are kept without reading the link's target on the host."""
    (tmp_path / "target").mkdir()
    (tmp_path / "target/same").write_bytes(b"x")
    (tmp_path / "target/same").chmod(0o644)
    tree = _tree(tmp_path, symlink("d", str(tmp_path / "target")))
    found = _archive(tree, directory("d"), file("d/same", b"x"))
    assert set(found) == {"d", "d/same"}
