"""One repository of a registry: its documents and blobs, with errors that name the image."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from securebench.errors import ImageError
from securebench.http import (
    Deadline,
    DeadlineError,
    Download,
    HttpClient,
    HttpError,
    MismatchError,
    StatusError,
    Timeouts,
    UnreachableError,
    parse_address,
)
from securebench.images.reference import DEFAULT_REGISTRY
from securebench.images.registry.login import RegistryHttp

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from securebench.http import Address
    from securebench.images.reference import RegistryReference
    from securebench.images.registry.credentials import Credentials
    from securebench.images.registry.model import BlobDescriptor

_DEFAULT_HOST: Final = "registry-1.docker.io"
"""The API of the default registry; its name is that of a web site."""
_DENIED: Final = frozenset({401, 403})
_MISSING: Final = frozenset({404, 410})


def registry_address(registry: str) -> Address:
    """Return the address of a registry's API: over TLS, unless it is on this machine. Raises :class:`AddressError`."""
    host = _DEFAULT_HOST if registry == DEFAULT_REGISTRY else registry
    address = parse_address(f"https://{host}/v2/")
    return parse_address(f"http://{host}/v2/") if address.is_loopback else address


class RegistryClient:
    """Downloads from one repository, until ``deadline``. Shared by threads. ``report`` receives lines for the user.

    Methods raise :class:`ImageError`: ``image-unavailable``, ``image-blob-mismatch``, ``registry-unreachable``,
    ``registry-denied``, ``registry-answer-invalid``.
    """

    def __init__(
        self,
        reference: RegistryReference,
        credentials: Credentials | None,
        deadline: Deadline,
        report: Callable[[str], None],
    ) -> None:
        self._reference = reference
        try:
            self._address = registry_address(reference.registry)
        except HttpError as error:
            raise _registry_error(reference.registry, error) from error
        self._http = RegistryHttp(self._address, reference, credentials, deadline, report)
        self.deadline = deadline

    def document(self, kind: str, version: str, accept: str, limit: int) -> tuple[bytes, str]:
        """Return a document of at most ``limit`` bytes, and its ``Content-Type``.

        ``kind`` is ``manifests`` or ``blobs``; ``version`` is a tag or a digest.
        """
        with self._explained():
            return self._http.read(self._path(kind, version), limit, {"Accept": accept})

    def blob(self, blob: BlobDescriptor) -> Generator[bytes]:
        """Yield a blob in pieces. An error after the last piece means that they are not that blob."""
        with self._explained(blob.digest):
            yield from Download(
                self._http, self._path("blobs", blob.digest), blob.size, expected_size=blob.size, digest=blob.digest
            )

    def _path(self, kind: str, version: str) -> Address:
        return self._address.at(f"/v2/{self._reference.repository}/{kind}/{version}")

    @contextmanager
    def _explained(self, blob: str = "") -> Iterator[None]:
        try:
            yield
        except HttpError as error:
            raise self._error(error, blob) from error

    def _error(self, error: HttpError, blob: str) -> ImageError:
        if isinstance(error, MismatchError):
            return blob_mismatch(f"cannot download {blob}: {error}")
        if isinstance(error, StatusError) and error.status in _DENIED:
            return self._http.denied()
        if isinstance(error, StatusError) and error.status in _MISSING:
            return ImageError(
                f"{self._address} does not have {self._reference}",
                hint="check the name and the tag; 'securebench/' images are built: 'securebench images build'",
            )
        return _registry_error(str(self._address), error)


def ask(registry: str, timeouts: Timeouts) -> None:
    """Check that a registry responds. Raises :class:`ImageError` (``registry-unreachable``)."""
    try:
        HttpClient(Deadline(timeouts)).get(registry_address(registry)).close()
    except HttpError as error:
        raise _registry_error(registry, error) from error


def blob_mismatch(message: str) -> ImageError:
    """Return the error for data that is not what its digest says."""
    return ImageError(
        message,
        code="image-blob-mismatch",
        hint="nothing of it was kept; retry, and check what is between this machine and the registry",
    )


def _registry_error(registry: str, error: HttpError) -> ImageError:
    if isinstance(error, UnreachableError):
        hint = "check the network, and HTTPS_PROXY if there is a proxy; or import the image from a file"
        if error.untrusted:
            hint = "if a proxy intercepts TLS, set SSL_CERT_FILE to a bundle with its CA certificate"
        return ImageError(f"{registry} cannot be reached: {error}", code="registry-unreachable", hint=hint)
    if isinstance(error, DeadlineError):
        hint = "retry on a faster network; the partial download was discarded"
        return ImageError(str(error), code="registry-unreachable", hint=hint)
    return ImageError(
        f"invalid response from {registry}: {error}",
        code="registry-answer-invalid",
        hint="check the reference, and any proxy between this machine and the registry",
    )
