"""The setting ``base_url``: a custom provider endpoint, and the checks on where a key may be sent.

A URL is parsed once, here, and rebuilt from its parts. Later parsers therefore see exactly what was checked: no
ambiguity between URL parsers remains.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator

from securebench.strict_input.faults import Fault
from securebench.strict_input.models import refusal
from securebench.tester_config.fields import domain_fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAX_LENGTH: Final = 1000
_PLAIN = re.compile(r"[A-Za-z0-9._~:/\[\]-]+", re.ASCII)
"""The characters of a URL without user, query, fragment and percent escapes."""
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*", re.ASCII)
_LOCAL_SUFFIXES: Final = (".local", ".localhost", ".internal", ".lan", ".home.arpa")
"""Suffixes that are never used for public Internet hosts."""
_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_EXAMPLE: Final = "use a URL such as 'https://models.example.com/v1' or 'http://127.0.0.1:8000/v1'"
_RELAY_ONLY: Final = ("api_version", "auth", "budget", "prices", "provider_timeouts", "provider_tools")
"""Settings that need the relay."""


def credentials_faults(config: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield a fault for each setting of a valid ``harness.config`` that conflicts with ``credentials: passthrough``.

    Without a relay, the agent connects through the proxy, so the endpoint must be HTTPS on port 443 of a DNS name.
    """
    if config.get("credentials") != "passthrough":
        return
    if (url := config.get("base_url")) is not None and (fault := _proxy_fault(url)):
        hint = "remove 'credentials: passthrough'; the relay can reach such an endpoint"
        yield Fault("passthrough-endpoint", f"base_url {fault}", ("base_url",), hint)
    for name in _RELAY_ONLY:
        if name in config:
            message = f"{name!r} needs the relay and cannot be combined with 'credentials: passthrough'"
            yield Fault("passthrough-unbounded", message, (name,), "remove one of the two", at_key=True)


def _endpoint(text: str) -> str:
    """Return a normalized endpoint: scheme and host in lower case, no default port or trailing slash.

    Raises validation errors: ``base-url-invalid``, and ``base-url-unsafe`` for plain HTTP to a public host, which would
    send the key and all prompts unencrypted.
    """
    url, fault = _parts(text)
    if fault:
        raise refusal("base-url-invalid", fault, _EXAMPLE)
    scheme, host, port, path = url
    if scheme == "http" and not _is_near(host):
        hint = "use https; plain http is only allowed for this machine and private networks"
        raise refusal("base-url-unsafe", f"sends keys and prompts unencrypted to {host}", hint)
    shown = f"[{host}]" if ":" in host else host
    place = shown if port in (None, _PORTS[scheme]) else f"{shown}:{port}"
    return f"{scheme}://{place}{path.rstrip('/')}"


def _parts(text: str) -> tuple[tuple[str, str, int | None, str], str]:
    """Return scheme, host, port and path of a URL, and an error message, which is empty if the URL is valid."""
    nothing = ("", "", None, "")
    if len(text) > _MAX_LENGTH or not _PLAIN.fullmatch(text):
        return nothing, "is too long, or has a user, a query, a fragment or invalid characters"
    try:
        url = urlsplit(text)
        host, port = url.hostname or "", url.port
    except ValueError:
        return nothing, "has an invalid host or port"
    if url.scheme not in _PORTS or not host:
        return nothing, "does not begin with http:// or https:// and a host"
    if port == 0 or url.netloc.endswith(":") or not _is_host(host):
        return nothing, "has an invalid host or port"
    if any(part in {"", ".", ".."} for part in url.path.rstrip("/").split("/")[1:]):
        return nothing, "has a path with empty parts, '.' or '..'"
    return (url.scheme, host, port, url.path), ""


def _is_host(host: str) -> bool:
    """Whether ``host`` is a DNS name or an IP address in standard notation, unlike ``127.1`` and ``0x7f.0.0.1``."""
    try:
        return str(ipaddress.ip_address(host)) == host
    except ValueError:
        last = host.rpartition(".")[2]
        return len(host) <= 253 and bool(_HOST.fullmatch(host)) and not last[:1].isdecimal()  # noqa: PLR2004 - of DNS


def _is_near(host: str) -> bool:
    """Whether a host's name or address belongs to this machine or a private network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_LOCAL_SUFFIXES)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_private and not address.is_unspecified


def _proxy_fault(url: str) -> str:
    """Return why an agent cannot use ``url`` through the proxy, or an empty string."""
    parts = urlsplit(url)
    if parts.scheme != "https" or parts.port not in (None, _PORTS["https"]):
        return "must use https and port 443, because 'credentials: passthrough' is set"
    if domain_fault(parts.hostname or ""):
        return "must contain a full DNS name such as 'models.example.com', because 'credentials: passthrough' is set"
    return ""


BaseUrl: TypeAlias = Annotated[str, AfterValidator(_endpoint)]
