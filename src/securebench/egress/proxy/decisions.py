"""What the proxy decided, and why: logged as it happens, counted for the report. One ledger a task."""

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

OTHER_HOSTS: Final = "(others)"
"""Stands in a report for the hosts beyond those that are counted by name."""


class Decision(StrEnum):
    """What became of a request."""

    ALLOWED = "allowed"
    DENIED = "denied"
    FAILED = "failed"
    """It was allowed, and could not be served."""
    CLOSED = "closed"
    """A connection that was allowed has ended."""


class Reason(StrEnum):
    """Why. Closed: docs/reference/egress.md describes each."""

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
    # Where it leads.
    ADDRESS_REFUSED = "address_refused"
    UNRESOLVED = "unresolved"
    UNREACHABLE = "unreachable"
    # What is said in a tunnel.
    TLS_REQUIRED = "tls_required"
    SERVER_NAME_MISSING = "server_name_missing"
    SERVER_NAME_MISMATCH = "server_name_mismatch"
    SERVER_NAME_ENCRYPTED = "server_name_encrypted"
    EARLY_DATA_REFUSED = "early_data_refused"
    # Bounds.
    TOO_MANY_CONNECTIONS = "too_many_connections"
    BYTE_LIMIT = "byte_limit"
    TIME_LIMIT = "time_limit"
    IDLE = "idle"
    # Ends of a connection.
    DONE = "done"
    BROKEN = "broken"
    SESSION_CLOSED = "session_closed"


_PLAIN_ENDS: Final = frozenset({Reason.DONE, Reason.BROKEN, Reason.SESSION_CLOSED})
"""Ends that a report does not count. In all others the connection was cut by us."""

_SHOWN: Final = 253


@dataclass(frozen=True, slots=True)
class ProxyAttempt:
    """What somebody in the sandbox asked for, as far as it could be read. ``kind`` is ``connect`` or ``http``."""

    kind: str
    host: str = ""
    port: int = 0

    @classmethod
    def of(cls, kind: str, asked: str) -> Self:
        """Return one of whose host nothing but this text is known, which may be anything."""
        return cls(kind, "".join(mark if mark.isascii() and mark.isprintable() else "?" for mark in asked[:_SHOWN]))


@dataclass(slots=True)
class TunnelUsage:
    """Bytes that went through one connection, out of the sandbox and into it."""

    up: int = 0
    down: int = 0

    @property
    def total(self) -> int:
        """Both together."""
        return self.up + self.down


class Ledger:
    """The decisions of one task. ``post`` is given the lines, until there are more than ``caps`` admits."""

    def __init__(self, task_id: str, post: Callable[[dict[str, JsonValue]], None], caps: Caps) -> None:
        self.caps = caps
        self._task_id = task_id
        self._post = post
        self._lines = 0
        self._bytes = 0
        self._reasons: Counter[str] = Counter()
        self._hosts: Counter[str] = Counter()

    def decide(self, attempt: ProxyAttempt, decision: Decision, reason: Reason, address: str = "") -> None:
        """Log a decision. ``address`` is the one that was chosen or refused, if it came so far."""
        self._reasons[reason] += 1
        if attempt.host:
            known = attempt.host in self._hosts or len(self._hosts) < self.caps.hosts
            self._hosts[attempt.host if known else OTHER_HOSTS] += 1
        self._decided(attempt, decision, reason, {"address": address})

    def close(self, attempt: ProxyAttempt, reason: Reason, usage: TunnelUsage, seconds: float) -> None:
        """Log the end of a connection that was allowed."""
        if reason not in _PLAIN_ENDS:
            self._reasons[reason] += 1
        facts: dict[str, JsonValue] = {"bytes_up": usage.up, "bytes_down": usage.down, "seconds": round(seconds, 3)}
        self._decided(attempt, Decision.CLOSED, reason, facts)

    def log(self, line: Mapping[str, JsonValue]) -> None:
        """Log a line, of the proxy's or of the relay's."""
        self._lines += 1
        if self._lines <= self.caps.log_lines:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._post({"time": now, "task_id": self._task_id, **line})

    def spend(self, count: int) -> bool:
        """Count bytes. Whether the task may still use them."""
        self._bytes += count
        return self._bytes <= self.caps.session_bytes

    def report(self, relay: RelayReport | None) -> EgressReport:
        """Return what became of it all."""
        return EgressReport(decisions=dict(self._reasons), hosts=dict(self._hosts), bytes=self._bytes, relay=relay)

    def _decided(
        self, attempt: ProxyAttempt, decision: Decision, reason: Reason, facts: Mapping[str, JsonValue]
    ) -> None:
        asked: dict[str, JsonValue] = {"kind": attempt.kind, "host": attempt.host, "port": attempt.port}
        self.log({**asked, "decision": decision, "reason": reason, **facts})
