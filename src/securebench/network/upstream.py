"""Connections to one provider."""

from __future__ import annotations


class Upstream:
    """Where a provider is found: the host of ``base_url``, and no other. TLS is verified with the system's authorities.

    ``authority`` is the path of a PEM file with one more, for a server of the tester's own.
    """

    def __init__(self, base_url: str, authority: str | None = None) -> None:
        self.base_url = base_url
        self.authority = authority
