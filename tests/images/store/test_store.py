"""The image store: imports are complete or leave nothing, and images are unpacked once and kept while in use."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from image_archives import config, digest, directory, docker_save, file, layer
from leftovers import remove_images
from securebench.errors import ConfigError, DiskFullError, ImageError
from securebench.fs.locks import take, take_now
from securebench.fs.rmtree import remove_entry
from securebench.images.layout import LAYER_TYPE, Descriptor
from securebench.images.store import incoming as incoming_module
from securebench.images.store import index, leases, temporary
from securebench.images.store.archive import RootConfig, add_root, import_path
from securebench.images.store.ids import SHIFT
from securebench.images.store.image_store import ImageStore, TreeLease
from securebench.images.store.index import ImageSource, Origin
from securebench.images.store.leases import Layer, unpack
from securebench.images.store.places import DIRECTORY_VARIABLE, default_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from securebench.fs.archives import ArchiveLimits
    from securebench.images.store.incoming import Incoming
    from securebench.images.store.tree_builder import Unpacked

ARCHIVE = Origin(ImageSource.ARCHIVE)
_PROCESSES = 3
ROOT = layer(file("etc/os", b"one\n"))


def put(store: ImageStore, reference: str, root: bytes = ROOT, **variables: str) -> str:
    """Import a root file system as an image named ``reference``, and return the image's id."""
    with store.incoming(ARCHIVE) as incoming:
        image_id = add_root(incoming, [root], RootConfig(variables), "the test's root")
        incoming.name(image_id, reference)
    return image_id


def files_in(store: ImageStore) -> set[str]:
    """Return the paths of a store's blobs, trees, image locks and work directories."""
    tops = ("blobs/sha256", "trees", "locks", "work")
    found = {f"{top}/{path.name}" for top in tops for path in (store.directory / top).iterdir()}
    return found - {"locks/store"}


def test_what_came_in_is_found_by_name_and_by_id(own_store: ImageStore) -> None:
    """I06: an image is found by its name, by its full reference and by its id, with its environment."""
    image_id = put(own_store, "tool:1", PATH="/bin", LANG="C")
    found = own_store.find("tool:1")
    assert found is not None
    assert (found.reference, found.id, found.environment) == ("tool:1", image_id, {"PATH": "/bin", "LANG": "C"})
    assert own_store.find(image_id) is not None
    assert own_store.find("docker.io/library/tool:1") is not None
    assert own_store.find("tool:2") is None
    assert own_store.find(digest(b"other")) is None
    assert own_store.origin("tool:1") == ARCHIVE


def test_a_store_that_is_not_there_is_empty(own_store: ImageStore) -> None:
    """A store that does not exist counts as empty, and reading it creates nothing on the disk."""
    assert own_store.find("tool:1") is None
    assert own_store.entries() == ()
    assert not own_store.directory.exists()


def test_the_same_archive_is_the_same_image(own_store: ImageStore, tmp_path: Path) -> None:
    """Two stores give the same archive the same id, because the id does not depend on time or host."""
    other = ImageStore(tmp_path / "other")
    assert put(own_store, "a:1") == put(other, "b:1")


def test_an_image_is_unpacked_when_it_is_first_leased(own_store: ImageStore) -> None:
    """The first lease of an image unpacks its files, and the next lease uses the same tree."""
    image_id = put(own_store, "tool:1")
    assert not own_store.entries()[0].unpacked
    with own_store.lease(image_id) as lease:
        assert (lease.root / "etc/os").read_text() == "one\n"
        first = lease.root.stat().st_ino
    with own_store.lease(image_id) as lease:
        assert lease.root.stat().st_ino == first
    assert own_store.entries()[0].unpacked


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_only_a_sandboxs_root_may_pass_to_the_trees(own_store: ImageStore) -> None:
    """H06: no account of the host owns a set-user-id program of an image, and none except root can reach it."""
    image_id = put(own_store, "tool:1", layer(file("su", b"", mode=0o4755)))
    with own_store.lease(image_id) as lease:
        trees = lease.root.parent.stat()
        assert (trees.st_uid, trees.st_gid, stat.S_IMODE(trees.st_mode)) == (0, SHIFT, 0o710)
        assert (lease.root / "su").stat().st_uid == SHIFT
    modes = {name: stat.S_IMODE((own_store.directory / name).stat().st_mode) for name in ("blobs", "locks", "work")}
    assert set(modes.values()) == {0o700}


def test_many_threads_unpack_once(own_store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """If several threads lease an image before it is unpacked, it is unpacked once, and they share its tree."""
    image_id = put(own_store, "tool:1")
    unpacked = []
    together = threading.Barrier(8, timeout=60)

    def claim(path: Path) -> int | None:
        together.wait()
        return take_now(path)

    def counted(layers: Sequence[Layer], root: Path, shift: int, limits: ArchiveLimits) -> Unpacked:
        unpacked.append(root)
        return unpack(layers, root, shift, limits)

    monkeypatch.setattr(leases, "take_now", claim)
    monkeypatch.setattr(leases, "unpack", counted)
    with ThreadPoolExecutor(8) as pool:
        held = list(pool.map(lambda _: own_store.lease(image_id), range(8)))
    assert len({lease.root for lease in held}) == 1
    assert len(unpacked) == 1
    for lease in held:
        lease.close()


def test_processes_that_import_at_once_do_not_lose_each_others_images(own_store: ImageStore, tmp_path: Path) -> None:
    """Images that several processes import at the same time are all listed, because a lock protects the index."""
    (tmp_path / "root.tar").write_bytes(ROOT)
    argv = [sys.executable, "-m", "securebench", "images", "import", str(tmp_path / "root.tar"), "--name"]
    started = [subprocess.Popen([*argv, f"tool:{number}"], stdout=subprocess.PIPE) for number in range(_PROCESSES)]
    for process in started:
        process.communicate()
    assert [process.returncode for process in started] == [0] * _PROCESSES
    assert [entry.reference for entry in own_store.entries()] == [f"tool:{number}" for number in range(_PROCESSES)]


def test_what_has_no_name_at_the_end_goes(own_store: ImageStore) -> None:
    """L25: an interrupted import that has not named its image leaves nothing, even if the image was unpacked."""
    kept = put(own_store, "tool:1")
    before = files_in(own_store)
    other = layer(file("etc/os", b"two\n"))
    with suppress(KeyboardInterrupt), own_store.incoming(ARCHIVE) as incoming:
        image_id = add_root(incoming, [other], RootConfig(), "")
        own_store.lease(image_id).close()
        raise KeyboardInterrupt
    found = own_store.find("tool:1")
    assert found is not None
    assert found.id == kept
    assert own_store.find(image_id) is None
    assert files_in(own_store) == before


def test_a_name_that_moves_leaves_the_image_to_who_knows_its_id(own_store: ImageStore) -> None:
    """I06: an image whose name has moved stays usable by its id. A prune removes it once it is no longer in use."""
    first = put(own_store, "tool:1")
    second = put(own_store, "tool:1", layer(file("etc/os", b"two\n")))
    found = own_store.find("tool:1")
    assert found is not None
    assert found.id == second != first
    assert own_store.find(first) is not None
    with own_store.lease(first):
        own_store.prune()
        assert own_store.find(first) is not None, "it is in use"
    assert [entry.id for entry in own_store.prune().removed] == [first]
    assert own_store.find(first) is None
    assert own_store.find(second) is not None


KILLED = """
import os, signal, sys
from securebench.images.store import {module} as module
from securebench.images.store.image_store import ImageStore
from securebench.images.store.index import Origin, ImageSource
from securebench.images.store.archive import RootConfig, add_root
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
real = getattr(module, {name!r})
def late(*args, **kwargs):
    real(*args, **kwargs)
    die()
setattr(module, {name!r}, late if {late} else die)
store = ImageStore()
with store.incoming(Origin(ImageSource.ARCHIVE)) as incoming:
    image_id = add_root(incoming, [open(sys.argv[1], "rb").read()], RootConfig(), "")
    store.lease(image_id).close()
    die()
"""


@pytest.mark.parametrize(
    ("module", "name", "late"),
    [
        ("incoming", "locked", False),
        ("incoming", "sync_file_system", True),
        ("leases", "unpack", False),
        ("leases", "unpack", True),
        ("leases", "sync_directory", False),
        ("incoming", "named", True),
        ("index", "write_whole", False),
        ("index", "write_whole", True),
    ],
)
def test_a_kill_at_any_point_leaves_nothing_that_counts(
    own_store: ImageStore, tmp_path: Path, module: str, name: str, late: bool
) -> None:
    """L25: an import killed at any point changes no other image. The next import and prune delete what it left."""
    kept = put(own_store, "kept:1")
    own_store.lease(kept).close()
    before = files_in(own_store)
    (tmp_path / "other").write_bytes(layer(file("etc/os", b"two\n")))
    code = KILLED.format(module=module, name=name, late=late)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "other")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [entry.reference for entry in own_store.entries()] == ["kept:1"]
    put(own_store, "kept:1")
    own_store.prune()
    assert files_in(own_store) == before
    with own_store.lease(kept) as lease:
        assert (lease.root / "etc/os").read_text() == "one\n"


KILLED_REMOVAL = """
import os, signal
from pathlib import Path
from securebench.images.store import {module} as module
from securebench.images.store.image_store import ImageStore
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
real = {owner}.{name}
def late(*args, **kwargs):
    real(*args, **kwargs)
    die()
{owner}.{name} = late if {late} else die
ImageStore().remove("gone:1")
"""


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("module", "owner", "name"),
    [
        ("temporary", "module", "_new_directory"),
        ("temporary", "Path", "rename"),
        ("leases", "Path", "unlink"),
        ("temporary", "module", "remove_entry"),
    ],
)
def test_a_removal_killed_at_any_point_is_finished_by_the_next_prune(
    own_store: ImageStore, module: str, owner: str, name: str, late: bool
) -> None:
    """After a killed removal, the image is no longer listed. The next prune deletes its files and no others."""
    kept = put(own_store, "kept:1")
    own_store.lease(kept).close()
    before = files_in(own_store)
    own_store.lease(put(own_store, "gone:1", layer(file("etc/os", b"two\n")))).close()
    code = KILLED_REMOVAL.format(module=module, owner=owner, name=name, late=late)
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [entry.reference for entry in own_store.entries()] == ["kept:1"]
    own_store.prune()
    assert files_in(own_store) == before


def _free_store_lock(store: ImageStore) -> bool:
    held = take_now(store.directory / "locks/store")
    if held is not None:
        os.close(held)
    return held is not None


def test_a_tree_is_deleted_without_the_stores_lock(own_store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a tree is deleted, the store can be used, and another prune leaves that tree alone."""
    own_store.lease(put(own_store, "tool:1")).close()
    deleted: list[list[str]] = []

    def delete(parent: int, name: str) -> None:
        monkeypatch.undo()
        deleted.append([path.name for path in (own_store.directory / "trees").iterdir()])
        assert _free_store_lock(own_store)
        again = put(own_store, "tool:1")
        own_store.lease(again).close()
        own_store.prune()
        assert (own_store.directory / "work" / name).is_dir()
        remove_entry(parent, name)

    monkeypatch.setattr(temporary, "remove_entry", delete)
    own_store.remove("tool:1")
    assert deleted == [[]]
    assert [entry.reference for entry in own_store.entries()] == ["tool:1"]
    assert not list((own_store.directory / "work").iterdir())


def test_abandoned_work_is_deleted_without_the_stores_lock(
    own_store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leftovers of a killed import, which may be large, are deleted while the store's lock is free."""
    put(own_store, "tool:1")
    (own_store.directory / "work/left").mkdir()
    free: list[bool] = []

    def delete(parent: int, name: str) -> None:
        free.append(_free_store_lock(own_store))
        remove_entry(parent, name)

    monkeypatch.setattr(temporary, "remove_entry", delete)
    own_store.prune()
    assert free == [True]
    assert not list((own_store.directory / "work").iterdir())


def test_a_blob_must_be_what_it_is_announced_as(own_store: ImageStore) -> None:
    """H13: a blob that does not have its declared digest and size is refused, and nothing is stored."""
    with pytest.raises(ImageError) as caught, own_store.incoming(ARCHIVE) as incoming:
        incoming.write(digest(b"announced"), 9, [b"something"])
    assert caught.value.code == "image-blob-mismatch"
    with pytest.raises(ImageError), own_store.incoming(ARCHIVE) as incoming:
        incoming.write(digest(b"data"), 5, [b"data"])
    assert files_in(own_store) == set()


def test_a_blob_that_is_there_is_not_needed_again(own_store: ImageStore) -> None:
    """A blob that an import found in the store is not deleted during the import, even if its only image is removed."""
    put(own_store, "a:1")
    with own_store.incoming(ARCHIVE) as incoming:
        assert incoming.has(digest(ROOT))
        assert not incoming.has(digest(b"other"))
        own_store.remove("a:1")
        image_id = _add_again(incoming)
        incoming.name(image_id, "b:1")
    with own_store.lease(image_id) as lease:
        assert (lease.root / "etc/os").exists()


def _add_again(incoming: Incoming) -> str:
    return incoming.add(config([ROOT]), [Descriptor(LAYER_TYPE, digest(ROOT), len(ROOT))])


def test_an_image_goes_with_its_last_name(own_store: ImageStore) -> None:
    """Removing one of two names keeps the image. Removing the last name deletes its blobs, tree and lock."""
    put(own_store, "a:1")
    image_id = put(own_store, "b:1")
    own_store.lease(image_id).close()
    own_store.remove("a:1")
    assert own_store.find("b:1") is not None
    own_store.remove("b:1")
    assert own_store.entries() == ()
    assert files_in(own_store) == set()


def test_an_image_goes_by_its_id_under_all_names(own_store: ImageStore) -> None:
    """Removing an image by its id removes all of its names."""
    put(own_store, "a:1")
    image_id = put(own_store, "b:1")
    assert {entry.reference for entry in own_store.remove(image_id)} == {"a:1", "b:1"}
    assert own_store.entries() == ()


def test_an_image_that_a_run_uses_is_not_removed(own_store: ImageStore) -> None:
    """L27: an image in use is removed neither by name nor to meet a budget. Later, it can be removed."""
    image_id = put(own_store, "tool:1")
    with own_store.lease(image_id) as lease:
        with pytest.raises(ImageError) as caught:
            own_store.remove("tool:1")
        assert caught.value.code == "image-in-use"
        assert own_store.prune(0).removed == ()
        assert (lease.root / "etc/os").exists()
        assert own_store.entries()[0].in_use
    assert [entry.reference for entry in own_store.prune(0).removed] == ["tool:1"]


def test_a_budget_takes_what_was_not_used_for_longest(own_store: ImageStore) -> None:
    """L27: a prune removes the least recently used images, and no more than needed to meet the budget."""
    ids = {name: put(own_store, name, layer(file("f", name.encode() * 30_000))) for name in ("a:1", "b:1", "c:1")}
    for moment, name in enumerate(("b:1", "a:1", "c:1")):
        own_store.lease(ids[name]).close()
        os.utime(own_store.directory / "locks" / ids[name][7:], (moment, moment))
    whole = own_store.prune().bytes_after
    pruned = own_store.prune(whole - 1)
    assert [entry.reference for entry in pruned.removed] == ["b:1"]
    assert pruned.bytes_before == whole
    assert pruned.bytes_after < whole * 3 / 4
    assert [entry.reference for entry in own_store.entries()] == ["a:1", "c:1"]


def test_a_full_disk_is_reported_before_anything_is_written(own_store: ImageStore) -> None:
    """L27: an import that does not fit on the disk is refused, with a hint on how to free space."""
    with pytest.raises(DiskFullError, match="bytes are free") as caught, own_store.incoming(ARCHIVE, 10**18):
        pass
    assert "images prune" in caught.value.hint


def test_a_disk_that_fills_up_is_told(own_store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """L27: a disk that fills up during an import is reported as a full disk, and nothing of the import stays."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(incoming_module, "write_all", full)
    with pytest.raises(DiskFullError), own_store.incoming(ARCHIVE) as incoming:
        incoming.take([b"data"])
    assert files_in(own_store) == set()


def test_what_the_source_raises_is_not_the_stores_fault(own_store: ImageStore) -> None:
    """An error of a blob's source, such as a lost connection, is raised unchanged."""

    def broken() -> Iterator[bytes]:
        yield b"some"
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError), own_store.incoming(ARCHIVE) as incoming:
        incoming.take(broken())


def test_a_store_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    """F05: a link or a file is refused as a store, and nothing is written to the link's target."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").write_text("")
    for name in ("link", "file"):
        with pytest.raises(ImageError) as caught, ImageStore(tmp_path / name).incoming(ARCHIVE):
            pass
        assert caught.value.code == "image-store-unusable"
        assert DIRECTORY_VARIABLE in caught.value.hint
    assert list((tmp_path / "real").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_store_that_another_account_owns_is_not_used(tmp_path: Path) -> None:
    """F05: a directory of another user is refused as a store, because that user could replace what root runs."""
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 12345, 12345)
    with pytest.raises(ImageError) as caught, ImageStore(tmp_path / "theirs").incoming(ARCHIVE):
        pass
    assert caught.value.code == "image-store-unusable"


@pytest.mark.parametrize("data", [b"", b"[]", b'{"manifests": 1}', b'{"manifests": [{}]}', b"\xff", b"[" * 100_000])
def test_a_damaged_list_is_told(own_store: ImageStore, data: bytes) -> None:
    """A damaged index is an error. If it counted as empty, a prune would delete all images."""
    put(own_store, "tool:1")
    (own_store.directory / "index.json").write_bytes(data)
    for call in (own_store.entries, own_store.prune, lambda: own_store.find("tool:1")):
        with pytest.raises(ImageError) as caught:
            call()
        assert caught.value.code == "image-store-damaged"


def test_a_damaged_blob_is_told(own_store: ImageStore) -> None:
    """H13: a layer whose blob changed on the disk is not unpacked, and no part of a tree stays."""
    image_id = put(own_store, "tool:1")
    (own_store.directory / "blobs/sha256" / digest(ROOT)[7:]).write_bytes(layer(file("etc/os", b"bad\n")))
    for _ in range(2):
        with pytest.raises(ImageError) as caught:
            own_store.lease(image_id)
        assert caught.value.code == "image-blob-mismatch"
    assert list((own_store.directory / "trees").iterdir()) == []
    assert list((own_store.directory / "work").iterdir()) == []


def test_leasing_what_is_not_there_is_an_error(own_store: ImageStore) -> None:
    """Leasing an id that the store never had is an error."""
    with pytest.raises(ImageError) as caught:
        own_store.lease(digest(b"never"))
    assert caught.value.code == "image-unavailable"


@pytest.mark.parametrize("reference", ["", "../x", "UPPER", "a b"])
def test_nothing_else_is_a_reference(own_store: ImageStore, reference: str) -> None:
    """F06: a malformed reference is refused, so that it never becomes part of a path."""
    for call in (own_store.find, own_store.remove):
        with pytest.raises(ConfigError):
            call(reference)


def test_the_layout_is_one_that_other_tools_read(own_store: ImageStore, tmp_path: Path) -> None:
    """The store is an OCI image layout: another store can import it, with the same id and name."""
    image_id = put(own_store, "tool:1", PATH="/bin")
    other = ImageStore(tmp_path / "other")
    assert import_path(other, own_store.directory, "", lambda _line: None) == ("tool:1",)
    found = other.find("tool:1")
    assert found is not None
    assert found.id == image_id
    assert json.loads((own_store.directory / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}


def test_nothing_of_the_host_is_in_the_store(own_store: ImageStore, tmp_path: Path) -> None:
    """F06: no file of the store contains a host path, neither that of an imported archive nor that of the store."""
    (tmp_path / "secret-place").mkdir()
    path = tmp_path / "secret-place" / "image.tar"
    path.write_bytes(docker_save([ROOT], ["tool:1"]))
    import_path(own_store, path, "", lambda _line: None)
    texts = [p.read_bytes() for p in own_store.directory.rglob("*") if p.is_file() and p.stat().st_size < 100_000]
    assert texts
    assert not any(str(tmp_path).encode() in text for text in texts)


def test_where_the_store_is_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A variable sets the store's directory.

    Without it, root's store is in /var/lib, and that of another user is in the user's data directory.
    """
    assert default_directory({DIRECTORY_VARIABLE: str(tmp_path)}) == tmp_path
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_directory({}) == Path("/var/lib/securebench/images")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert default_directory({"XDG_DATA_HOME": "/data"}) == Path("/data/securebench/images")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_directory({"XDG_DATA_HOME": "relative"}) == Path("/home/someone/.local/share/securebench/images")


def test_a_lease_is_closed_once(own_store: ImageStore) -> None:
    """Closing a lease again does not close another file that has got the same descriptor."""
    lease = own_store.lease(put(own_store, "tool:1"))
    lease.close()
    read, write = os.pipe()
    lease.close()
    os.close(read)
    os.close(write)


def test_who_waits_for_an_unpacking_gets_its_tree(own_store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second lease waits until the first has unpacked the image, and then gets the complete tree."""
    image_id = put(own_store, "tool:1")
    begun, asked, go_on = threading.Event(), threading.Event(), threading.Event()

    def noted(path: Path, *, shared: bool = False) -> int:
        asked.set()
        return take(path, shared=shared)

    def slow(layers: Sequence[Layer], root: Path, shift: int, limits: ArchiveLimits) -> Unpacked:
        begun.set()
        assert go_on.wait(10)
        return unpack(layers, root, shift, limits)

    monkeypatch.setattr(leases, "unpack", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(own_store.lease, image_id)
        assert begun.wait(10)
        monkeypatch.setattr(leases, "take", noted)
        second = pool.submit(own_store.lease, image_id)
        assert asked.wait(10)
        done, _ = wait([second], timeout=0.1)
        go_on.set()
        assert not done, "it waits"
        for lease in (first.result(), second.result()):
            assert (lease.root / "etc/os").exists()
            lease.close()


_LOOKS: dict[str, Callable[[ImageStore, str], object]] = {
    "find": lambda store, _: store.find("tool:1"),
    "find by id": lambda store, image_id: store.find(image_id),
    "labels": lambda store, _: store.labels("tool:1"),
    "entries": lambda store, _: store.entries(),
    "documents": lambda store, image_id: store.documents(image_id),
}


@pytest.mark.parametrize("removed", ["tool:1", "other:1"])
@pytest.mark.parametrize("document", [1, 2])
@pytest.mark.parametrize("look", _LOOKS)
def test_an_image_that_is_removed_while_it_is_looked_at_is_no_damage(
    own_store: ImageStore, monkeypatch: pytest.MonkeyPatch, removed: str, document: int, look: str
) -> None:
    """If another process removes an image during a read, the store is not reported as damaged."""
    put(own_store, "other:1", layer(file("a", b"1")))
    image_id = put(own_store, "tool:1", layer(file("a", b"2")))
    read, wanted = index.read_document, []

    def slow(path: Path) -> bytes:
        wanted.append(path)
        if len(wanted) == 1 + document:  # the first document is the index
            ImageStore(own_store.directory).remove(removed)
        return read(path)

    monkeypatch.setattr(index, "read_document", slow)
    problem = _problem(lambda: _LOOKS[look](own_store, image_id))
    assert problem.startswith(("no error", "image-unavailable") if removed == "tool:1" else "no error")


def _store_of_his_own(saved: Path, directory: Path) -> list[str]:
    """Import an image and remove it. Return the entries of its tree, and then what is left in the store."""
    store = ImageStore(directory)
    import_path(store, saved, "tool:1", lambda _line: None)
    image = store.find("tool:1")
    assert image is not None
    seen = []
    with store.lease(image.id) as lease:
        for path in (lease.root, *sorted(lease.root.rglob("*"))):
            status = path.lstat()
            is_his = (status.st_uid, status.st_gid) == (os.getuid(), os.getgid())
            seen.append(f"{path.relative_to(lease.root)} {status.st_mode & 0o7777:o} {is_his}")
    store.remove("tool:1")
    return [*seen, *sorted(files_in(store))]


def _as_nobody(call: Callable[[], list[str]]) -> list[str]:
    """Return what ``call`` returns in a process of the user nobody.

    The process is forked, because that user may lack the permission to start the Python interpreter.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(write, "\n".join(call()).encode())
        except BaseException as error:  # noqa: BLE001 - sent to the parent
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        output = pipe.read()
    os.waitpid(child, 0)
    return output.splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_home_that_cannot_be_entered_holds_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a home that cannot be entered, as after ``sudo -u``, no image is found. An import fails with a hint."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)

    def look() -> list[str]:
        store = ImageStore()
        assert store.directory.is_relative_to(tmp_path)
        return [str(store.find("tool:1")), str(store.entries()), _problem(lambda: put(store, "tool:1"))]

    found, entries, problem = _as_nobody(look)
    assert (found, entries) == ("None", "()")
    assert problem == f"image-store-unusable: set {DIRECTORY_VARIABLE} to a directory of your own"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_store_of_another_user_is_not_damaged(own_store: ImageStore) -> None:
    """A store that this user may not read is reported as unusable, and the hint does not say to delete it."""
    put(own_store, "tool:1")
    for closed in (own_store.directory / "blobs", own_store.directory / "index.json", own_store.directory):
        with _reachable(own_store.directory):
            closed.chmod(0)
            lines = _as_nobody(lambda: [_problem(own_store.entries), _problem(lambda: own_store.find("tool:1"))])
            closed.chmod(0o755)
        assert lines == [f"image-store-unusable: set {DIRECTORY_VARIABLE} to a directory of your own"] * 2


def test_a_document_that_cannot_be_read_now_is_no_damage(own_store: ImageStore) -> None:
    """Having too many files open does not count as damage of the store. A blob that is a directory does."""
    put(own_store, "tool:1")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        problem = _problem(own_store.entries)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert problem.startswith("image-store-unusable: raise the limit of open files")
    index = own_store.directory / "index.json"
    index.unlink()
    index.symlink_to("/")
    assert own_store.entries() == ()  # a store without a regular index file counts as missing
    for blob in (own_store.directory / "blobs/sha256").iterdir():
        blob.unlink()
    index.unlink()
    put(own_store, "tool:2")
    for blob in (own_store.directory / "blobs/sha256").iterdir():
        blob.unlink()
        blob.mkdir()
    assert _problem(own_store.entries).startswith("image-store-damaged")


def _problem(call: Callable[[], object]) -> str:
    try:
        call()
    except ImageError as error:
        return f"{error.code}: {error.hint}"
    return "no error"


@contextmanager
def _reachable(directory: Path) -> Iterator[None]:
    """Let all users read ``directory`` and its content. At the end of the block, restore the modes of its parents."""
    above = [path for path in directory.parents if path.is_relative_to(tempfile.gettempdir())]
    modes = [(path, path.stat().st_mode) for path in above]
    for path in above:
        path.chmod(0o755)
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755)
    yield
    for path, mode in modes:
        path.chmod(mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_an_ordinary_user_has_a_store_of_his_own() -> None:
    """H11: for an ordinary user, directories of any mode are filled and removed, and the user owns every entry."""
    lower = layer(
        directory("ro", mode=0o555, owner=(1, 1)),
        directory("ro/closed", mode=0o000),
        file("ro/closed/in", b"x", mode=0o000, owner=(33, 33)),
        file("su", b"", mode=0o4755),
    )
    upper = layer(file("ro/more"), file("ro/closed/in", b"y", mode=0o400))
    with tempfile.TemporaryDirectory() as made:
        os.chown(made, 65534, 65534)
        saved = Path(made) / "saved.tar"
        saved.write_bytes(docker_save([lower, upper]))
        saved.chmod(0o644)
        seen = _as_nobody(lambda: _store_of_his_own(saved, Path(made) / "images"))
    assert seen == [". 755 True", "ro 555 True", "ro/closed 0 True", "ro/more 644 True", "su 4755 True"]


def test_a_lease_does_not_wait_for_another_to_end(own_store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that was about to unpack an image uses the tree that another, still open lease has just unpacked."""
    image_id = put(own_store, "tool:1")
    held: list[TreeLease] = []

    def late(path: Path) -> int | None:
        monkeypatch.undo()
        held.append(own_store.lease(image_id))
        return take_now(path)

    monkeypatch.setattr(leases, "take_now", late)
    with own_store.lease(image_id) as lease:
        assert lease.root == held[0].root
    held[0].close()


def test_images_of_tests_are_removed_without_an_exception(
    own_store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removing images of tests does not raise if images are missing or in use, or if the store is unusable."""
    put(own_store, "made:1")
    with own_store.lease(put(own_store, "used:1", layer(file("etc/os", b"two\n")))):
        assert remove_images(own_store, ["missing:1", "used:1", "made:1"]) == []
        assert [entry.reference for entry in own_store.entries()] == [""]

    def fail(_reference: str) -> None:
        raise ImageError("no", code="image-store-unusable")

    monkeypatch.setattr(own_store, "remove", fail)
    assert remove_images(own_store, ["made:1"]) == ["the image made:1 was not removed: no"]
