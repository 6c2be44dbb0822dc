"""The breakout probe: a candidate that makes every known attempt to escape from a sandbox, on any driver.

``securebench audit --self`` runs it on this machine. A driver that is weaker than it should be shows as ``escaped``.
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
