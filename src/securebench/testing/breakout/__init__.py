"""The breakout probe: a candidate that makes every known attempt to escape from a sandbox, on any driver.

``python -m securebench.testing.breakout`` runs it on this machine and prints the table in
``docs/explanation/security.md``. A driver that is weaker than it should be shows as ``escaped``.
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
