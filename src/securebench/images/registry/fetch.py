"""An image from a registry: its manifest, its configuration, and its layers, several at a time."""

from __future__ import annotations

import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from securebench.errors import ImageError
from securebench.images.reference import parse_reference
from securebench.images.registry.client import Access, RegistryClient, RetryLaterError
from securebench.images.registry.credentials import find_credentials
from securebench.images.registry.documents import (
    INDEX_TYPES,
    MANIFEST_TYPES,
    MAX_CONFIG_BYTES,
    MAX_MANIFEST_BYTES,
    Index,
    digest_of,
    made_for,
    parse_manifest,
    runs_on,
)
from securebench.images.registry.model import Fetched, Platform
from securebench.images.registry.patience import Deadline, Timeouts
from securebench.images.registry.wire import BROKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from securebench.images.registry.documents import RegistryManifest
    from securebench.images.registry.model import BlobDescriptor, BlobSink

LAYERS_AT_ONCE: Final = 3
PROGRESS_SECONDS: Final = 2.0
_ACCEPT: Final = ", ".join((*INDEX_TYPES, *MANIFEST_TYPES))


def fetch_image(
    reference: str,
    sink: BlobSink,
    on_progress: Callable[[str], None],
    platform: Platform | None = None,
    timeouts: Timeouts | None = None,
) -> Fetched:
    """Download the image that ``reference`` means to its registry now, for ``platform`` or this machine.

    Layers that ``sink`` lacks go there; everything is checked against its digest. ``on_progress`` is given lines, from
    several threads, one at a time. Raises :class:`ConfigError` (``image-reference-invalid``), :class:`ImageError`
    (``image-unavailable``, ``image-platform-missing``, ``image-format-unsupported``, ``image-blob-mismatch``,
    ``registry-unreachable``, ``registry-denied``, ``registry-answer-invalid``), and what ``sink`` raises.
    """
    where = parse_reference(reference)
    deadline = Deadline(timeouts or Timeouts())
    report = _one_at_a_time(on_progress)
    client = RegistryClient(Access(where, find_credentials(where.registry), deadline, report))
    report(f"looking for {where}")
    pull = _Pull(client, str(where), platform or Platform.of_this_machine(), report)
    data, digest, manifest = pull.manifest(where.version, where.digest)
    config = pull.config(manifest.config)
    pull.layers(manifest.layers, sink)
    return Fetched(reference, data, digest, manifest.media_type, config, manifest.config.digest, manifest.layers)


class _Pull:
    def __init__(self, client: RegistryClient, what: str, platform: Platform, report: Callable[[str], None]) -> None:
        self._client = client
        self._what = what
        self._platform = platform
        self._report = report

    def manifest(self, version: str, digest: str) -> tuple[bytes, str, RegistryManifest]:
        """Return the manifest for the platform: its bytes, its digest and what it says."""
        data, media_type = self._client.fetch("manifests", version, _ACCEPT, MAX_MANIFEST_BYTES)
        _expect(digest, data, f"the manifest of {self._what}")
        found = parse_manifest(data, media_type, self._what)
        if isinstance(found, Index):
            entry = found.choose(self._platform)
            if entry is None:
                raise self._wrong_platform(found.offered())
            data, media_type = self._client.fetch("manifests", entry.digest, _ACCEPT, MAX_MANIFEST_BYTES)
            _expect(entry.digest, data, f"the manifest of {self._what} for {self._platform}")
            found = parse_manifest(data, media_type, self._what)
        if isinstance(found, Index):
            raise ImageError(f"{self._what} is an index of indexes", code="image-format-unsupported")
        return data, digest_of(data), found

    def config(self, descriptor: BlobDescriptor) -> bytes:
        """Return the image's configuration, which must be for the platform, whatever an index said."""
        data, _ = self._client.fetch("blobs", descriptor.digest, "*/*", MAX_CONFIG_BYTES)
        _expect(descriptor.digest, data, f"the configuration of {self._what}")
        made = made_for(data, self._what)
        if not runs_on(made, self._platform):
            raise self._wrong_platform(str(made))
        return data

    def layers(self, layers: Sequence[BlobDescriptor], sink: BlobSink) -> None:
        """Give ``sink`` what it lacks. The first failure ends all of it."""
        wanted = {layer.digest: layer for layer in layers}
        missing = [layer for layer in wanted.values() if not sink.has(layer.digest)]
        megabytes = sum(layer.size for layer in missing) / 1e6
        there = len(wanted) - len(missing)
        self._report(f"layers: {len(wanted)}, here already: {there}, to download: {megabytes:.1f} MB")
        told = _Progress(megabytes, self._report)
        with ThreadPoolExecutor(LAYERS_AT_ONCE, thread_name_prefix="pull") as pool:
            try:
                futures = [pool.submit(self._layer, layer, sink, told) for layer in missing]
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self._client.deadline.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _layer(self, layer: BlobDescriptor, sink: BlobSink, told: _Progress) -> None:
        with closing(blob_pieces(self._client, layer)) as pieces:  # also its connection, whoever keeps the error
            sink.write(layer.digest, layer.size, told.counted(checked(layer, pieces)))

    def _wrong_platform(self, offered: str) -> ImageError:
        return ImageError(
            f"{self._what} is not made for {self._platform}; it is for {offered}",
            code="image-platform-missing",
            hint="use a tag or digest of an image for this machine: none runs under emulation",
        )


def checked(layer: BlobDescriptor, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield ``pieces``, and raise :class:`ImageError` (``image-blob-mismatch``) unless they are that blob at their end.

    More than was announced is never passed on.
    """
    digest, size = hashlib.sha256(), 0
    for piece in pieces:
        size += len(piece)
        if size > layer.size:
            raise _mismatch(layer.digest, f"has more than the {layer.size} bytes that were announced")
        digest.update(piece)
        yield piece
    if size != layer.size:
        raise _mismatch(layer.digest, f"has {size} bytes and not the {layer.size} that were announced")
    if f"sha256:{digest.hexdigest()}" != layer.digest:
        raise _mismatch(layer.digest, f"is something else: sha256:{digest.hexdigest()}")


def blob_pieces(client: RegistryClient, layer: BlobDescriptor) -> Generator[bytes]:
    """Yield the bytes of a blob as they come; a connection that breaks is made again for what is left.

    Raises :class:`ImageError`.
    """
    received = tries = 0
    while True:
        before = received
        try:
            with closing(_pieces_from(client, layer, received)) as pieces:
                for piece in pieces:
                    received += len(piece)
                    yield piece
            if received >= layer.size:
                return
            trouble: Exception = ConnectionError(f"the connection ended after {received} of {layer.size} bytes")
        except (RetryLaterError, *BROKEN) as error:
            trouble = error
        tries = 1 if received > before else tries + 1
        client.recover(trouble, tries)


def _pieces_from(client: RegistryClient, layer: BlobDescriptor, start: int) -> Generator[bytes]:
    """Yield the blob from ``start`` on, also from a server that knows no ranges."""
    headers = {"Range": f"bytes={start}-"} if start else {}
    with client.open("blobs", layer.digest, headers) as answer:
        skip = start
        if answer.status == HTTPStatus.PARTIAL_CONTENT:
            if not answer.header("Content-Range").startswith(f"bytes {start}-"):
                raise _mismatch(layer.digest, "was answered with another part than was asked for")
            skip = 0
        for piece in answer.pieces():
            yield piece[skip:]
            skip = max(0, skip - len(piece))


class _Progress:
    """Tells now and then how much has come."""

    def __init__(self, megabytes: float, report: Callable[[str], None]) -> None:
        self._all = megabytes
        self._report = report
        self._lock = threading.Lock()
        self._received = 0
        self._told = time.monotonic()

    def counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            yield piece
            self._add(len(piece))

    def _add(self, size: int) -> None:
        with self._lock:
            self._received += size
            if time.monotonic() - self._told < PROGRESS_SECONDS:
                return
            self._told = time.monotonic()
            received = self._received / 1e6
        self._report(f"{received:.1f} of {self._all:.1f} MB")


def _one_at_a_time(on_progress: Callable[[str], None]) -> Callable[[str], None]:
    lock = threading.Lock()

    def report(line: str) -> None:
        with lock:
            on_progress(line)

    return report


def _expect(digest: str, data: bytes, what: str) -> None:
    if digest and digest_of(data) != digest:
        raise _mismatch(what, f"is not {digest}: it is {digest_of(data)}")


def _mismatch(what: str, how: str) -> ImageError:
    return ImageError(
        f"{what} {how}",
        code="image-blob-mismatch",
        hint="nothing of it was kept; try again, and distrust what is between here and the registry",
    )
