"""Host names: their canonical form, and which are allowed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from securebench.egress.proxy.decisions import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_NAME: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""A name's last label must not match: some programs parse ``0x7f.1``, ``017700000001`` or ``1.1`` as an IP address."""


class HostError(ValueError):
    """A host is an IP address, or its name is invalid. ``reason`` says which."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


def canonical(host: str) -> str:
    """Return ``host`` in lower case and without a trailing dot. Raises :class:`HostError`.

    International names are accepted only in their ASCII form (``xn--``), so that no confusable name matches an allowed
    one.
    """
    name = host.lower().removesuffix(".") if host.isascii() else ""
    labels = name.split(".")
    if name.startswith("[") or _NUMBER.fullmatch(labels[-1]):
        raise HostError(Reason.HOST_IS_ADDRESS)
    if len(name) > _MAX_NAME or not all(map(_LABEL.fullmatch, labels)):
        raise HostError(Reason.HOST_INVALID)
    return name


class AllowedDomains:
    """The allowed domains, each with all its subdomains."""

    def __init__(self, domains: Iterable[str]) -> None:
        """Parse ``domains`` as a tester writes them. Raises :class:`HostError`."""
        self._domains = frozenset(map(canonical, domains))

    def admits(self, host: str) -> bool:
        """Return whether ``host``, in canonical form, is one of the domains or a subdomain."""
        labels = host.split(".")
        return any(".".join(labels[start:]) in self._domains for start in range(len(labels)))
