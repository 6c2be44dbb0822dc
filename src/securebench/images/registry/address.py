"""Addresses that a download may use: TLS everywhere, but for a registry on this machine."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urljoin, urlsplit

from securebench.errors import ImageError
from securebench.images.reference import DEFAULT_REGISTRY

_DEFAULT_HOST: Final = "registry-1.docker.io"
"""Where the API of the default registry is: its name is that of a web site."""

_PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Address:
    """One URL. ``path`` has the query, which may hold a signature: only ``origin`` is ever shown."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> str:
        """Whom it leads to, and all that credentials depend on."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it leads to this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return self.host if self.port == _PORTS[self.scheme] else f"{self.host}:{self.port}"


def registry_address(registry: str) -> Address:
    """Return where the API of ``registry`` is: over TLS, but for one on this machine."""
    host = _DEFAULT_HOST if registry == DEFAULT_REGISTRY else registry
    address = _parsed(f"https://{host}")
    return _parsed(f"http://{host}") if address.is_loopback else address


def follow(location: str, source: Address) -> Address:
    """Return where ``source`` sends us. Raises :class:`ImageError` (``registry-answer-invalid``).

    A registry elsewhere may not send us to services of this machine, nor off TLS.
    """
    target = _parsed(location, f"{source.origin}{source.path}")
    if not source.is_loopback and (target.is_loopback or target.scheme != "https"):
        raise _refused(f"{source} leads to {target.origin}, where nothing is downloaded from")
    if target.scheme == "http" and not target.is_loopback:
        raise _refused(f"{source} leads to {target.origin}, which has no TLS")
    return target


def _parsed(location: str, base: str = "") -> Address:
    try:
        url = urljoin(base, location)
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise _refused("the registry leads to an address that cannot be used") from None
    if not parts.hostname or parts.username is not None or not url.isascii() or not url.isprintable() or " " in url:
        raise _refused("the registry leads to an address that cannot be used")
    query = f"?{parts.query}" if parts.query else ""
    return Address(parts.scheme, parts.hostname, port, f"{parts.path or '/'}{query}")


def _refused(message: str) -> ImageError:
    return ImageError(
        message,
        code="registry-answer-invalid",
        hint="check the reference, and any proxy between here and the registry",
    )
