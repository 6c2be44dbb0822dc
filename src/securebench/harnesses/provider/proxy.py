"""The proxy of the tester's network, for connections of the gateway to a provider."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined] # public, but not in the stubs

from securebench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PROXY: Final = ("https_proxy", "HTTPS_PROXY")
_EXCEPT: Final = ("no_proxy", "NO_PROXY")
"""``_PROXY`` and ``_EXCEPT``: names of variables, in order of precedence: lower case first, as in curl and Python."""


def proxy_of(variables: Mapping[str, str], base_url: str) -> str | None:
    """Return the URL of the proxy for a provider, according to ``HTTPS_PROXY`` and ``NO_PROXY``, or ``None``.

    Returns ``None`` for loopback addresses and for plain HTTP, which is allowed only on this machine and in private
    networks. Raises :class:`ConfigError` (``proxy-invalid``). Its message does not quote the URL, which may contain a
    password.
    """
    url = urlsplit(base_url)
    host = url.hostname or ""
    proxy = _value(variables, _PROXY)
    if url.scheme != "https" or not proxy or _is_loopback(host):
        return None
    if proxy_bypass_environment(f"{host}:{url.port or 443}", {"no": _value(variables, _EXCEPT)}):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        parts = urlsplit(proxy)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigError(
            "HTTPS_PROXY is not the URL of an HTTP proxy",
            code="proxy-invalid",
            hint="use http://HOST:PORT or https://HOST:PORT, or list the provider's host in NO_PROXY",
        )
    return proxy


def _value(variables: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := variables.get(name, "").strip())), "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
