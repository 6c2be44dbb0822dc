"""An image is downloaded completely and checked, or not at all, and in limited time."""

from __future__ import annotations

import json
import signal
import threading
import time

import pytest

from fake_registry import (
    CONFIG,
    INDEX,
    MANIFEST,
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    Blob,
    FakeRegistry,
    config_for,
    index_of,
    manifest_of,
    packed,
)
from fake_server import breaks_after, says, stalls
from pulling import AMD64, QUICK, MemorySink, pull
from securebench.errors import ConfigError, ImageError
from securebench.http.timeouts import Timeouts
from securebench.images.layout import Descriptor
from securebench.images.registry import Platform, fetch_image

ROOTS = (b"first" * 1000, b"second" * 1000)
FIRST, SECOND = map(packed, ROOTS)
NOISE = Blob(OCI_LAYER, bytes(position * 7 % 251 for position in range(300_000)))


def refused(reference: str, timeouts: Timeouts = QUICK, sink: MemorySink | None = None) -> ImageError:
    """Return the error with which a download fails. It must fail within 15 seconds."""
    started = time.monotonic()
    with pytest.raises(ImageError) as raised:
        pull(reference, sink, timeouts)
    assert time.monotonic() - started < 15
    return raised.value


def with_layer(registry: FakeRegistry, layer: Blob) -> str:
    """Publish an image with one layer, and return the reference to it."""
    config = config_for("amd64")
    registry.add(config, layer)
    return registry.publish(manifest_of(config, [layer]))


def test_an_image_comes_whole(registry: FakeRegistry) -> None:
    """The sink gets all layers. The returned manifest and configuration are the exact bytes of the registry."""
    sink = MemorySink()
    reference = registry.add_image(*ROOTS)
    fetched = pull(reference, sink)
    manifest = registry.blobs["1"]
    assert sink.blobs == {FIRST.digest: FIRST.data, SECOND.digest: SECOND.data}
    assert (fetched.manifest, fetched.manifest_digest, fetched.media_type) == (
        manifest.data,
        manifest.digest,
        MANIFEST,
    )
    assert fetched.config_digest == json.loads(manifest.data)["config"]["digest"]
    assert Blob(CONFIG, fetched.config).digest == fetched.config_digest
    assert [layer.digest for layer in fetched.layers] == [FIRST.digest, SECOND.digest]
    assert fetched.layers[0] == Descriptor(FIRST.kind, FIRST.digest, len(FIRST.data))
    assert fetched.reference == reference


def test_an_image_of_the_open_format_comes_whole(registry: FakeRegistry) -> None:
    """An image with OCI's media types is accepted like one with Docker's."""
    layer = Blob(OCI_LAYER, FIRST.data)
    config = Blob(OCI_CONFIG, config_for("amd64").data)
    registry.add(config, layer)
    manifest = manifest_of(config, [layer], OCI_MANIFEST)
    registry.add(manifest)
    fetched = pull(registry.publish(index_of({"linux/amd64": manifest}, OCI_INDEX)))
    assert fetched.media_type == OCI_MANIFEST


def test_what_is_there_is_not_downloaded_again(registry: FakeRegistry) -> None:
    """A layer that the sink has is not requested, and a layer that occurs twice in an image is requested once."""
    sink = MemorySink()
    sink.blobs[FIRST.digest] = FIRST.data
    fetched = pull(registry.add_image(ROOTS[0], ROOTS[1], ROOTS[1]), sink)
    assert not registry.requests_for(FIRST.digest)
    assert len(registry.requests_for(SECOND.digest)) == 1
    assert len(fetched.layers) == 3


def test_layers_come_side_by_side(registry: FakeRegistry) -> None:
    """Layers are downloaded concurrently: two downloads that wait for each other both finish."""
    together = threading.Barrier(2, timeout=5)

    class Meeting(MemorySink):
        def write(self, digest: str, size: int, pieces: object) -> None:
            together.wait()
            super().write(digest, size, pieces)  # type: ignore[arg-type]  # an Iterable[bytes]

    sink = Meeting()
    pull(registry.add_image(*ROOTS), sink)
    assert len(sink.blobs) == 2


def test_progress_is_told(registry: FakeRegistry) -> None:
    """Progress lines name the requested image and the amount of data to download."""
    lines: list[str] = []
    pull(registry.add_image(*ROOTS), lines=lines)
    assert f"{registry.host}/base:1" in lines[0]
    assert lines[1].startswith("layers: 2, already present: 0, to download: ")


def test_a_digest_is_held_to(registry: FakeRegistry) -> None:
    """I06: an image that is requested by digest is refused if its manifest does not have that digest."""
    registry.add_image(*ROOTS)
    digest = registry.blobs["1"].digest
    by_digest = f"{registry.host}/base@{digest}"
    assert pull(by_digest).manifest_digest == digest
    registry.blobs[digest] = Blob(MANIFEST, registry.blobs["1"].data + b" ")
    assert refused(by_digest).code == "image-blob-mismatch"


def test_a_blob_that_is_something_else_is_refused(registry: FakeRegistry) -> None:
    """A layer with wrong bytes of the right length is refused and not stored."""
    sink = MemorySink()
    reference = with_layer(registry, NOISE)
    registry.blobs[NOISE.digest] = Blob(OCI_LAYER, NOISE.data[:-1] + b"!")
    error = refused(reference, sink=sink)
    assert error.code == "image-blob-mismatch"
    assert not sink.blobs


def test_a_configuration_that_is_something_else_is_refused(registry: FakeRegistry) -> None:
    """A configuration is refused if it does not have the digest in the manifest, which is the image's id."""
    reference = registry.add_image(*ROOTS)
    digest = json.loads(registry.blobs["1"].data)["config"]["digest"]
    registry.blobs[digest] = Blob(CONFIG, registry.blobs[digest].data + b" ")
    assert refused(reference).code == "image-blob-mismatch"


def test_a_blob_that_never_ends_is_cut(registry: FakeRegistry) -> None:
    """I11: a layer with more bytes than the manifest declares is refused and not stored."""
    sink = MemorySink()
    reference = with_layer(registry, NOISE)
    registry.blobs[NOISE.digest] = Blob(OCI_LAYER, NOISE.data * 20)
    assert "more than the 300000 bytes" in refused(reference, sink=sink).message
    assert not sink.blobs


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_connection_is_taken_up_where_it_broke(registry: FakeRegistry, ranges: bool) -> None:
    """A download continues after each broken connection, even if the server does not support ranges."""
    sink = MemorySink()
    reference = with_layer(registry, NOISE)
    registry.ranges = ranges
    if ranges:
        registry.faults[NOISE.digest] = [breaks_after(100_000), breaks_after(100_000)]
    else:
        registry.faults[NOISE.digest] = [breaks_after(100_000)]
    lines: list[str] = []
    pull(reference, sink, lines=lines)
    assert sink.blobs == {NOISE.digest: NOISE.data}
    starts = [request.headers.get("range", "") for request in registry.requests_for(NOISE.digest)]
    assert starts == (["", "bytes=100000-", "bytes=200000-"] if ranges else ["", "bytes=100000-"])
    assert any("retrying in" in line for line in lines)


def test_a_blob_that_stays_short_is_given_up(registry: FakeRegistry) -> None:
    """If the server always sends less of a layer than its declared size, the download fails after some attempts."""
    reference = with_layer(registry, NOISE)
    registry.blobs[NOISE.digest] = Blob(OCI_LAYER, NOISE.data[:1000])
    registry.ranges = False
    error = refused(reference)
    assert error.code == "registry-unreachable"
    assert "1000 of 300000 bytes" in error.message


def test_a_stalled_download_ends(registry: FakeRegistry) -> None:
    """A server that sends nothing counts as a broken connection: the download fails after three attempts."""
    reference = with_layer(registry, NOISE)
    registry.faults[NOISE.digest] = [stalls] * 3
    error = refused(reference)
    assert error.code == "registry-unreachable"
    assert len(registry.requests_for(NOISE.digest)) == 3


def test_a_busy_registry_is_asked_again(registry: FakeRegistry) -> None:
    """J19: a request is repeated after a 429 or 503, and not before the time in ``Retry-After``."""
    reference = registry.add_image(*ROOTS)
    registry.faults["/manifests/1"] = [says(429, Retry_After="1"), says(503)]
    started = time.monotonic()
    pull(reference)
    assert time.monotonic() - started >= 1
    assert len(registry.requests_for("/manifests/1")) == 3


def test_a_registry_that_is_not_there_is_said_at_once(registry: FakeRegistry) -> None:
    """I07: a registry that was never reached is reported without any retry, with a hint about proxies."""
    error = refused("127.0.0.1:1/base:1", Timeouts(pause=30))
    assert error.code == "registry-unreachable"
    assert "HTTPS_PROXY" in error.hint


def test_an_image_that_is_not_there_is_explained(registry: FakeRegistry) -> None:
    """I07: the error for a 404 names the reference, and its hint says what to check."""
    error = refused(f"{registry.host}/base:missing")
    assert error.code == "image-unavailable"
    assert f"{registry.host}/base:missing" in error.message
    assert "the tag" in error.hint


def test_an_answer_that_makes_no_sense_is_told(registry: FakeRegistry) -> None:
    """An unexpected status is an error that names the status."""
    registry.faults["/manifests/1"] = [says(418)]
    error = refused(f"{registry.host}/base:1")
    assert error.code == "registry-answer-invalid"
    assert "418" in error.message


def test_the_right_platform_is_chosen(registry: FakeRegistry) -> None:
    """I07: the manifest for the requested platform is chosen from an index of several."""
    made = {}
    for architecture in ("arm64", "amd64"):
        config = config_for(architecture)
        manifest = manifest_of(config, [])
        registry.add(config, manifest)
        made[f"linux/{architecture}"] = manifest
    fetched = pull(registry.publish(index_of(made)))
    assert fetched.manifest_digest == made["linux/amd64"].digest
    assert json.loads(fetched.config)["architecture"] == "amd64"


def test_a_missing_platform_says_what_is_offered(registry: FakeRegistry) -> None:
    """I07: if the platform is missing, the error names those available, but no attestation (``unknown/unknown``)."""
    manifest = manifest_of(config_for("arm64"), [])
    made = {"linux/arm64/v8": manifest, "windows/amd64": manifest, "unknown/unknown": manifest}
    error = refused(registry.publish(index_of(made)))
    assert error.code == "image-platform-missing"
    assert "for linux/amd64, only for linux/arm64/v8, windows/amd64" in error.message


@pytest.mark.parametrize("platforms", [(), ("unknown/unknown",)])
def test_an_index_without_images_is_said(registry: FakeRegistry, platforms: tuple[str, ...]) -> None:
    """For an index that is empty or has only attestations, the error says that it lists no images."""
    manifest = manifest_of(config_for("arm64"), [])
    error = refused(registry.publish(index_of(dict.fromkeys(platforms, manifest))))
    assert error.code == "image-platform-missing"
    assert error.message.endswith("is not available for linux/amd64, because its index lists no images")


def test_an_image_for_another_machine_is_refused_without_an_index(registry: FakeRegistry) -> None:
    """I07: an image whose configuration names another platform is refused, even without an index."""
    error = refused(registry.add_image(*ROOTS, architecture="s390x"))
    assert error.code == "image-platform-missing"
    assert "linux/s390x" in error.message


def test_an_index_of_indexes_is_refused(registry: FakeRegistry) -> None:
    """An index that refers to another index is refused."""
    inner = index_of({"linux/amd64": manifest_of(config_for("amd64"), [])})
    registry.add(inner)
    assert refused(registry.publish(index_of({"linux/amd64": inner}))).code == "image-format-unsupported"


def test_a_manifest_that_is_too_large_is_cut(registry: FakeRegistry) -> None:
    """K08: a manifest that is larger than the limit is refused."""
    registry.blobs["1"] = Blob(MANIFEST, b" " * (5 * 1024 * 1024))
    error = refused(f"{registry.host}/base:1")
    assert error.code == "registry-answer-invalid"
    assert "more than" in error.message


def test_the_first_failure_ends_the_other_layers(registry: FakeRegistry) -> None:
    """The error of a wrong layer is raised, and the download of another, stalled layer is stopped at once."""
    config = config_for("amd64")
    registry.add(config, FIRST, NOISE)
    reference = registry.publish(manifest_of(config, [FIRST, NOISE]))
    registry.faults[FIRST.digest] = [stalls]
    registry.blobs[NOISE.digest] = Blob(OCI_LAYER, b"!" * len(NOISE.data))
    started = time.monotonic()
    error = refused(reference, Timeouts(read=30, pause=0.01))
    assert error.code == "image-blob-mismatch"
    assert NOISE.digest in error.message
    assert time.monotonic() - started < 15


def test_an_interrupt_ends_a_download_at_once(registry: FakeRegistry) -> None:
    """Ctrl-C ends a download at once, even if the connection is silent, and leaves no download thread."""
    reference = with_layer(registry, NOISE)
    registry.faults[NOISE.digest] = [stalls]
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    timer.start()
    started = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            pull(reference, timeouts=Timeouts(read=30))
    finally:
        timer.join()
        signal.signal(signal.SIGINT, handler)
    assert time.monotonic() - started < 15
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pull")]


def test_trouble_of_the_sink_is_its_own(registry: FakeRegistry) -> None:
    """An error of the sink, such as a full disk, is raised unchanged, and the layer is not written again."""

    class Full(MemorySink):
        def write(self, digest: str, size: int, pieces: object) -> None:
            self.begun.append(digest)
            raise OSError(28, "No space left on device")

    sink = Full()
    with pytest.raises(OSError, match="No space"):
        pull(with_layer(registry, NOISE), sink)
    assert sink.begun == [NOISE.digest]


def test_what_is_no_reference_is_asked_of_nobody(registry: FakeRegistry) -> None:
    """K15: an invalid reference is refused before any request is sent."""
    with pytest.raises(ConfigError):
        fetch_image(f"{registry.host}/base:1/../../x", MemorySink(), lambda _: None, AMD64)
    assert not registry.requests


def test_this_machine_is_the_default(registry: FakeRegistry) -> None:
    """Without a platform argument, the image for this machine is fetched."""
    here = Platform.of_this_machine()
    config = config_for(here.architecture)
    manifest = manifest_of(config, [])
    registry.add(config, manifest)
    reference = registry.publish(index_of({str(here): manifest}, INDEX))
    assert fetch_image(reference, MemorySink(), lambda _: None).manifest_digest == manifest.digest
