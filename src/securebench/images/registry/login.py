"""How to authenticate at a registry: what it asks for with a 401, and the token or password that meets it."""

from __future__ import annotations

import re
import threading
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from securebench.errors import ImageError
from securebench.http import HttpClient
from securebench.images.registry.documents import parse_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.http import Address, Deadline
    from securebench.http.connection import Response
    from securebench.images.reference import RegistryReference
    from securebench.images.registry.credentials import Credentials

_MAX_TOKEN_BYTES: Final = 256 * 1024
_BEARER = re.compile(r"(?i)(?:^|,)\s*bearer\s+(.*)")
_BASIC = re.compile(r"(?i)(?:^|,)\s*basic\b")
_PARAMETER = re.compile(r'([a-zA-Z]+)="([^"\\]*)"')
_TOKEN = re.compile(r"[!-~]+")
"""Printable and without spaces: it becomes part of a header."""


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

    A token is preferred to a password.
    """
    if bearer := _BEARER.search(header):
        parameters = {name.lower(): value for name, value in _PARAMETER.findall(bearer[1])}
        if parameters.get("realm"):
            return Challenge(parameters["realm"], parameters.get("service", ""), parameters.get("scope", ""))
    return Challenge() if _BASIC.search(header) else None


class RegistryHttp(HttpClient):
    """Authenticates at the registry at ``address``, with a password or tokens. No other host is sent either."""

    def __init__(
        self,
        address: Address,
        reference: RegistryReference,
        credentials: Credentials | None,
        deadline: Deadline,
        report: Callable[[str], None],
    ) -> None:
        super().__init__(deadline, report=report)
        self._address = address
        self._reference = reference
        self._credentials = credentials
        self._authorization = ""
        self._renewing = threading.Lock()

    def authorized(self, address: Address, headers: Mapping[str, str]) -> Response:
        """Send a request, and meet a challenge of the registry. Raises :class:`ImageError` (``registry-denied``)."""
        if address.origin != self._address.origin:
            return self.get(address, headers)
        sent = self._authorization
        response = self.get(address, _with(headers, sent))
        if response.status != HTTPStatus.UNAUTHORIZED:
            return response
        response.close()
        self._renew(parse_challenge(response.header("WWW-Authenticate")), sent)
        return self.get(address, _with(headers, self._authorization))

    def denied(self) -> ImageError:
        """Return the error for a registry that refuses access."""
        registry = self._reference.registry
        return ImageError(
            f"{registry} denied access to {self._reference.repository}: it is private or does not exist",
            code="registry-denied",
            hint=f"the registry refused the credentials; run 'docker login {registry}' again"
            if self._credentials is not None
            else f"check the name; for a private image run 'docker login {registry}' without a credential helper",
        )

    def _renew(self, challenge: Challenge | None, refused: str) -> None:
        """Replace what was ``refused``, unless another thread has already."""
        with self._renewing:
            if challenge is None:
                raise self.denied()
            if self._authorization != refused:
                return
            if challenge.realm:
                self._authorization = f"Bearer {self._token(challenge)}"
            elif self._credentials is None or self._credentials.basic == refused:
                raise self.denied()
            else:
                self._authorization = self._credentials.basic

    def _token(self, challenge: Challenge) -> str:
        """Request a token from the server that the registry named, which gets the password: no redirects."""
        server = challenge.token_address(self._address, self._reference.repository)
        headers = _with({"Accept": "application/json"}, self._credentials.basic if self._credentials else "")
        with closing(self.get(server, headers)) as response:
            if response.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                raise self.denied()
            answer = parse_object(response.checked().read(_MAX_TOKEN_BYTES), f"the token from {server}")
        token = answer.get("token") or answer.get("access_token")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise ImageError(f"{server} returned an invalid token", code="registry-answer-invalid")
        return token


def _with(headers: Mapping[str, str], authorization: str) -> Mapping[str, str]:
    return {**headers, "Authorization": authorization} if authorization else headers
