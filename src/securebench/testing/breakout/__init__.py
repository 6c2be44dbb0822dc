"""The breakout probe: a program that tries many ways to escape from a sandbox, on any driver.

``securebench audit --self`` runs it on this machine. If a driver is too weak, attempts have the outcome ``escaped``.
"""

from __future__ import annotations

from securebench.testing.breakout.inside.base import ATTEMPTS, BreakoutAttempt
from securebench.testing.breakout.run import USERS, AttemptOutcome, AttemptResult, break_out
from securebench.testing.breakout.target import EVIDENCE, HostEvidence

__all__ = [
    "ATTEMPTS",
    "EVIDENCE",
    "USERS",
    "AttemptOutcome",
    "AttemptResult",
    "BreakoutAttempt",
    "HostEvidence",
    "break_out",
]
