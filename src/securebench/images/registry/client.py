"""A client of one repository of a registry: authentication, documents, blobs, and errors that explain a failure."""

from __future__ import annotations

import re
import threading
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from securebench.errors import ImageError
from securebench.http.address import parse_address
from securebench.http.client import HttpClient
from securebench.http.download import Download
from securebench.http.errors import DeadlineError, HttpError, MismatchError, StatusError, UnreachableError
from securebench.http.timeouts import Deadline, Timeouts
from securebench.images.reference import DEFAULT_REGISTRY
from securebench.images.registry.documents import parse_object

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from securebench.http.address import Address
    from securebench.http.connection import Response
    from securebench.images.layout import Descriptor
    from securebench.images.reference import RegistryReference
    from securebench.images.registry.credentials import Credentials

_BEARER = re.compile(r"(?i)(?:^|,)\s*bearer\s+(.*)")
_BASIC = re.compile(r"(?i)(?:^|,)\s*basic\b")
_PARAMETER = re.compile(r'([a-zA-Z]+)="([^"\\]*)"')
_TOKEN = re.compile(r"[!-~]+")
"""A valid token: printable and without spaces, because it becomes part of a header."""

_DEFAULT_HOST: Final = "registry-1.docker.io"
"""The host of the default registry's API. The host in references, ``docker.io``, is only a web site."""

_DENIED: Final = frozenset({401, 403})
_MISSING: Final = frozenset({404, 410})
_MAX_TOKEN_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Challenge:
    """How to authenticate. ``realm`` is the token server's address, or empty if the registry wants a password."""

    realm: str = ""
    service: str = ""
    scope: str = ""

    def token_address(self, registry: Address, repository: str) -> Address:
        """Return where to request a token for pulling. Raises :class:`AddressError`."""
        realm = registry.follow(self.realm)
        query = {"service": self.service, "scope": self.scope or f"repository:{repository}:pull"}
        separator = "&" if "?" in realm.path else "?"
        wanted = urlencode({name: value for name, value in query.items() if value})
        return realm.follow(f"{realm.path}{separator}{wanted}")


def parse_challenge(header: str) -> Challenge | None:
    """Return the challenge in a ``WWW-Authenticate`` header, or ``None`` if it is not supported.

    If the header offers both ``Bearer`` and ``Basic``, the ``Bearer`` challenge is returned.
    """
    if bearer := _BEARER.search(header):
        parameters = {name.lower(): value for name, value in _PARAMETER.findall(bearer[1])}
        if parameters.get("realm"):
            return Challenge(parameters["realm"], parameters.get("service", ""), parameters.get("scope", ""))
    return Challenge() if _BASIC.search(header) else None


def read_token(data: bytes, server: Address) -> str:
    """Return the token in a token server's response. Raises :class:`ImageError` (``registry-answer-invalid``)."""
    answer = parse_object(data, f"the token from {server}")
    token = answer.get("token") or answer.get("access_token")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ImageError(f"{server} returned an invalid token", code="registry-answer-invalid")
    return token


def registry_address(registry: str) -> Address:
    """Return the address of a registry's API: over TLS, unless it is on this machine. Raises :class:`AddressError`."""
    host = _DEFAULT_HOST if registry == DEFAULT_REGISTRY else registry
    address = parse_address(f"https://{host}/v2/")
    return parse_address(f"http://{host}/v2/") if address.is_loopback else address


class RegistryClient(HttpClient):
    """Downloads from one repository, until ``deadline``. Shared by threads.

    It sends the password only to the registry or its token server, and tokens only to the registry. :meth:`document`
    and :meth:`blob` raise :class:`ImageError`: ``image-unavailable``, ``image-blob-mismatch``,
    ``registry-unreachable``, ``registry-denied``, ``registry-answer-invalid``.
    """

    def __init__(
        self,
        reference: RegistryReference,
        credentials: Credentials | None,
        deadline: Deadline,
        report: Callable[[str], None],
    ) -> None:
        super().__init__(deadline, report=report)
        self._reference = reference
        self._credentials = credentials
        with _explained(reference.registry):
            self._registry = registry_address(reference.registry)
        self._authorization = ""
        self._renewing = threading.Lock()

    def document(self, kind: str, version: str, accept: str, limit: int) -> tuple[bytes, str]:
        """Return a document of at most ``limit`` bytes, and its ``Content-Type``.

        ``kind`` is ``manifests`` or ``blobs``; ``version`` is a tag or a digest.
        """
        with self._image_errors():
            return self.read(self._path(kind, version), limit, {"Accept": accept})

    def blob(self, blob: Descriptor) -> Generator[bytes]:
        """Yield a blob in pieces. If this raises, even after the last piece, the pieces must not be used."""
        with self._image_errors(blob.digest):
            yield from Download(
                self, self._path("blobs", blob.digest), blob.size, expected_size=blob.size, digest=blob.digest
            )

    def authorized(self, address: Address, headers: Mapping[str, str]) -> Response:
        """Send a request; if the registry challenges it, authenticate and send it again."""
        if address.origin != self._registry.origin:
            return self.get(address, headers)
        sent = self._authorization
        response = self.get(address, _with(headers, sent))
        if response.status != HTTPStatus.UNAUTHORIZED:
            return response
        response.close()
        challenge = parse_challenge(response.header("WWW-Authenticate"))
        if challenge is None:
            raise self._denied()
        with self._renewing:
            if self._authorization == sent:  # no other thread has renewed it meanwhile
                self._authorization = self._renewed(challenge)
        return self.get(address, _with(headers, self._authorization))

    def _renewed(self, challenge: Challenge) -> str:
        """Return the ``Authorization`` header for ``challenge``: the login, or a token from the token server."""
        basic = self._credentials.basic if self._credentials else ""
        if not challenge.realm:
            if basic in {"", self._authorization}:
                raise self._denied()
            return basic
        # The token server receives the password: its redirects are not followed.
        server = challenge.token_address(self._registry, self._reference.repository)
        with closing(self.get(server, _with({"Accept": "application/json"}, basic))) as response:
            if response.status in _DENIED:
                raise self._denied()
            return f"Bearer {read_token(response.checked().read(_MAX_TOKEN_BYTES), server)}"

    def _path(self, kind: str, version: str) -> Address:
        return replace(self._registry, path=f"/v2/{self._reference.repository}/{kind}/{version}")

    @contextmanager
    def _image_errors(self, blob: str = "") -> Iterator[None]:
        with _explained(str(self._registry)):
            try:
                yield
            except MismatchError as error:
                raise blob_mismatch(f"cannot download {blob}: {error}") from error
            except StatusError as error:
                if error.status in _DENIED:
                    raise self._denied() from error
                if error.status not in _MISSING:
                    raise
                raise ImageError(
                    f"{self._registry} does not have {self._reference}",
                    hint="check the name and the tag; to build a 'securebench/' image, run 'securebench images build'",
                ) from error

    def _denied(self) -> ImageError:
        registry = self._reference.registry
        return ImageError(
            f"{registry} denied access to {self._reference.repository}: it is private or does not exist",
            code="registry-denied",
            hint=f"the registry refused the credentials; run 'docker login {registry}' again"
            if self._credentials is not None
            else f"check the name; for a private image, disable credential helpers and run 'docker login {registry}'",
        )


def ask(registry: str, timeouts: Timeouts) -> None:
    """Check that a registry responds.

    Raises :class:`ImageError` (``registry-unreachable``, ``registry-answer-invalid``).
    """
    with _explained(registry):
        HttpClient(Deadline(timeouts)).get(registry_address(registry)).close()


def blob_mismatch(message: str) -> ImageError:
    """Return the error for downloaded data that differs from the expected data, for example in its digest."""
    return ImageError(
        message,
        code="image-blob-mismatch",
        hint="the download was discarded; retry, and check any proxy between this machine and the registry",
    )


@contextmanager
def _explained(registry: str) -> Iterator[None]:
    """Turn each :class:`HttpError` into an :class:`ImageError` that names ``registry``."""
    try:
        yield
    except UnreachableError as error:
        hint = "check the network, and HTTPS_PROXY if there is a proxy; or import the image from a file"
        if error.untrusted:
            hint = "if a proxy intercepts TLS, set SSL_CERT_FILE to a bundle with its CA certificate"
        raise ImageError(f"{registry} cannot be reached: {error}", code="registry-unreachable", hint=hint) from error
    except DeadlineError as error:
        hint = "check the network, or retry on a faster one; any partial download was discarded"
        problem = f"the request to {registry} was stopped: {error}"
        raise ImageError(problem, code="registry-unreachable", hint=hint) from error
    except HttpError as error:
        raise ImageError(
            f"invalid response from {registry}: {error}",
            code="registry-answer-invalid",
            hint="check the reference, and any proxy between this machine and the registry",
        ) from error


def _with(headers: Mapping[str, str], authorization: str) -> Mapping[str, str]:
    return {**headers, "Authorization": authorization} if authorization else headers
