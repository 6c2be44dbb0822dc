"""How to authenticate at a registry: what it asks for with a 401, and the token or password that meets it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from securebench.errors import ImageError
from securebench.images.registry.documents import parse_object

if TYPE_CHECKING:
    from securebench.http.address import Address

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


def read_token(data: bytes, server: Address) -> str:
    """Return the token in a token server's response. Raises :class:`ImageError` (``registry-answer-invalid``)."""
    answer = parse_object(data, f"the token from {server}")
    token = answer.get("token") or answer.get("access_token")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ImageError(f"{server} returned an invalid token", code="registry-answer-invalid")
    return token
