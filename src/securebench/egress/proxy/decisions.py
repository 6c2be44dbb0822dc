"""The proxy's decisions and their reasons. A session's :class:`Ledger` logs and counts its decisions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Self

from securebench.egress.model import EgressReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.egress.model import RelayReport
    from securebench.egress.rules import Caps
    from securebench.resources import JsonValue
    from securebench.trials import TrialId

OTHER_HOSTS: Final = "(others)"
"""The name under which a report counts all hosts beyond the maximum number of names."""


class Decision(StrEnum):
    """The decision about a request or a connection."""

    ALLOWED = "allowed"
    DENIED = "denied"
    FAILED = "failed"
    """The request was allowed but could not be served."""
    CLOSED = "closed"
    """An allowed connection has ended."""


class Reason(StrEnum):
    """The reason for a decision. docs/reference/egress.md describes each."""

    ALLOWED = "allowed"
    # The request.
    REQUEST_INVALID = "request_invalid"
    SCHEME_REFUSED = "scheme_refused"
    HOST_INVALID = "host_invalid"
    HOST_IS_ADDRESS = "host_is_address"
    HOST_MISMATCH = "host_mismatch"
    PORT_REFUSED = "port_refused"
    DOMAIN_NOT_ALLOWED = "domain_not_allowed"
    UPGRADE_REFUSED = "upgrade_refused"
    # The destination.
    ADDRESS_REFUSED = "address_refused"
    UNRESOLVED = "unresolved"
    UNREACHABLE = "unreachable"
    # The TLS handshake in a tunnel.
    TLS_REQUIRED = "tls_required"
    SERVER_NAME_MISSING = "server_name_missing"
    SERVER_NAME_MISMATCH = "server_name_mismatch"
    SERVER_NAME_ENCRYPTED = "server_name_encrypted"
    EARLY_DATA_REFUSED = "early_data_refused"
    # Limits.
    TOO_MANY_CONNECTIONS = "too_many_connections"
    BYTE_LIMIT = "byte_limit"
    TIME_LIMIT = "time_limit"
    IDLE = "idle"
    # Ends of a connection.
    DONE = "done"
    BROKEN = "broken"
    SESSION_CLOSED = "session_closed"


_PLAIN_ENDS: Final = frozenset({Reason.DONE, Reason.BROKEN, Reason.SESSION_CLOSED})
"""These reasons for the end of an allowed connection are logged, but not counted.

Any other reason means that the proxy cut the connection.
"""

_SHOWN: Final = 253


@dataclass(frozen=True, slots=True)
class ProxyAttempt:
    """What a program in the sandbox requested, as far as it is readable.

    ``kind`` is ``connect`` or ``http``; for a connection that was closed unread, it is ``proxy`` or ``relay``.
    """

    kind: str
    host: str = ""
    port: int = 0

    @classmethod
    def of(cls, kind: str, requested: str) -> Self:
        """Return an attempt whose host could not be read: ``requested`` takes its place.

        ``requested`` is untrusted. It is shortened, and characters other than printable ASCII become ``?``.
        """
        return cls(kind, "".join(char if char.isascii() and char.isprintable() else "?" for char in requested[:_SHOWN]))


@dataclass(slots=True)
class TunnelUsage:
    """Bytes that one connection carried: ``up`` from the sandbox, ``down`` to it."""

    up: int = 0
    down: int = 0

    @property
    def total(self) -> int:
        """The bytes of both directions."""
        return self.up + self.down


class Ledger:
    """The decisions of one session. ``post`` receives the log lines, up to the limit in ``caps``."""

    def __init__(self, trial: TrialId, post: Callable[[dict[str, JsonValue]], None], caps: Caps) -> None:
        self.caps = caps
        self._trial = trial
        self._post = post
        self._lines = 0
        self._bytes = 0
        self._reasons: Counter[str] = Counter()
        self._hosts: Counter[str] = Counter()

    def decide(self, attempt: ProxyAttempt, decision: Decision, reason: Reason, address: str = "") -> None:
        """Log and count a decision.

        If the name was resolved, ``address`` is the chosen or the refused address, or the first one if no address could
        be reached.
        """
        self._reasons[reason] += 1
        if attempt.host:
            known = attempt.host in self._hosts or len(self._hosts) < self.caps.hosts
            self._hosts[attempt.host if known else OTHER_HOSTS] += 1
        self._decided(attempt, decision, reason, {"address": address})

    def close(self, attempt: ProxyAttempt, reason: Reason, usage: TunnelUsage, seconds: float) -> None:
        """Log the end of an allowed connection. If the proxy cut the connection, also count ``reason``."""
        if reason not in _PLAIN_ENDS:
            self._reasons[reason] += 1
        facts: dict[str, JsonValue] = {"bytes_up": usage.up, "bytes_down": usage.down, "seconds": round(seconds, 3)}
        self._decided(attempt, Decision.CLOSED, reason, facts)

    def log(self, line: Mapping[str, JsonValue]) -> None:
        """Log a line of the proxy or of the relay."""
        self._lines += 1
        if self._lines <= self.caps.log_lines:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._post({"time": now, **self._trial._asdict(), **line})

    def spend(self, count: int) -> bool:
        """Count bytes, and return whether the task is still within its limit."""
        self._bytes += count
        return self._bytes <= self.caps.session_bytes

    def report(self, relay: RelayReport | None) -> EgressReport:
        """Return the report of the task's egress."""
        return EgressReport(decisions=dict(self._reasons), hosts=dict(self._hosts), bytes=self._bytes, relay=relay)

    def _decided(
        self, attempt: ProxyAttempt, decision: Decision, reason: Reason, facts: Mapping[str, JsonValue]
    ) -> None:
        request: dict[str, JsonValue] = {"kind": attempt.kind, "host": attempt.host, "port": attempt.port}
        self.log({**request, "decision": decision, "reason": reason, **facts})
