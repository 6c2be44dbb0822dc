"""What a gateway may be told beside the plans: its bounds; and, for tests, a small world of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What one task may use of the proxy. Bytes count both directions; times are seconds."""

    session_bytes: int = 4096 * _MIB
    connection_bytes: int = 2048 * _MIB
    connections: int = 64
    """At once. Programs that fetch packages open tens."""
    connection_seconds: float = 3600.0
    idle_seconds: float = 600.0
    """With nothing sent either way. Models think for minutes without a byte."""
    head_seconds: float = 30.0
    """For the head of a request, once the connection is there, and for the first message of TLS."""
    resolve_seconds: float = 10.0
    connect_seconds: float = 10.0
    lookups: int = 4
    """At once. A name server that does not answer must not keep other tasks from theirs."""
    log_lines: int = 2000
    """Later ones are counted only."""
    hosts: int = 100
    """Distinct names in the report; the others are counted together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRules:
    """A world for tests, given in Python and nowhere else: no file and no variable leads here.

    ``names`` are resolved to these addresses and not asked for elsewhere; connections to one of ``ports`` go to another
    port; addresses in the networks ``trusted`` may be reached though they would be refused.
    """

    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ports: Mapping[int, int] = field(default_factory=dict)
    trusted: tuple[str, ...] = ()
