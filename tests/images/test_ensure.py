"""A missing image gets into the store from an engine or a registry, or an error says how to get it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fake_registry import fake_registry, packed
from image_archives import digest, file, layer
from securebench.engine import client as engine_module
from securebench.errors import ConfigError, EngineError, ImageError
from securebench.images.ensure import ensure_image, pull
from securebench.images.registry.model import Platform
from securebench.images.store.archive import RootConfig, add_root
from securebench.images.store.image_store import ImageStore
from securebench.images.store.index import ImageSource, Origin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fake_registry import FakeRegistry

ROOT = layer(file("etc/os", b"one\n"))


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every connection to an engine fail."""

    def connect() -> None:
        raise EngineError("no engine")

    monkeypatch.setattr(engine_module, "connect", connect)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """Yield a registry on this machine."""
    with fake_registry() as found:
        yield found


def silent(_line: str) -> None:
    """Ignore a progress line."""


def test_what_the_store_has_is_provided_without_asking_anyone(own_store: ImageStore) -> None:
    """An image in the store is returned by name and by id, and nothing is copied or pulled."""
    with own_store.incoming(Origin(ImageSource.RECIPE)) as incoming:
        image_id = add_root(incoming, [ROOT], RootConfig(), "")
        incoming.name(image_id, "tool:1")
    lines: list[str] = []
    assert ensure_image(own_store, "tool:1", lines.append).id == image_id
    assert ensure_image(own_store, image_id, lines.append).id == image_id
    assert lines == []


def test_what_an_engine_gave_is_provided_without_that_engine(own_store: ImageStore) -> None:
    """An image that was copied from an engine is returned from the store if no engine is available."""
    with own_store.incoming(Origin(ImageSource.ENGINE, "sha256:" + "a" * 64)) as incoming:
        image_id = add_root(incoming, [ROOT], RootConfig(), "")
        incoming.name(image_id, "tool:1")
    assert ensure_image(own_store, "tool:1").id == image_id


def test_what_only_a_registry_has_is_pulled_once(own_store: ImageStore, registry: FakeRegistry) -> None:
    """An image is pulled, unpacked and stored with a registry as its origin. After that, no registry is asked."""
    reference = registry.add_image(ROOT, architecture=Platform.of_this_machine().architecture)
    lines: list[str] = []
    image = ensure_image(own_store, reference, lines.append)
    assert lines[-1] == "unpacking"
    with own_store.lease(image.id) as lease:
        assert (lease.root / "etc/os").read_text() == "one\n"
    assert own_store.origin(reference) == Origin(ImageSource.REGISTRY)
    requests_before = len(registry.requests)
    assert ensure_image(own_store, reference) == image
    assert len(registry.requests) == requests_before


def test_a_pull_follows_the_registry(own_store: ImageStore, registry: FakeRegistry) -> None:
    """I06: A pull gets the image that the tag means now. The image that was pulled before is still found by its id."""
    architecture = Platform.of_this_machine().architecture
    reference = registry.add_image(ROOT, architecture=architecture)
    first = pull(own_store, reference, silent)
    registry.add_image(ROOT, layer(file("more")), architecture=architecture)
    second = pull(own_store, reference, silent)
    assert first.id != second.id
    assert ensure_image(own_store, reference).id == second.id
    assert ensure_image(own_store, first.id).id == first.id
    assert len(registry.requests_for(packed(ROOT).digest)) == 1, "the layer that both have"


def test_a_hostile_image_of_a_registry_gets_no_name(own_store: ImageStore, registry: FakeRegistry) -> None:
    """H13: An image whose layer has a path with ``..`` is refused, and the store gets no entry for it."""
    architecture = Platform.of_this_machine().architecture
    reference = registry.add_image(layer(file("../../escaped")), architecture=architecture)
    with pytest.raises(ImageError, match=r"'\.\.'"):
        ensure_image(own_store, reference)
    assert own_store.entries() == ()


@pytest.mark.parametrize(
    ("reference", "hint"),
    [
        ("securebench/python:9", "securebench images build python:9"),
        ("securebench/my-pack/task:1", "the recipes of its pack, my-pack: 'securebench images build PACK/images'"),
        ("127.0.0.1:1/nobody/tool:1", "securebench images import FILE"),
        (digest(b"never"), "securebench images import FILE"),
    ],
)
def test_what_cannot_be_had_is_explained(own_store: ImageStore, reference: str, hint: str) -> None:
    """I07: The error for an unavailable image says how to get it."""
    with pytest.raises(ImageError) as caught:
        ensure_image(own_store, reference)
    assert caught.value.code == "image-unavailable"
    assert hint in caught.value.hint


@pytest.mark.parametrize("reference", ["securebench/python:3.11", digest(b"id")])
def test_what_no_registry_has_is_not_pulled(own_store: ImageStore, reference: str) -> None:
    """I06: An image id, or a name with SecureBench's own prefix, is never pulled."""
    with pytest.raises(ImageError) as caught:
        pull(own_store, reference, silent)
    assert caught.value.code == "image-unavailable"


def test_nothing_else_is_a_reference(own_store: ImageStore) -> None:
    """K15: Text that is not an image reference is refused."""
    with pytest.raises(ConfigError) as caught:
        ensure_image(own_store, "$(id)")
    assert caught.value.code == "image-reference-invalid"
    with pytest.raises(ConfigError) as caught:
        pull(own_store, "$(id)", silent)
    assert caught.value.code == "image-reference-invalid"


@pytest.mark.parametrize("reference", ["securebench/pack/nothing:1", f"sha256:{'0' * 64}"])
def test_a_missing_image_is_said_once(tmp_path: Path, reference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no registry can have an image, the message says only once that it is not on this machine."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    with pytest.raises(ImageError) as caught:
        ensure_image(ImageStore(tmp_path / "images"), reference)
    assert caught.value.message == f"the image {reference} is not on this machine"
