"""Hostile and unusual documents of a registry: each is read completely or refused with an ``ImageError``."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds import processor_seconds
from fake_registry import INDEX, LAYER, MANIFEST, OCI_MANIFEST, Blob, config_for, index_of, manifest_of, packed
from securebench.errors import ImageError
from securebench.images.registry.documents import Index, RegistryManifest, made_for, parse_manifest, runs_on
from securebench.images.registry.model import Platform

CONFIG = config_for("amd64")
LAYERS = [packed(b"one"), packed(b"two")]
GOOD: dict[str, Any] = json.loads(manifest_of(CONFIG, LAYERS).data)
SCHEMA_1 = {"schemaVersion": 1, "name": "base", "tag": "1", "fsLayers": [{"blobSum": "sha256:" + "0" * 64}]}


def refused(document: object, announced: str = MANIFEST) -> str:
    """Return the code of the error with which a document is refused.

    The refusal must take at most a second of processor time.
    """
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    with processor_seconds(1), pytest.raises(ImageError) as raised:
        parse_manifest(data, announced, "base:1")
    return raised.value.code


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b'{"a": ' * 100_000,
        b"[" * 1_000_000,
        b'{"schemaVersion": 2, "schemaVersion": 1}',
        b'{"layers": [' + b"[]," * 100_000 + b"[]]}",
        b'{"layers": NaN}',
        GOOD | {"layers": None},
        GOOD | {"layers": {}},
        GOOD | {"layers": [None]},
        GOOD | {"config": None},
        GOOD | {"config": []},
        GOOD | {"config": CONFIG.described(digest="sha256:../../etc")},
        GOOD | {"config": CONFIG.described(digest="sha512:" + "0" * 128)},
        GOOD | {"config": CONFIG.described(digest="sha256:" + "0" * 64 + "\n")},
        GOOD | {"config": CONFIG.described(size=-1)},
        GOOD | {"config": CONFIG.described(size=True)},
        GOOD | {"config": CONFIG.described(size="5")},
        GOOD | {"config": CONFIG.described(size=2**62)},
        GOOD | {"config": CONFIG.described(size=100_000_000)},
        GOOD | {"layers": [LAYERS[0].described(size=2**40)]},
        GOOD | {"layers": [LAYERS[0].described(size=2**35)] * 3},
        GOOD | {"layers": [LAYERS[0].described()] * 600},
        GOOD | {"mediaType": 5},
        GOOD | {"mediaType": "text/html"},
        GOOD | {"manifests": []},
    ],
)
def test_a_document_that_is_no_manifest_is_refused(document: object) -> None:
    """K01, K08: a document with deep nesting, duplicate keys, wrong types or invalid values is refused quickly."""
    assert refused(document) == "registry-answer-invalid"


@pytest.mark.parametrize(
    ("document", "announced"),
    [(SCHEMA_1, f"{MANIFEST}".replace("v2", "v1")), (SCHEMA_1, "application/json"), (SCHEMA_1, MANIFEST)],
)
def test_schema_1_is_refused(document: object, announced: str) -> None:
    """A manifest of schema 1 is refused: it has no configuration whose digest could be the image's id."""
    assert refused(document, announced) == "image-format-unsupported"


@pytest.mark.parametrize(
    "change",
    [
        {"layers": [LAYERS[0].described(mediaType="application/vnd.oci.image.layer.v1.tar+zstd")]},
        {"layers": [LAYERS[0].described(mediaType="application/vnd.docker.image.rootfs.foreign.diff.tar.gzip")]},
        {"layers": [LAYERS[0].described(mediaType="application/x-wine")]},
        {"config": CONFIG.described(mediaType="application/vnd.cncf.helm.config.v1+json")},
    ],
)
def test_what_cannot_be_unpacked_is_refused_before_it_is_downloaded(change: dict[str, object]) -> None:
    """A zstd, foreign or unknown layer is refused as unsupported, and so is an artifact that is not an image."""
    assert refused(GOOD | change) == "image-format-unsupported"


def test_one_document_is_not_two_things() -> None:
    """A document whose type differs from the declared one is refused: two programs could read different images."""
    assert refused(GOOD, INDEX) == "registry-answer-invalid"
    assert refused(GOOD | {"mediaType": OCI_MANIFEST}) == "registry-answer-invalid"
    assert refused({key: GOOD[key] for key in GOOD if key != "mediaType"}, INDEX) == "registry-answer-invalid"


@pytest.mark.parametrize("announced", ["application/json", "", f"{MANIFEST}; charset=utf-8"])
def test_a_type_is_taken_from_where_it_stands(announced: str) -> None:
    """A document's own media type is used if the registry declares a generic type, none, or one with parameters."""
    found = parse_manifest(json.dumps(GOOD).encode(), announced, "base:1")
    assert isinstance(found, RegistryManifest)
    assert [layer.media_type for layer in found.layers] == [LAYER, LAYER]


def index(*platforms: str) -> Index:
    """Return an index with a different manifest for each platform."""
    made = {platform: Blob(MANIFEST, platform.encode()) for platform in platforms}
    found = parse_manifest(index_of(made).data, INDEX, "base:1")
    assert isinstance(found, Index)
    return found


@pytest.mark.parametrize(
    ("machine", "offered", "chosen"),
    [
        ("linux/amd64", ("linux/arm64", "linux/amd64"), "linux/amd64"),
        ("linux/amd64", ("linux/amd64/v3", "linux/amd64/v1"), "linux/amd64/v1"),
        ("linux/amd64", ("linux/amd64/v3",), None),
        ("linux/amd64", ("windows/amd64",), None),
        ("linux/arm64/v8", ("linux/arm64", "linux/amd64"), "linux/arm64"),
        ("linux/arm64/v8", ("linux/arm64", "linux/arm64/v8"), "linux/arm64/v8"),
        ("linux/arm/v7", ("linux/arm/v5", "linux/arm/v6"), "linux/arm/v6"),
        ("linux/arm/v6", ("linux/arm/v7",), None),
        ("linux/riscv64", ("linux/riscv64",), "linux/riscv64"),
    ],
)
def test_the_best_variant_is_chosen(machine: str, offered: tuple[str, ...], chosen: str | None) -> None:
    """I07: the machine's own variant is preferred to compatible ones, and incompatible ones are never chosen."""
    entry = index(*offered).choose(Platform(*machine.split("/")))
    assert (entry.digest if entry else None) == (Blob("", chosen.encode()).digest if chosen else None)


def test_this_machine_is_named_as_images_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's names of architectures are translated to the names that images use."""
    for machine, name in (("x86_64", "linux/amd64"), ("aarch64", "linux/arm64/v8"), ("s390x", "linux/s390x")):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        assert str(Platform.of_this_machine()) == name


@pytest.mark.parametrize("config", [b"{}", b'{"os": 1}', b'{"os": "linux", "architecture": "\\u001b[31m"}'])
def test_a_configuration_that_names_no_platform_runs_nowhere(config: bytes) -> None:
    """I07: an image whose configuration lacks a valid platform does not run on any machine."""
    assert not runs_on(made_for(config, "base:1"), Platform("linux", "amd64"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*GOOD, "manifests"]), inner),
    max_leaves=20,
)


@given(JSON)
def test_any_json_is_a_manifest_or_an_error_of_ours(document: object) -> None:
    """Any JSON is either parsed or refused with an ``ImageError``, and raises no other exception."""
    with suppress(ImageError):
        parse_manifest(json.dumps(document).encode(), MANIFEST, "base:1")
