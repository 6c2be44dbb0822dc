"""Download an image from a registry: its manifest, its configuration, and its layers (several layers at once)."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from typing import TYPE_CHECKING, Final

from securebench.errors import ImageError
from securebench.http.timeouts import Deadline, Timeouts
from securebench.images.layout import INDEX_TYPES, MANIFEST_TYPES
from securebench.images.reference import parse_reference
from securebench.images.registry.client import RegistryClient, blob_mismatch
from securebench.images.registry.credentials import find_credentials
from securebench.images.registry.documents import (
    MAX_CONFIG_BYTES,
    MAX_MANIFEST_BYTES,
    Index,
    digest_of,
    made_for,
    parse_manifest,
    runs_on,
)
from securebench.images.registry.model import Fetched, Platform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from securebench.images.layout import Descriptor
    from securebench.images.registry.documents import RegistryManifest
    from securebench.images.registry.model import BlobSink

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
    """Download the image that ``reference`` currently names, for ``platform`` or this machine.

    Layers that ``sink`` lacks are written to it. Everything with a known digest is checked against that digest.
    ``on_progress`` receives lines from several threads, one at a time.

    Raises :class:`ConfigError` (``image-reference-invalid``), :class:`ImageError` (``image-unavailable``,
    ``image-platform-missing``, ``image-format-unsupported``, ``image-blob-mismatch``, ``registry-unreachable``,
    ``registry-denied``, ``registry-answer-invalid``), and what ``sink`` raises.
    """
    where = parse_reference(reference)
    progress = _Progress(on_progress)
    client = RegistryClient(where, find_credentials(where.registry), Deadline(timeouts), progress.report)
    progress.report(f"looking for {where}")
    pull = _Pull(client, str(where), platform or Platform.of_this_machine(), progress)
    data, digest, manifest = pull.manifest(where.version, where.digest)
    config = pull.config(manifest.config)
    pull.layers(manifest.layers, sink)
    return Fetched(reference, data, digest, manifest.media_type, config, manifest.config.digest, manifest.layers)


class _Pull:
    def __init__(self, client: RegistryClient, what: str, platform: Platform, progress: _Progress) -> None:
        self._client = client
        self._what = what
        self._platform = platform
        self._progress = progress

    def manifest(self, version: str, digest: str) -> tuple[bytes, str, RegistryManifest]:
        """Return the manifest for the platform: its bytes, its digest and the parsed manifest."""
        data, media_type = self._client.document("manifests", version, _ACCEPT, MAX_MANIFEST_BYTES)
        _expect(digest, data, f"the manifest of {self._what}")
        found = parse_manifest(data, media_type, self._what)
        if isinstance(found, Index):
            entry = found.choose(self._platform)
            if entry is None:
                raise self._wrong_platform(found.offered())
            data, media_type = self._client.document("manifests", entry.digest, _ACCEPT, MAX_MANIFEST_BYTES)
            _expect(entry.digest, data, f"the manifest of {self._what} for {self._platform}")
            found = parse_manifest(data, media_type, self._what)
        if isinstance(found, Index):
            raise ImageError(f"{self._what} is an index of indexes", code="image-format-unsupported")
        return data, digest_of(data), found

    def config(self, descriptor: Descriptor) -> bytes:
        """Return the image's configuration. Check that it is for the platform, whatever an index says."""
        data, _ = self._client.document("blobs", descriptor.digest, "*/*", MAX_CONFIG_BYTES)
        _expect(descriptor.digest, data, f"the configuration of {self._what}")
        made = made_for(data, self._what)
        if not runs_on(made, self._platform):
            raise self._wrong_platform(f"only for {str(made) or 'an unknown platform'}")
        return data

    def layers(self, layers: Sequence[Descriptor], sink: BlobSink) -> None:
        """Download the layers that ``sink`` lacks. The first failure stops all downloads."""
        wanted = {layer.digest: layer for layer in layers}
        missing = [layer for layer in wanted.values() if not sink.has(layer.digest)]
        self._progress.total = size = sum(layer.size for layer in missing)
        present = len(wanted) - len(missing)
        self._progress.report(f"layers: {len(wanted)}, already present: {present}, to download: {size / 1e6:.1f} MB")
        with ThreadPoolExecutor(LAYERS_AT_ONCE, thread_name_prefix="pull") as pool:
            try:
                futures = [pool.submit(self._layer, layer, sink) for layer in missing]
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self._client.deadline.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _layer(self, layer: Descriptor, sink: BlobSink) -> None:
        with closing(self._client.blob(layer)) as pieces:  # close it even if a traceback keeps it alive
            sink.write(layer.digest, layer.size, self._progress.counted(pieces))

    def _wrong_platform(self, offered: str) -> ImageError:
        return ImageError(
            f"{self._what} is not available for {self._platform}, {offered}",
            code="image-platform-missing",
            hint="use a tag or digest of an image for this platform; images do not run under emulation",
        )


class _Progress:
    """Passes messages about a download to ``on_progress``, one at a time, even if several threads report them."""

    def __init__(self, on_progress: Callable[[str], None]) -> None:
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._reported = time.monotonic()
        self._received = 0
        self.total = 0

    def report(self, line: str) -> None:
        with self._lock:
            self._reported = time.monotonic()
            self._on_progress(line)

    def counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield ``pieces``, and report the size of all downloads so far if the last message is a few seconds old."""
        for piece in pieces:
            yield piece
            with self._lock:
                self._received += len(piece)
                is_due = time.monotonic() - self._reported >= PROGRESS_SECONDS
            if is_due:
                self.report(f"{self._received / 1e6:.1f} of {self.total / 1e6:.1f} MB")


def _expect(digest: str, data: bytes, what: str) -> None:
    if digest and digest_of(data) != digest:
        raise blob_mismatch(f"{what} has the digest {digest_of(data)}, not {digest}")
