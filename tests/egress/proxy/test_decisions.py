"""The proxy's decisions, reasons and limits: their documentation, and their counts in a report."""

from __future__ import annotations

import re
from pathlib import Path

from securebench.egress.proxy.decisions import Decision, Ledger, ProxyAttempt, Reason, TunnelUsage
from securebench.egress.relay.refusals import RelayRefusal
from securebench.egress.rules import Caps
from securebench.trials import TrialId

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "egress.md"


def test_every_reason_and_decision_is_described() -> None:
    """The reference page names every reason and decision of the proxy, and every refusal of the relay."""
    described = set(re.findall(r"`([a-z_]+)`", PAGE.read_text()))
    assert {*Reason, *Decision, *RelayRefusal} <= described


def test_every_bound_is_described_as_it_is() -> None:
    """The limits on the reference page are those of the code."""
    page, caps = PAGE.read_text(), Caps()
    assert f"| bytes through the proxy, in both directions together | {caps.session_bytes >> 30} GiB |" in page
    assert f"| connections at once, to proxy and relay together | {caps.connections} |" in page
    assert f"| log lines of proxy and relay together; the rest is only counted | {caps.log_lines:,} |" in page
    assert f"| bytes | {caps.connection_bytes >> 30} GiB |" in page
    assert "| total time | one hour |" in page
    assert "| time without a byte | ten minutes |" in page
    assert (caps.connection_seconds, caps.idle_seconds) == (3600, 600)
    assert f"| the head of a request | {caps.head_seconds:.0f} seconds," in page
    assert f"| the first TLS message | {caps.head_seconds:.0f} seconds," in page
    assert "| resolving a name | ten seconds |" in page
    assert "| connecting | ten seconds |" in page
    assert (caps.resolve_seconds, caps.connect_seconds) == (10, 10)
    assert f"({caps.hosts} names" in page


def test_an_end_is_counted_only_where_a_bound_made_it() -> None:
    """A report counts each request once, and the end of its connection only if a limit cut the connection."""
    ledger = Ledger(TrialId("task"), lambda _: None, Caps())
    attempt = ProxyAttempt("connect", "a.test", 443)
    for reason in (Reason.DONE, Reason.BROKEN, Reason.SESSION_CLOSED, Reason.IDLE):
        ledger.decide(attempt, Decision.ALLOWED, Reason.ALLOWED)
        ledger.close(attempt, reason, TunnelUsage(1, 2), 0.1)
    assert ledger.report(None).decisions == {"allowed": 4, "idle": 1}
    assert ledger.report(None).hosts == {"a.test": 4}
