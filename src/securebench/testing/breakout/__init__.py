"""The breakout probe: a candidate that tries to get out, in every way that we know of, on any driver.

``python -m securebench.testing.breakout`` tries it here and prints the table that ``docs/explanation/security.md``
shows. A driver that is weaker than it should be shows as ``escaped``.
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
