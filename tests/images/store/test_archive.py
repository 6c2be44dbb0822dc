"""Images are imported from archives and layouts of each supported format. Malformed ones are refused."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import tarfile
from typing import TYPE_CHECKING

import pytest

from image_archives import (
    ARCHITECTURE,
    config,
    described,
    digest,
    directory,
    docker_save,
    file,
    layer,
    layout_files,
    symlink,
)
from securebench.errors import ConfigError, ImageError
from securebench.fs.zstd import zstd
from securebench.images.store import archive_files
from securebench.images.store.archive import import_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from securebench.images.store.image_store import ImageStore

    Pack = Callable[[bytes], bytes]

_NAMES = ("tar", "gz", "xz", "bz2", "zstd")
LOWER = layer(file("etc/os", b"one\n"), file("gone"))
UPPER = layer(file("etc/more", b"two\n"), file(".wh.gone"))


def bring(store: ImageStore, path: Path, name: str = "") -> tuple[str, ...]:
    """Import the images at ``path`` without reporting progress, and return their names."""
    return import_path(store, path, name, lambda _line: None)


def tar_of(files: Mapping[str, bytes]) -> bytes:
    """Return a tar archive of these files."""
    return layer(*(file(name, data) for name, data in files.items()))


def written(directory_: Path, files: Mapping[str, bytes]) -> Path:
    """Write files below a directory, and return the directory."""
    for name, data in files.items():
        path = directory_ / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return directory_


def tree(store: ImageStore, reference: str) -> dict[str, str]:
    """Return the content of each file of an image, by path."""
    image = store.find(reference)
    assert image is not None
    with store.lease(image.id) as lease:
        return {str(path.relative_to(lease.root)): path.read_text() for path in lease.root.rglob("*") if path.is_file()}


EXPECTED = {"etc/os": "one\n", "etc/more": "two\n"}


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bz2.compress, zstd.compress], ids=_NAMES)
def test_what_docker_save_writes_is_an_image(own_store: ImageStore, tmp_path: Path, pack: Pack) -> None:
    """A ``docker save`` archive, compressed or not, is imported with its names, id, configuration and layers."""
    path = tmp_path / "saved"
    path.write_bytes(pack(docker_save([LOWER, UPPER], ["tool:1", "docker.io/library/tool:2"], Env=["A=1"], User="app")))
    assert bring(own_store, path) == ("tool:1", "docker.io/library/tool:2")
    image = own_store.find("tool:2")
    assert image is not None
    assert image.id == digest(config([LOWER, UPPER], Env=["A=1"], User="app"))
    assert (image.environment, image.user) == ({"A": "1"}, "app")
    assert tree(own_store, "tool:1") == EXPECTED


def test_layers_that_images_share_may_be_links(own_store: ImageStore, tmp_path: Path) -> None:
    """A layer in an archive may be a symbolic link to an equal layer, which engines write only once."""
    document = config([LOWER, LOWER])
    entry = {"Config": f"{'c' * 64}.json", "RepoTags": ["tool:1"], "Layers": [f"{n * 64}/layer.tar" for n in "ab"]}
    (tmp_path / "saved").write_bytes(
        layer(
            file(f"{'a' * 64}/layer.tar", LOWER),
            symlink(f"{'b' * 64}/layer.tar", f"../{'a' * 64}/layer.tar"),
            file(f"{'c' * 64}.json", document),
            file("manifest.json", json.dumps([entry]).encode()),
        )
    )
    bring(own_store, tmp_path / "saved")
    assert tree(own_store, "tool:1") == {"etc/os": "one\n", "gone": "data\n"}


@pytest.mark.parametrize("stored", [False, True], ids=["plain layers", "compressed layers"])
@pytest.mark.parametrize("as_tar", [False, True], ids=["directory", "tar"])
def test_a_layout_is_an_image(own_store: ImageStore, tmp_path: Path, *, stored: bool, as_tar: bool) -> None:
    """An OCI image layout is imported from a directory or a tar archive, with plain or compressed layers."""
    layers = [LOWER, UPPER]
    files = layout_files(layers, [gzip.compress(data) for data in layers] if stored else None, "example.org/tool:1")
    path = tmp_path / "layout"
    if as_tar:
        path.write_bytes(layer(directory("./"), *(file(f"./{name}", data) for name, data in files.items())))
    else:
        written(path, files)
    assert bring(own_store, path) == ("example.org/tool:1",)
    assert tree(own_store, "example.org/tool:1") == EXPECTED


def test_a_layout_of_several_platforms_gives_the_one_of_this_machine(own_store: ImageStore, tmp_path: Path) -> None:
    """I07: from a layout of several platforms, the image for this machine is imported."""
    files = layout_files([LOWER])
    ours = json.loads(files["index.json"])["manifests"][0]
    platforms = [{"os": "linux", "architecture": name} for name in ("s390x", ARCHITECTURE)]
    other = described("application/vnd.oci.image.manifest.v1+json", b"other")
    both = [entry | {"platform": platform} for entry, platform in zip((other, ours), platforms, strict=True)]
    inner = json.dumps({"schemaVersion": 2, "manifests": both}).encode()
    found = described("application/vnd.oci.image.index.v1+json", inner)
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [found]}).encode()
    files[f"blobs/sha256/{digest(inner)[7:]}"] = inner
    bring(own_store, written(tmp_path / "layout", files), "tool:1")
    assert tree(own_store, "tool:1") == {"etc/os": "one\n", "gone": "data\n"}


def test_an_image_of_another_platform_is_refused(own_store: ImageStore, tmp_path: Path) -> None:
    """I07: an image for another platform is refused, because its programs do not run on this machine."""
    document = json.loads(config([LOWER])) | {"architecture": "s390x"}
    entry = {"Config": f"{'c' * 64}.json", "RepoTags": ["tool:1"], "Layers": [f"{'a' * 64}/layer.tar"]}
    parts = [
        file(f"{'a' * 64}/layer.tar", LOWER),
        file(f"{'c' * 64}.json", json.dumps(document).encode()),
        file("manifest.json", json.dumps([entry]).encode()),
    ]
    (tmp_path / "saved").write_bytes(layer(*parts))
    with pytest.raises(ImageError, match="s390x") as caught:
        bring(own_store, tmp_path / "saved")
    assert caught.value.code == "image-platform-missing"


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bz2.compress, zstd.compress], ids=_NAMES)
def test_a_root_file_system_is_an_image(own_store: ImageStore, tmp_path: Path, pack: Pack) -> None:
    """A root file system, compressed or not, is imported as an image with an empty configuration."""
    path = tmp_path / "root"
    path.write_bytes(pack(layer(directory("./"), file("./etc/os", b"one\n"))))
    assert bring(own_store, path, "tool:1") == ("tool:1",)
    image = own_store.find("tool:1")
    assert image is not None
    assert (image.environment, image.workdir, image.architecture) == ({}, "/", ARCHITECTURE)
    assert tree(own_store, "tool:1") == {"etc/os": "one\n"}


def test_an_archive_without_a_name_needs_one(own_store: ImageStore, tmp_path: Path) -> None:
    """An image without a name is refused unless the caller gives one. A bare tag in a layout is not a name."""
    (tmp_path / "root").write_bytes(LOWER)
    written(tmp_path / "layout", layout_files([LOWER], name="latest"))
    (tmp_path / "saved").write_bytes(docker_save([LOWER]))
    for name in ("root", "layout", "saved"):
        with pytest.raises(ConfigError) as caught:
            bring(own_store, tmp_path / name)
        assert caught.value.code == "image-name-needed"
        assert own_store.entries() == ()
        assert bring(own_store, tmp_path / name, "tool:1") == ("tool:1",)
        own_store.remove("tool:1")


def test_a_name_for_several_images_is_refused(own_store: ImageStore, tmp_path: Path) -> None:
    """A name is refused for a layout of several images, because it is unclear which image would get it."""
    files = layout_files([LOWER], name="a:1")
    more = layout_files([UPPER], name="b:1")
    both = [json.loads(f["index.json"])["manifests"][0] for f in (files, more)]
    index = {"index.json": json.dumps({"schemaVersion": 2, "manifests": both}).encode()}
    written(tmp_path / "layout", files | more | index)
    with pytest.raises(ConfigError) as caught:
        bring(own_store, tmp_path / "layout", "c:1")
    assert caught.value.code == "image-name-needed"
    assert bring(own_store, tmp_path / "layout") == ("a:1", "b:1")


def test_images_that_share_layers_come_in_together(own_store: ImageStore, tmp_path: Path) -> None:
    """Two images of one archive may share a layer."""
    files = layout_files([LOWER], name="a:1")
    more = layout_files([LOWER, UPPER], name="b:1")
    both = [json.loads(f["index.json"])["manifests"][0] for f in (files, more)]
    files |= more | {"index.json": json.dumps({"schemaVersion": 2, "manifests": both}).encode()}
    (tmp_path / "image").write_bytes(tar_of(files))
    assert bring(own_store, tmp_path / "image") == ("a:1", "b:1")
    assert tree(own_store, "b:1") == EXPECTED


def _without(name: str) -> bytes:
    return tar_of({key: data for key, data in layout_files([LOWER], name="a:1").items() if not key.startswith(name)})


def _saved(entry: object) -> bytes:
    return layer(file(f"{'a' * 64}/layer.tar", LOWER), file("manifest.json", json.dumps(entry).encode()))


FAULTY: Mapping[str, tuple[bytes, str]] = {
    "no archive": (b"something else entirely" * 100, "image-malformed"),
    "empty": (b"", "image-malformed"),
    "cut short": (layer(file("a", bytes(5000)))[:3000], "image-malformed"),
    "cut short, compressed": (gzip.compress(LOWER)[:-20], "image-malformed"),
    "damaged, compressed": (gzip.compress(LOWER)[:40] + b"\xff" * 20 + gzip.compress(LOWER)[60:], "image-malformed"),
    "no zstd": (b"\x28\xb5\x2f\xfd" + bytes(100), "image-malformed"),
    "without an end mark": (LOWER[:1536], "image-malformed"),
    "a layout without blobs": (_without("blobs"), "image-malformed"),
    "a layout without an index": (_without("index"), "image-malformed"),
    "no list": (_saved({"Config": "x"}), "image-malformed"),
    "no config": (_saved([{"Layers": []}]), "image-malformed"),
    "a config that is not there": (_saved([{"Config": "../../etc/passwd", "Layers": []}]), "image-malformed"),
    "a layer for a config": (_saved([{"Config": f"{'a' * 64}/layer.tar", "Layers": []}]), "image-malformed"),
    "layers that are no list": (_saved([{"Config": f"{'a' * 64}/layer.tar", "Layers": 1}]), "image-malformed"),
}


@pytest.mark.parametrize("name", FAULTY)
def test_what_is_no_whole_archive_is_refused(own_store: ImageStore, tmp_path: Path, name: str) -> None:
    """H13: a malformed or truncated archive is refused with an error that names the file, and nothing is stored."""
    data, code = FAULTY[name]
    (tmp_path / "image").write_bytes(data)
    with pytest.raises(ImageError) as caught:
        bring(own_store, tmp_path / "image", "tool:1")
    assert caught.value.code == code
    assert str(tmp_path / "image") in caught.value.message
    assert own_store.entries() == ()
    assert not any(path.is_file() for path in (own_store.directory / "blobs").rglob("*"))


def test_a_layout_whose_blob_is_another_is_refused(own_store: ImageStore, tmp_path: Path) -> None:
    """H13: a layout is refused if a blob does not have the digest in its name."""
    files = layout_files([LOWER], name="a:1")
    files[f"blobs/sha256/{digest(LOWER)[7:]}"] = UPPER
    for path in (written(tmp_path / "layout", files), tmp_path / "tar"):
        if not path.exists():
            path.write_bytes(tar_of(files))
        with pytest.raises(ImageError) as caught:
            bring(own_store, path)
        assert caught.value.code == "image-blob-mismatch"


def test_layers_that_are_not_those_of_the_configuration_are_refused(own_store: ImageStore, tmp_path: Path) -> None:
    """H13: an image is refused if its configuration lists another layer, or fewer layers than it has."""
    for stored, code in (([UPPER], "image-blob-mismatch"), ([LOWER, UPPER], "image-malformed")):
        (tmp_path / "image").write_bytes(tar_of(layout_files([LOWER], stored, "a:1")))
        with pytest.raises(ImageError) as caught:
            bring(own_store, tmp_path / "image")
        assert caught.value.code == code
        assert own_store.entries() == ()


def test_a_hostile_layer_is_refused_before_its_image_has_a_name(own_store: ImageStore, tmp_path: Path) -> None:
    """H13, H15: an image with a hostile layer is not imported, and nothing is written outside the image's tree."""
    (tmp_path / "image").write_bytes(docker_save([LOWER, layer(file("../../escaped"))], ["a:1"]))
    with pytest.raises(ImageError, match="layer 2 of 2"):
        bring(own_store, tmp_path / "image")
    assert own_store.entries() == ()
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize("linked", ["index.json", "blobs", "blobs/sha256"])
def test_no_link_of_a_layout_is_followed(own_store: ImageStore, tmp_path: Path, linked: str) -> None:
    """H01: a layout that contains a symbolic link is refused, because the link could lead to any file of the host."""
    layout = written(tmp_path / "layout", layout_files([LOWER], name="a:1"))
    (layout / linked).rename(tmp_path / "elsewhere")
    (layout / linked).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ImageError) as caught:
        bring(own_store, layout)
    assert caught.value.code == "image-malformed"


def test_an_archive_of_too_many_files_is_refused(
    own_store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H08: an image archive with too many files is refused, because each would become a file in the store."""
    monkeypatch.setattr(archive_files, "MAX_FILES", 5)
    (tmp_path / "image").write_bytes(layer(*(file(f"{n:064x}.json") for n in range(10))))
    with pytest.raises(ImageError) as caught:
        bring(own_store, tmp_path / "image")
    assert caught.value.code == "image-too-large"


def test_other_files_of_an_image_archive_are_passed_over(own_store: ImageStore, tmp_path: Path) -> None:
    """Files of an image archive that do not belong to an image are not stored."""
    saved = layer(file(f"{'f' * 64}.json"), file("../README"), file("setup.sh"))
    (tmp_path / "image").write_bytes(saved[:-10240] + docker_save([LOWER], ["a:1"]))
    bring(own_store, tmp_path / "image")
    assert tree(own_store, "a:1") == {"etc/os": "one\n", "gone": "data\n"}
    assert len(list((own_store.directory / "blobs/sha256").iterdir())) == 3


def test_a_root_archive_may_hold_any_first_file(own_store: ImageStore, tmp_path: Path) -> None:
    """A root file system may contain a ``manifest.json``, if that is not the first member of the archive."""
    (tmp_path / "root").write_bytes(layer(file("srv/manifest.json"), file("manifest.json")))
    assert bring(own_store, tmp_path / "root", "tool:1")
    assert set(tree(own_store, "tool:1")) == {"srv/manifest.json", "manifest.json"}


def test_gnu_and_pax_archives_of_other_tools_are_read(own_store: ImageStore, tmp_path: Path) -> None:
    """Root file systems with long names are read in the GNU, PAX and USTAR formats."""
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT):
        long = "/".join(["directory"] * 12) + "/file" if form == tarfile.USTAR_FORMAT else "d/" * 100 + "f"
        (tmp_path / "root").write_bytes(layer(file(long, b"x"), form=form))
        bring(own_store, tmp_path / "root", "tool:1")
        assert tree(own_store, "tool:1") == {long: "x"}
