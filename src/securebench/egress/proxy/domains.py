"""Names of hosts: one spelling of each, and which are allowed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from securebench.egress.proxy.decisions import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_NAME: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""What the last label of a name must not be: some take ``0x7f.1``, ``017700000001`` or ``1.1`` for an address."""


class HostError(ValueError):
    """A host is no name that could be allowed. ``reason`` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


def canonical(host: str) -> str:
    """Return ``host`` in lower case and without the dot of the root. Raises :class:`HostError`.

    An international name is taken in its ASCII form (``xn--``) alone, so that nothing that only looks like an allowed
    name can be one.
    """
    name = host.lower().removesuffix(".") if host.isascii() else ""
    labels = name.split(".")
    if name.startswith("[") or _NUMBER.fullmatch(labels[-1]):
        raise HostError(Reason.HOST_IS_ADDRESS)
    if len(name) > _MAX_NAME or not all(map(_LABEL.fullmatch, labels)):
        raise HostError(Reason.HOST_INVALID)
    return name


class AllowedDomains:
    """Some domains, each with all its subdomains."""

    def __init__(self, domains: Iterable[str]) -> None:
        """Take names as a tester writes them. Raises :class:`HostError`."""
        self._domains = frozenset(map(canonical, domains))

    def admits(self, host: str) -> bool:
        """Whether ``host``, canonical, is one of the domains or below one."""
        labels = host.split(".")
        return any(".".join(labels[start:]) in self._domains for start in range(len(labels)))
