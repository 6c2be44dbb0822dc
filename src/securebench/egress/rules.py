"""Settings of a whole gateway: limits for each session and, for tests, addresses, ports and trusted networks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Limits for one session, mostly for its proxy. Bytes are the sum of both directions; times are in seconds."""

    session_bytes: int = 4096 * _MIB
    connection_bytes: int = 2048 * _MIB
    connections: int = 64
    """Simultaneous connections to the proxy and the relay together. Package managers open dozens."""
    connection_seconds: float = 3600.0
    idle_seconds: float = 600.0
    """The longest time without a byte in either direction. Models think for minutes before they send anything."""
    head_seconds: float = 30.0
    """The longest time for the head of a request on an open connection, or for the TLS ClientHello."""
    resolve_seconds: float = 10.0
    connect_seconds: float = 10.0
    lookups: int = 4
    """Simultaneous DNS lookups. A name server that does not answer must not block other tasks."""
    log_lines: int = 2000
    """Lines in the log. Further decisions are counted but not logged."""
    hosts: int = 100
    """Distinct host names in the report. Further hosts are counted together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRules:
    """Overrides for tests. They can only be set in Python: no file and no environment variable sets them.

    ``names`` maps host names to addresses, without DNS. ``ports`` maps a requested port to the port that the proxy
    uses instead. Addresses in the networks ``trusted`` are allowed although they are not public.
    """

    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ports: Mapping[int, int] = field(default_factory=dict)
    trusted: tuple[str, ...] = ()
