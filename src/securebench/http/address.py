"""Addresses that downloads may use. They need TLS, except for servers on this machine.

A caller may also allow plain HTTP to other machines.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urljoin, urlsplit

from securebench.http.errors import AddressError

_PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Address:
    """One URL. ``path`` includes the query, which may contain a signature and must not appear in messages."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> str:
        """The scheme, host and port. Credentials are valid for one origin."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL without its query, for messages."""
        return f"{self.scheme}://{self}{self.path.partition('?')[0]}"

    @property
    def is_loopback(self) -> bool:
        """Whether the host is ``localhost`` or a loopback address."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def is_protected(self) -> bool:
        """Whether data from this address cannot be changed in transit: it comes over TLS, or from this machine."""
        return self.scheme == "https" or self.is_loopback

    def __str__(self) -> str:
        return self.host if self.port == _PORTS[self.scheme] else f"{self.host}:{self.port}"

    def follow(self, location: str) -> Address:
        """Return where a redirect or link leads. Raises :class:`AddressError`.

        Another machine may not redirect to services of this machine, which may trust local requests. No redirect may
        give up TLS, because anyone on the network path could then change the data.
        """
        target = _parsed(location, self)
        if target.is_loopback and not self.is_loopback:
            raise AddressError(f"{self} refers to {target.origin}, which is this machine")
        if not target.is_protected and self.is_protected:
            raise AddressError(f"{self} refers to {target.origin}, which has no TLS")
        return target


def parse_address(url: str, *, allow_plain: bool = False) -> Address:
    """Return the address in a URL. Raises :class:`AddressError`, also for remote plain HTTP without ``allow_plain``."""
    address = _parsed(url)
    if not address.is_protected and not allow_plain:
        raise AddressError("it is not an https address")
    return address


def without_password(url: str) -> str:
    """Return ``url`` without user name and password, for messages."""
    return re.sub(r"(?<=://)[^/?#]*@", "", url)


def _parsed(url: str, base: Address | None = None) -> Address:
    try:
        url = urljoin(f"{base.origin}{base.path}" if base else "", url)
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise _invalid(base) from None
    if parts.username is not None:
        raise AddressError("a user name or password in an address is not supported")
    if not parts.hostname or not url.isascii() or not url.isprintable() or " " in url:
        raise _invalid(base)
    query = f"?{parts.query}" if parts.query else ""
    return Address(parts.scheme, parts.hostname, port, f"{parts.path or '/'}{query}")


def _invalid(base: Address | None) -> AddressError:
    return AddressError(f"{base} refers to an invalid address" if base else "the address is invalid")
