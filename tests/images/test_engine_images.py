"""Images are copied between an engine and the store, and keep their ids and files."""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import tarfile
from typing import TYPE_CHECKING

import pytest

from image_archives import directory, docker_save, file, layer
from securebench.images.engine_images import import_from_engine, load_into_engine
from securebench.images.ensure import ensure_image
from securebench.images.resolve import resolve
from securebench.images.store.archive import import_path
from securebench.images.store.ids import tree_shift
from securebench.images.store.index import ImageSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.engine.client import Engine
    from securebench.images.model import ResolvedImage
    from securebench.images.store.image_store import ImageStore

pytestmark = pytest.mark.engine

Entry = tuple[object, ...]

DOCKERFILE = """
FROM {base}
RUN mkdir /a && echo one >/a/kept && echo two >/a/gone && ln /a/kept /a/linked && mkdir -p /opaque/sub \\
    && touch /opaque/old /opaque/sub/old && mkdir /becomes-file && touch /becomes-file/x && echo f >/becomes-dir \\
    && ln -s kept /a/symbolic && ln -s /a /to-a && cp /bin/true /set-id && chmod 6755 /set-id && mkfifo /fifo
RUN rm /a/gone && echo more >>/a/linked && rm -r /opaque && mkdir /opaque && touch /opaque/new
RUN rm -r /becomes-file && echo now >/becomes-file && rm /becomes-dir && mkdir /becomes-dir && touch /becomes-dir/y \\
    && chown 33:44 /a/kept && chmod 700 /a && touch "/odd name" && echo through >/to-a/through
RUN ln /usr/bin/sort /sort-link && rm /usr/bin/tail && rm -r /usr/share/doc && mv /etc/issue /etc/issue.moved \\
    && touch -d 2001-01-01 /a/symbolic /becomes-file && chmod 1777 /opaque && chown 7:8 /opaque
ENV MADE=yes
WORKDIR /a
USER 33
"""

NOT_OF_THE_IMAGE = {".dockerenv", "dev", "proc", "sys", "etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab"}
"""The files and directories that an engine adds to every container."""


@pytest.fixture
def name(engine: Engine) -> Iterator[str]:
    """Yield an unused reference. Afterwards, remove the images with this reference from the engine."""
    reference = f"securebench-test/{secrets.token_hex(6)}:1"
    yield reference
    for image in engine.client.images(name=reference):
        engine.client.remove_image(image["Id"], force=True)


def silent(_line: str) -> None:
    """Ignore a line about the progress."""


def exported(engine: Engine, image: str) -> dict[str, Entry]:
    """Return the files, directories and links of a container of the image, as the engine exports them."""
    container = engine.client.create_container(image, ["true"])["Id"]
    try:
        data = io.BytesIO(b"".join(engine.client.export(container)))
    finally:
        engine.client.remove_container(container)
    with tarfile.open(fileobj=data) as archive:
        return {
            entry.name.rstrip("/"): _exported_entry(archive, entry)
            for entry in archive
            if not _is_the_engines(entry.name) and (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk())
        }


def _exported_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> Entry:
    real = archive._find_link_target(entry) if entry.islnk() else entry  # type: ignore[attr-defined]
    owner = (real.uid, real.gid)
    if real.issym():
        return ("link", owner, real.linkname)
    if real.isdir():
        return ("directory", owner, oct(real.mode & 0o7777))
    content = archive.extractfile(real)
    assert content is not None
    return (
        "file",
        owner,
        oct(real.mode & 0o7777),
        real.size,
        hashlib.sha256(content.read()).hexdigest(),
        int(real.mtime),
    )


def unpacked(root: Path) -> dict[str, Entry]:
    """Return the files, directories and links below ``root``, a tree of the store."""
    shift = tree_shift()
    found: dict[str, Entry] = {}
    for top, directories, files in os.walk(root):
        for entry in (*directories, *files):
            path = root / top / entry
            name = str(path.relative_to(root))
            status = path.lstat()
            owner = (status.st_uid - shift, status.st_gid - shift)
            if _is_the_engines(name):
                continue
            if path.is_symlink():
                found[name] = ("link", owner, str(path.readlink()))
            elif path.is_dir():
                found[name] = ("directory", owner, oct(status.st_mode & 0o7777))
            else:
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                mode = oct(status.st_mode & 0o7777)
                found[name] = ("file", owner, mode, status.st_size, content, int(status.st_mtime))
    return found


def _is_the_engines(name: str) -> bool:
    parts = name.strip("/").split("/")
    return parts[0] in NOT_OF_THE_IMAGE or "/".join(parts) in NOT_OF_THE_IMAGE


def built(engine: Engine, text: str, reference: str) -> str:
    """Build a Dockerfile on the engine, without a network, and return the image's id."""
    events = engine.client.build(
        fileobj=io.BytesIO(text.encode()), tag=reference, rm=True, forcerm=True, network_mode="none", decode=True
    )
    errors = [event["error"] for event in events if "error" in event]
    assert errors == []
    return str(engine.client.inspect_image(reference)["Id"])  # type: ignore[no-untyped-call]  # untyped in the stubs


@pytest.mark.skipif(os.geteuid() != 0, reason="only root keeps owners")
def test_layers_unpack_to_what_the_engine_exports(
    engine: Engine, base_image: ResolvedImage, own_store: ImageStore, name: str
) -> None:
    """An image is unpacked to the same files, directories and links that the engine exports from its container.

    Types, owners, contents and link targets are equal. So are the modes of files and directories, and the times of
    files. Special files are not unpacked. The image's layers delete files, replace files with directories and
    the reverse, recreate directories, and create links.
    """
    resolve(engine, base_image.id)
    image_id = built(engine, DOCKERFILE.format(base=base_image.id), name)
    import_from_engine(engine, own_store, name, silent)
    image = own_store.find(name)
    assert image is not None
    assert image.id == image_id
    assert (image.environment["MADE"], image.workdir, image.user) == ("yes", "/a", "33")
    with own_store.lease(image.id) as lease:
        ours = unpacked(lease.root)
        assert (lease.root / "sort-link").samefile(lease.root / "usr/bin/sort")
    theirs = exported(engine, image_id)
    assert len(theirs) > 1000
    assert ours == theirs
    assert "fifo" not in ours


def test_an_image_of_the_store_runs_on_the_engine_under_its_id(
    engine: Engine, own_store: ImageStore, name: str, tmp_path: Path
) -> None:
    """An image that was imported into the store is loaded into an engine that lacks it, once and with the same id."""
    (tmp_path / "saved").write_bytes(
        docker_save([layer(file("one", b"1")), layer(directory("two"))], [name], Env=["A=b"])
    )
    import_path(own_store, tmp_path / "saved", "", silent)
    image = own_store.find(name)
    assert image is not None
    lines: list[str] = []
    assert resolve(engine, name, lines.append).id == image.id
    assert resolve(engine, name, lines.append).environment == {"A": "b"}
    assert lines == [f"copying {name} to the engine"]
    assert [found["RepoTags"] for found in engine.client.images(name=name)] == [[name]]


def test_the_store_goes_before_what_the_engine_has_under_the_name(
    engine: Engine, own_store: ImageStore, name: str, tmp_path: Path
) -> None:
    """I06: an image imported into the store is used for its name, even if the engine has another image of that name."""
    engine.client.import_image_from_data(layer(file("other")), repository=name.split(":", maxsplit=1)[0], tag="1")
    old = str(engine.client.inspect_image(name)["Id"])  # type: ignore[no-untyped-call]  # untyped in the stubs
    (tmp_path / "saved").write_bytes(docker_save([layer(file("one", b"1"))], [name]))
    import_path(own_store, tmp_path / "saved", "", silent)
    image = own_store.find(name)
    assert image is not None
    assert resolve(engine, name).id == image.id == ensure_image(own_store, name).id
    engine.client.remove_image(old)


def test_an_image_of_an_engine_is_taken_when_it_is_needed_and_follows_the_engine(
    engine: Engine, own_store: ImageStore, name: str
) -> None:
    """An engine's image is copied to the store when it is needed, and again when its name means another image."""
    repository = name.split(":", maxsplit=1)[0]
    engine.client.import_image_from_data(layer(file("first")), repository=repository, tag="1")
    lines: list[str] = []
    first = ensure_image(own_store, name, lines.append)
    assert ensure_image(own_store, name, lines.append) == first
    assert lines == [f"copying {name} from the engine", "unpacking"]
    origin = own_store.origin(name)
    assert origin is not None
    assert (origin.source, origin.engine_id) == (ImageSource.ENGINE, first.id)
    engine.client.remove_image(name)
    engine.client.import_image_from_data(layer(file("second")), repository=repository, tag="1")
    second = ensure_image(own_store, name)
    assert second.id != first.id
    with own_store.lease(second.id) as lease:
        assert (lease.root / "second").exists()
    assert ensure_image(own_store, first.id).id == first.id, "a run that began with it goes on"
    engine.client.remove_image(name)
    assert ensure_image(own_store, name).id == second.id, "what the engine lost, the store has"


def test_an_image_of_an_engine_is_provided_by_its_id(engine: Engine, own_store: ImageStore, name: str) -> None:
    """An image that is copied from an engine by its id gets no name in the store."""
    engine.client.import_image_from_data(layer(file("one")), repository=name.split(":", maxsplit=1)[0], tag="1")
    image_id = str(engine.client.inspect_image(name)["Id"])  # type: ignore[no-untyped-call]  # untyped in the stubs
    assert ensure_image(own_store, image_id).id == image_id
    assert [entry.reference for entry in own_store.entries()] == [""]


def test_an_image_can_be_given_by_its_id(engine: Engine, own_store: ImageStore, name: str, tmp_path: Path) -> None:
    """An image can be loaded into an engine by its id, and then has no name there."""
    (tmp_path / "saved").write_bytes(docker_save([layer(file("one", b"1"))]))
    import_path(own_store, tmp_path / "saved", name, silent)
    image = own_store.find(name)
    assert image is not None
    load_into_engine(engine, own_store, image.id, silent)
    found = engine.client.inspect_image(image.id)  # type: ignore[no-untyped-call]  # untyped in the stubs
    assert (found["Id"], found["RepoTags"]) == (image.id, [])
    engine.client.remove_image(image.id)
