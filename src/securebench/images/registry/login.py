"""How to authenticate at a registry: what it asks for with a 401, and the token or password that meets it."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from securebench.errors import ImageError
from securebench.http import HttpClient
from securebench.images.registry.documents import parse_object

if TYPE_CHECKING:
    from securebench.http import Address, Deadline
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


class RegistryLogin:
    """Authenticates at the registry at ``address``, with a password or tokens. Shared by threads."""

    def __init__(
        self, address: Address, reference: RegistryReference, credentials: Credentials | None, deadline: Deadline
    ) -> None:
        self.origin = address.origin
        self._address = address
        self._reference = reference
        self._credentials = credentials
        self._http = HttpClient(deadline)
        self._authorization = ""
        self._renewing = threading.Lock()

    def authorization(self) -> str:
        """Return the ``Authorization`` header to send, or an empty string."""
        return self._authorization

    def renew(self, challenge: str, refused: str) -> str:
        """Return the header to send instead of ``refused``. Raises :class:`ImageError` (``registry-denied``)."""
        wanted = parse_challenge(challenge)
        if wanted is None:
            raise self.denied()
        with self._renewing:
            if self._authorization == refused:  # no other thread has renewed it meanwhile
                if wanted.realm:
                    self._authorization = f"Bearer {self._token(wanted)}"
                elif self._credentials is None or self._credentials.basic == refused:
                    raise self.denied()
                else:
                    self._authorization = self._credentials.basic
            return self._authorization

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

    def _token(self, wanted: Challenge) -> str:
        """Request a token from the server that the registry named. Redirects of that server are refused."""
        server = wanted.token_address(self._address, self._reference.repository)
        headers = {"Accept": "application/json"}
        if self._credentials is not None:
            headers["Authorization"] = self._credentials.basic
        with self._http.get(server, headers) as response:
            if response.status in {401, 403}:
                raise self.denied()
            answer = parse_object(response.checked().read(_MAX_TOKEN_BYTES), f"the token from {server}")
        token = answer.get("token") or answer.get("access_token")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise ImageError(f"{server} returned an invalid token", code="registry-answer-invalid")
        return token
