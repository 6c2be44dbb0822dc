"""A registry as it answers: authenticated, redirected and tried again, so that callers see an answer or an error."""

from __future__ import annotations

import email.utils
import ssl
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

from securebench.errors import ImageError
from securebench.images.registry import wire
from securebench.images.registry.address import follow, registry_address
from securebench.images.registry.challenge import MAX_TOKEN_BYTES, parse_challenge, read_token
from securebench.images.registry.patience import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.images.reference import RegistryReference
    from securebench.images.registry.address import Address
    from securebench.images.registry.credentials import Credentials
    from securebench.images.registry.patience import Timeouts

T = TypeVar("T")

MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_TRANSIENT: Final = frozenset({408, 429, 500, 502, 503, 504})
_DENIED: Final = frozenset({401, 403})
_GOOD: Final = frozenset({200, 206})


class RetryLaterError(Exception):
    """The registry cannot answer now. ``after``: the seconds that it asks us to wait, or ``None``."""

    def __init__(self, why: str, after: float | None) -> None:
        super().__init__(why)
        self.after = after


@dataclass(frozen=True, slots=True)
class Access:
    """What a client works with: ``report`` is given lines for people."""

    reference: RegistryReference
    credentials: Credentials | None
    deadline: Deadline
    report: Callable[[str], None]


class RegistryClient:
    """Answers about one repository. Shared by threads."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._registry = registry_address(access.reference.registry)
        self._authorization = ""
        self._authorizing = threading.Lock()
        self._reached = False

    @property
    def deadline(self) -> Deadline:
        """The end of the download that this client is for."""
        return self._access.deadline

    def fetch(self, kind: str, version: str, accept: str, limit: int) -> tuple[bytes, str]:
        """Return a document of at most ``limit`` bytes, and its ``Content-Type``.

        ``kind`` is ``manifests`` or ``blobs``. Raises :class:`ImageError` as :meth:`retried` and :meth:`open` do.
        """

        def attempt() -> tuple[bytes, str]:
            with self.open(kind, version, {"Accept": accept}) as answer:
                data = answer.body(limit)
                if data is None:
                    raise ImageError(
                        f"{self._registry} gave more than {limit} bytes for {self._access.reference}",
                        code="registry-answer-invalid",
                    )
                return data, answer.header("Content-Type")

        return self.retried(attempt)

    def retried(self, attempt: Callable[[], T]) -> T:
        """Return what ``attempt`` returns, called again while the connection breaks or the registry is busy.

        A registry that was never reached is not tried again. Raises :class:`ImageError` (``registry-unreachable``).
        """
        tries = 1
        while True:
            try:
                return attempt()
            except (RetryLaterError, *wire.BROKEN) as error:
                self.recover(error, tries)
            tries += 1

    def recover(self, error: Exception, tries: int) -> None:
        """Wait before the next try after ``tries`` that failed, the last with ``error``.

        Raises :class:`ImageError` (``registry-unreachable``) when there is no point in another.
        """
        timeouts = self.deadline.timeouts
        pause = timeouts.pause * 2 ** (tries - 1)
        if isinstance(error, RetryLaterError) and error.after is not None:
            pause = error.after
        if not self._reached or tries >= timeouts.attempts or pause > timeouts.longest_pause or _is_distrust(error):
            raise _unreachable(self._registry, error) from error
        self._access.report(f"{self._registry}: {_text(error)}; trying again in {pause:.0f} s")
        self.deadline.wait(pause)

    def open(self, kind: str, version: str, headers: Mapping[str, str]) -> wire.Answer:
        """Return the answer about one manifest or blob, with its body still to be read.

        Raises :class:`RetryLaterError`, :data:`wire.BROKEN`, and :class:`ImageError`: ``image-unavailable``,
        ``registry-denied``, ``registry-answer-invalid``.
        """
        address = follow(f"/v2/{self._access.reference.repository}/{kind}/{version}", self._registry)
        answer = self._authorized(address, headers)
        for _ in range(MAX_REDIRECTS):
            if answer.status not in _REDIRECTS:
                return self._judged(answer, address)
            answer.close()
            address = follow(answer.header("Location"), address)
            ours = address.origin == self._registry.origin
            answer = self._authorized(address, headers) if ours else self._get(address, headers)
        answer.close()
        raise ImageError(
            f"{self._registry} redirects more than {MAX_REDIRECTS} times",
            code="registry-answer-invalid",
            hint="check the reference, and any proxy between here and the registry",
        )

    def _get(self, address: Address, headers: Mapping[str, str]) -> wire.Answer:
        answer = wire.get(address, {"Connection": "close", **headers}, self.deadline)
        self._reached = True
        return answer

    def _authorized(self, address: Address, headers: Mapping[str, str]) -> wire.Answer:
        """Ask our registry, with what it takes to be let in. Nobody else is ever sent that."""
        sent = self._authorization
        answer = self._get(address, _with(headers, sent))
        if answer.status != HTTPStatus.UNAUTHORIZED:
            return answer
        answer.close()
        return self._get(address, _with(headers, self._authorize(answer.header("WWW-Authenticate"), sent)))

    def _authorize(self, header: str, refused: str) -> str:
        """Return what to send instead of ``refused``: another thread may have got it meanwhile."""
        challenge = parse_challenge(header)
        if challenge is None:
            raise self._denied()
        with self._authorizing:
            if self._authorization == refused:
                credentials = self._access.credentials
                if challenge.realm:
                    server = challenge.token_address(self._registry, self._access.reference.repository)
                    self._authorization = f"Bearer {self._token(server)}"
                elif credentials is None or credentials.basic == refused:
                    raise self._denied()
                else:
                    self._authorization = credentials.basic
            return self._authorization

    def _token(self, server: Address) -> str:
        """Ask the token server that the registry named. It is not followed anywhere else."""
        credentials = self._access.credentials
        headers = _with({"Accept": "application/json"}, credentials.basic if credentials else "")
        with self._get(server, headers) as answer:
            return read_token(self._judged(answer, server).body(MAX_TOKEN_BYTES) or b"", server)

    def _judged(self, answer: wire.Answer, address: Address) -> wire.Answer:
        """Return an answer that is one, and turn any other into its error."""
        if answer.status in _GOOD:
            return answer
        answer.close()
        if answer.status in _TRANSIENT:
            raise RetryLaterError(f"it answers {_shown(answer.status)}", _retry_after(answer.header("Retry-After")))
        if answer.status in _DENIED:
            raise self._denied()
        if answer.status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
            raise ImageError(
                f"{self._registry} has no image {self._access.reference}",
                hint="check the name and the tag; 'securebench/' images are built: 'securebench images build'",
            )
        raise ImageError(f"{address} answers {_shown(answer.status)}", code="registry-answer-invalid")

    def _denied(self) -> ImageError:
        registry = self._access.reference.registry
        known = self._access.credentials is not None
        return ImageError(
            f"{registry} does not let us have {self._access.reference.repository}: it is private, or not there",
            code="registry-denied",
            hint=f"the credentials for it were refused: 'docker login {registry}' again"
            if known
            else f"check the name; for a private image 'docker login {registry}', without a credential helper",
        )


def ask(registry: str, timeouts: Timeouts) -> None:
    """See whether a registry answers at all. Raises :class:`ImageError` (``registry-unreachable``)."""
    address = follow("/v2/", registry_address(registry))
    try:
        wire.get(address, {"Connection": "close"}, Deadline(timeouts)).close()
    except wire.BROKEN as error:
        raise _unreachable(address, error) from error


def _unreachable(registry: Address, error: Exception) -> ImageError:
    hint = "check the network, and HTTPS_PROXY if there is a proxy; or bring the image as a file"
    if _is_distrust(error):
        hint = "is a proxy between here and the registry? Name its certificate in SSL_CERT_FILE"
    return ImageError(f"{registry} cannot be reached: {_text(error)}", code="registry-unreachable", hint=hint)


def _with(headers: Mapping[str, str], authorization: str) -> dict[str, str]:
    return {**headers, "Authorization": authorization} if authorization else dict(headers)


def _is_distrust(error: Exception) -> bool:
    return isinstance(error, ssl.SSLCertVerificationError)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


def _shown(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _retry_after(header: str) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks for: it holds those, or a date."""
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
