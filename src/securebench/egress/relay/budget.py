"""The provider budget of one task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.plurals import counted

if TYPE_CHECKING:
    from securebench.egress.model import RelayPlan


@dataclass(slots=True)
class Spending:
    """What this attempt has used; the plan has what earlier attempts used. ``bytes`` counts bodies in both directions.

    ``failed`` counts the requests that failed because of the provider. Agents retry them, and an outage must not use up
    the budget. At most ``plan.requests`` of them are forgiven, so that retries end.
    """

    requests: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    bytes: int = 0

    def over(self, plan: RelayPlan) -> str:
        """Return a description of the exhausted limit of ``plan``, or an empty string if a request is possible."""
        return self._reached(plan, min(self.failed, plan.requests))

    def is_used_up(self, plan: RelayPlan) -> bool:
        """Return whether the budget would be exhausted even if all failed requests were forgiven."""
        return bool(self._reached(plan, self.failed))

    def _reached(self, plan: RelayPlan, forgiven: int) -> str:
        spent = {
            counted(plan.requests, "request"): plan.spent_requests + self.requests - forgiven >= plan.requests,
            counted(plan.tokens, "token"): plan.spent_tokens + self.input_tokens + self.output_tokens >= plan.tokens,
            counted(plan.bytes, "byte"): plan.spent_bytes + self.bytes >= plan.bytes,
        }
        return next((bound for bound, is_over in spent.items() if is_over), "")
