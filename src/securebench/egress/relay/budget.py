"""What one task may ask of its provider, and what is left of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from securebench.egress.model import RelayPlan


@dataclass(slots=True)
class Spending:
    """What was spent by this try; a plan says what earlier tries did. ``bytes`` are those of bodies, both ways.

    ``failed`` are those of the requests that the provider is to blame for: programs repeat them, and its bad hour is
    not to use up the budget. As many as there may be requests are forgiven, so that nobody repeats without end.
    """

    requests: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    bytes: int = 0

    def over(self, plan: RelayPlan) -> str:
        """Return which bound of ``plan`` leaves no room for another request, in words; nothing if none does."""
        return self._reached(plan, min(self.failed, plan.requests))

    def is_used_up(self, plan: RelayPlan) -> bool:
        """Return whether there would be no room either if all that the provider failed at were forgiven."""
        return bool(self._reached(plan, self.failed))

    def _reached(self, plan: RelayPlan, forgiven: int) -> str:
        spent = {
            f"{plan.requests} requests": plan.spent_requests + self.requests - forgiven >= plan.requests,
            f"{plan.tokens} tokens": plan.spent_tokens + self.input_tokens + self.output_tokens >= plan.tokens,
            f"{plan.bytes} bytes": plan.spent_bytes + self.bytes >= plan.bytes,
        }
        return next((bound for bound, is_over in spent.items() if is_over), "")
