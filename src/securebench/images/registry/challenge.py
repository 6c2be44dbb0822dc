"""What a registry asks for with a 401, and the token that answers it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from securebench.errors import ImageError
from securebench.images.registry.address import follow
from securebench.images.registry.documents import parse_object

if TYPE_CHECKING:
    from securebench.images.registry.address import Address

MAX_TOKEN_BYTES: Final = 256 * 1024
_BEARER = re.compile(r"(?i)(?:^|,)\s*bearer\s+(.*)")
_BASIC = re.compile(r"(?i)(?:^|,)\s*basic\b")
_PARAMETER = re.compile(r'([a-zA-Z]+)="([^"\\]*)"')
_TOKEN = re.compile(r"[!-~]+")
"""Printable and without spaces: it becomes part of a header."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """How to authenticate. ``realm`` is the token server's address, empty where plain credentials are asked for."""

    realm: str = ""
    service: str = ""
    scope: str = ""

    def token_address(self, registry: Address, repository: str) -> Address:
        """Return where to ask for a token that may pull. Raises :class:`ImageError` (``registry-answer-invalid``)."""
        realm = follow(self.realm, registry)
        query = {"service": self.service, "scope": self.scope or f"repository:{repository}:pull"}
        separator = "&" if "?" in realm.path else "?"
        wanted = urlencode({name: value for name, value in query.items() if value})
        return follow(f"{realm.path}{separator}{wanted}", realm)


def parse_challenge(header: str) -> Challenge | None:
    """Return what a ``WWW-Authenticate`` header asks for, or ``None`` if it is nothing that we can do.

    Of several ways that it offers, the one with a token is taken.
    """
    if bearer := _BEARER.search(header):
        parameters = {name.lower(): value for name, value in _PARAMETER.findall(bearer[1])}
        if parameters.get("realm"):
            return Challenge(parameters["realm"], parameters.get("service", ""), parameters.get("scope", ""))
    return Challenge() if _BASIC.search(header) else None


def read_token(data: bytes, server: Address) -> str:
    """Return the token in a token server's answer. Raises :class:`ImageError` (``registry-answer-invalid``)."""
    answer = parse_object(data, f"the token from {server}")
    token = answer.get("token") or answer.get("access_token")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ImageError(f"{server} gave no token that can be used", code="registry-answer-invalid")
    return token
