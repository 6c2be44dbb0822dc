"""Images are pulled from a registry, stored, unpacked and run in a sandbox, without an engine."""

from __future__ import annotations

import io
import json
import tarfile
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from fake_registry import Blob
from fake_server import breaks_after
from securebench.errors import ImageError
from securebench.images.ensure import ensure_image, pull
from securebench.images.registry import Platform
from securebench.images.store.image_store import ImageStore
from securebench.sandboxes.base import Command, SandboxSpec
from tiny_root import tiny_root

if TYPE_CHECKING:
    from pathlib import Path

    from fake_registry import FakeRegistry

HERE = Platform.of_this_machine()


def archive(**files: str) -> bytes:
    """Return a tar archive with these files in ``/etc``. ``__`` in a name stands for a dot."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"etc/{name.replace('__', '.')}")
            entry.size = len(text)
            made.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


LAYERS = (archive(greeting="wrong", gone="there"), archive(greeting="hello", __wh__gone=""))


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    """Return an empty store."""
    return ImageStore(tmp_path / "images")


@pytest.mark.oci
def test_an_image_of_a_registry_runs_without_an_engine(registry: FakeRegistry, store: ImageStore) -> None:
    """A pulled image has the files of its combined layers, and its id is the digest of its configuration."""
    from securebench.sandboxes.oci import OciDriver

    reference = registry.add_image(tiny_root(), *LAYERS, architecture=HERE.architecture)
    image = pull(store, reference, lambda _: None)
    look = 'read text < /etc/greeting; echo "$text"; test -e /etc/gone || echo gone'
    command = Command(argv=("/bin/sh", "-c", look), timeout_seconds=60)
    with closing(OciDriver(store=store)) as driver, driver.create(SandboxSpec(image=image)) as sandbox:
        result = sandbox.run(command)
    assert (result.exit_code, result.stdout, result.stderr) == (0, b"hello\ngone\n", b"")
    config = json.loads(registry.blobs["1"].data)["config"]["digest"]
    assert image.id == config


def test_a_pulled_image_is_pulled_once(registry: FakeRegistry, store: ImageStore) -> None:
    """Neither an image nor a layer that the store already has is requested from the registry again."""
    reference = registry.add_image(*LAYERS, architecture=HERE.architecture)
    first = pull(store, reference, lambda _: None)
    requests_before = len(registry.requests)
    assert ensure_image(store, reference).id == first.id
    assert len(registry.requests) == requests_before
    other = registry.add_image(LAYERS[0], archive(more="x"), architecture=HERE.architecture, tag="2")
    assert pull(store, other, lambda _: None).id != first.id
    shared = json.loads(registry.blobs["2"].data)["layers"][0]["digest"]
    assert len(registry.requests_for(shared)) == 1


def test_a_pull_that_goes_on_after_a_break_is_the_same_image(registry: FakeRegistry, store: ImageStore) -> None:
    """An image has the right files even if the connection broke in the middle of a layer."""
    reference = registry.add_image(*LAYERS, architecture=HERE.architecture)
    layer = registry.blobs[json.loads(registry.blobs["1"].data)["layers"][0]["digest"]]
    registry.faults[layer.digest] = [breaks_after(50)]
    with store.lease(pull(store, reference, lambda _: None).id) as lease:
        assert (lease.root / "etc" / "greeting").read_text() == "hello"
        assert not (lease.root / "etc" / "gone").exists()


def test_a_pull_that_fails_leaves_no_image(registry: FakeRegistry, store: ImageStore) -> None:
    """I06: if a layer does not have its digest, neither the image nor that layer is in the store afterwards."""
    reference = registry.add_image(*LAYERS, architecture=HERE.architecture)
    layer = registry.blobs[json.loads(registry.blobs["1"].data)["layers"][1]["digest"]]
    registry.blobs[layer.digest] = Blob(layer.kind, layer.data[:-1] + b"!")
    with pytest.raises(ImageError) as raised:
        pull(store, reference, lambda _: None)
    assert raised.value.code == "image-blob-mismatch"
    assert store.find(reference) is None
    assert not [path for path in store.directory.rglob("*") if path.name == layer.digest.removeprefix("sha256:")]


def test_an_image_that_nobody_has_says_what_was_tried(
    registry: FakeRegistry, store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I07: if there is no engine and the registry lacks the image, the error says so and has a hint."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(ImageError) as raised:
        ensure_image(store, f"{registry.host}/base:missing")
    assert raised.value.code == "image-unavailable"
    assert "does not have" in raised.value.message
    assert "securebench images" in raised.value.hint
