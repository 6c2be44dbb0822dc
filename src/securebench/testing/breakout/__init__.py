"""The breakout probe: a candidate that tries to get out, in every way that we know of, on any driver.

``python -m securebench.testing.breakout`` tries it here and prints the table that ``docs/explanation/security.md``
shows. A driver that is weaker than it should be shows as ``escaped``.
"""

from __future__ import annotations

from securebench.testing.breakout.inside.base import ATTEMPTS, Attempt
from securebench.testing.breakout.run import USERS, Finding, Outcome, break_out
from securebench.testing.breakout.target import EVIDENCE, Evidence

__all__ = ["ATTEMPTS", "EVIDENCE", "USERS", "Attempt", "Evidence", "Finding", "Outcome", "break_out"]
